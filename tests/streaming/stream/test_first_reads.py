"""Reading begins when Spark can run jobs, and its query takes over when it ticks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import Stop, TidelakeError
from coordination.model import TableName, Ts
from coordination.trust.watchdog import Watchdog
from streaming.jobs.port import ForeachBatch
from streaming.protocols.contract import Block, Kind, WantedTable
from streaming.source.contract import ReadOrder, SourceShape
from streaming.source.positions import counted
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream import idle_time, stream_run
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.reading import Place
from streaming.stream.stream_run import StreamRun
from tests.fakes.fake_clock import FakeClock

PARTITION = "orders/0"
SHAPE = SourceShape(dict.fromkeys([PARTITION], "id"))
TABLE = {TableName("shop", "orders"): WantedTable(above_ts=Ts(1), key=("id",))}
PATIENCE_S = 30.0


class Ground:
    """A stream over a topic that never ends, and a Spark whose start is in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wanted: dict[TableName, WantedTable] = {}
        self.threads: list[str] = []  # that made the reads
        self.has_read, self.session_is_there = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []
        self.has_failed = threading.Event()
        self.error: BaseException | None = None  # of Spark's start
        self.context_errors: list[BaseException] = []  # of earlier starts
        self.reading = threading.Lock()
        monkeypatch.setattr(stream_run, "open_source", lambda *_: self)
        monkeypatch.setattr(stream_run, "told_columns", lambda _: {})
        monkeypatch.setattr(stream_run, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(idle_time, "BUSY_WAIT_S", 0.01)
        watchdog = Watchdog(FakeClock())
        context: Any = SimpleNamespace(
            name="a",
            changefeed=SimpleNamespace(source=None, sink=SimpleNamespace(storage_options={})),
            batch=SimpleNamespace(max_messages=10, first_messages=0),
            watch=lambda what: watchdog.watch(what, 60.0),
            trust=SimpleNamespace(check=lambda: None),
            concerns=LastingWarnings(),
            check_jvm=lambda: None,
            engine=self,
            reader=lambda *_: self,
        )
        backlog: Any = SimpleNamespace(
            begin=lambda _: None,
            close=lambda: None,
            batch_begins=lambda: None,
            batch_ends=lambda _: None,
        )
        self.run = StreamRun(
            context,
            backlog=backlog,
            roles=lambda: (self,),  # type: ignore[arg-type, return-value]
            busy=threading.Lock(),
            begin=Place(shape=SHAPE, position={PARTITION: 0}, limits=Watermarks(parts=SHAPE.parts)),
        )

    # The engine.

    def keep_to(self, _identities: object) -> None: ...

    def jobs(self, _stopping: threading.Event) -> object:
        if self.context_errors:
            raise self.context_errors.pop()
        if self.error is not None:
            raise self.error
        return object()

    @contextmanager
    def ticking(
        self, stopping: threading.Event, *, name: str, foreach_batch: ForeachBatch
    ) -> Iterator[Any]:
        if self.error is not None:
            raise self.error
        while not self.session_is_there.wait(0.01):
            if stopping.is_set():
                raise Stop("asked to stop while Spark was starting")
        thread = threading.Thread(target=foreach_batch, args=(None, 0), name=f"query of {name}")
        thread.start()
        yield SimpleNamespace(isActive=True)
        thread.join()

    # The topic, and its reader.

    is_numbered = False
    distance = staticmethod(counted)

    def reach(self, ends: Any, _stored: object) -> Any:
        return ends

    def tell_of(self, *_: object) -> None: ...

    def settled(
        self, _shape: object, limits: Watermarks, _position: object, _stored: object
    ) -> Watermarks:
        return limits

    def ends(self, _: object) -> dict[str, int]:
        return {PARTITION: 1_000_000}

    def check_unchanged(self, _: object) -> None: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def read(self, order: ReadOrder) -> list[Block]:
        assert self.reading.acquire(blocking=False), "two read at the same time"
        self.threads.append(threading.current_thread().name)
        self.has_read.set()
        self.reading.release()
        ((_part, at),) = order.begin.items()
        return [Block(kind=Kind.DONE, part="orders/0", first=at, last=at + order.messages)]

    # A role.

    is_behind = is_held = is_owners = False

    def submit(self, _: object) -> dict[TableName, WantedTable]:
        return self.wanted

    def take(self, _: object) -> None: ...

    def apply_due(self) -> None: ...

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)
        self.has_failed.set()


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    one = Ground(monkeypatch)
    yield one
    one.run.stop()
    one.run.join(PATIENCE_S)
    assert not one.run._keeping.is_alive()
    assert not one.run._reading_first.is_alive()


def test_rows_are_read_before_the_query_ticks_and_then_by_it(ground: Ground):
    ground.wanted = TABLE
    ground.run.start()
    assert ground.has_read.wait(PATIENCE_S)
    assert set(ground.threads) == {"first-reads"}
    ground.session_is_there.set()
    assert ground.run._ticks.wait(PATIENCE_S)
    ground.run._reading_first.join(PATIENCE_S)
    del ground.threads[:]
    ground.has_read.clear()
    assert ground.has_read.wait(PATIENCE_S)
    assert set(ground.threads) == {"query of a"}


def test_while_no_table_is_wanted_reading_waits_for_the_query(ground: Ground):
    """A table that joined behind such a read would have its messages read once more."""
    ground.run.start()
    assert ground.run._ready.wait(PATIENCE_S)
    assert not ground.has_read.wait(0.1)
    ground.session_is_there.set()
    assert ground.has_read.wait(PATIENCE_S)
    assert ground.threads[0] in {"first-reads", "query of a"}


def test_a_stop_before_the_session_is_there(ground: Ground):
    ground.wanted = TABLE
    ground.run.start()
    assert ground.has_read.wait(PATIENCE_S)


def test_a_spark_that_does_not_start_fails_the_roles_once(ground: Ground):
    ground.error = TidelakeError("Spark does not start")
    ground.run.start()
    assert ground.has_failed.wait(PATIENCE_S)
    ground.run.join(PATIENCE_S)
    assert ground.errors == [ground.error]


def test_after_a_start_that_failed_for_who_reads_first_alone_reading_begins(ground: Ground):
    """The other thread had asked a moment later, and so for the next start."""
    ground.wanted = TABLE
    ground.context_errors = [TidelakeError("Spark does not start")]
    ground.session_is_there.set()
    ground.run.start()
    assert ground.has_read.wait(PATIENCE_S)
    assert ground.errors == []
