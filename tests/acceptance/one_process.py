"""Lives of one changefeed in this process: a real broker, real Delta, an etcd in memory.

A *life* is a capture as ``tidelake run`` is one, over an etcd in memory: sessions, elections and
messages are real. It ends at its target-ts, at a fail point or when it is asked to. After each life
the control tables are looked at: no checkpoint ever falls, and nothing of Spark's own checkpoint is
left.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from conf.settings import BatchSettings, Changefeed, DeltaSink, SessionSettings, Settings
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_uri import SourceSettings
from coordination import failpoint
from coordination.errors import TryAgain
from coordination.etcd.client import EtcdClient
from coordination.trust.clock import SystemClock
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.progress import Progress, ProgressRow
from sinks.target.engine_port import TableWrite
from streaming.apply.table_writing import TableWriting
from streaming.jobs.on_spark import SparkOfProcess
from streaming.jobs.port import EngineOfProcess
from streaming.process.run_capture import RunCapture
from streaming.spark.session import SparkOnDemand, configure
from streaming.spark.ticking_query import CHECKPOINT_PREFIX
from tests.acceptance.jvm_calls import refused_here
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.memory_broker import MemoryBroker
from tests.looks import looks
from tests.services.delta_rows import read_rows
from tests.services.delta_versions import DeltaVersions
from tests.services.kafka_broker import KafkaBroker
from tests.shop.feed import FeedSettings, Message, messages
from tests.shop.history import Event, HistorySettings, history
from tests.shop.model import Model

CHANGEFEED = "shop"
PATIENCE_S = 600.0  # of one life: seconds on a quiet machine
TTL_S = 5
QUERY_ENDS_WITHIN_S = 60.0  # a life does not wait for it
NewEngine = Callable[[], EngineOfProcess]  # one for each life


@dataclass(frozen=True, slots=True)
class Feed:
    """A history and its messages, with the troubles of the real ones."""

    events: list[Event]
    messages: list[Message]

    @property
    def last_ts(self) -> int:
        return self.events[-1].commit_ts

    def ts_at(self, part: float) -> int:
        """The commit-ts at that part of the history."""
        return self.events[int((len(self.events) - 1) * part)].commit_ts


def shop_feed(
    *, transactions: int = 80, seed: int = 1, layout: FeedSettings | None = None, **settings: Any
) -> Feed:
    """A small shop in three partitions; every kind of disorder unless ``layout`` says otherwise."""
    wanted = HistorySettings(transactions=transactions, seed=seed, customers=8, **settings)
    events = list(history(wanted))
    layout = layout or FeedSettings(seed=seed, watermark_every=3, replay_every=9)
    return Feed(events, messages(events, layout))


class Line:
    """One life's way to etcd; cut, nothing comes through any more."""

    def __init__(self, etcd: EtcdClient) -> None:
        self.is_cut = False
        self._etcd = etcd

    def __getattr__(self, name: str) -> Any:
        if self.is_cut:
            raise TryAgain("etcd does not answer")
        return getattr(self._etcd, name)


class Life:
    """One capture at work in the background."""

    def __init__(
        self, settings: Settings, engine: EngineOfProcess, etcd: EtcdClient, number: int
    ) -> None:
        self.capture_id = f"capture-{number}"
        self.line = Line(etcd)
        ids = itertools.chain([self.capture_id], (f"of-{number}-{n}" for n in itertools.count(1)))
        self._capture = RunCapture(
            settings,
            client=cast(EtcdClient, self.line),
            cluster_id="lives",
            engine=engine,
            new_id=lambda: next(ids),
        )
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Life:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            with refused_here() as jvm_calls:
                self._capture.run()
            assert not jvm_calls, jvm_calls
        except BaseException as error:  # noqa: BLE001  # looked at by the test
            self._error = error
        self._ended.set()

    def join(self, patience_s: float = PATIENCE_S) -> BaseException | None:
        """How it ended; None: at its target-ts."""
        try:
            assert self._ended.wait(patience_s), "the life goes on and on"
        finally:
            self._capture.request_stop()
        return self._error

    def stop(self) -> BaseException | None:
        """In order, as SIGTERM does."""
        self._capture.request_stop()
        return self.join()

    def wait_until(self, holds: Callable[[], Any]) -> Any:
        """Blocks until it is so; what it is."""
        for _ in looks(PATIENCE_S):
            has_ended = self._ended.is_set()
            if found := holds():
                return found
            assert not has_ended, f"ended before: {self._error!r}"
        raise AssertionError("it did not come to it")


def on_spark(spark: SparkSession) -> NewEngine:
    """A session of its own for each life: two queries of one name cannot share one."""

    def session_like_the_programs() -> SparkSession:
        session = spark.newSession()
        configure(session)
        return session

    return lambda: SparkOfProcess(SparkOnDemand(session_like_the_programs))


class Lives:
    """A changefeed's lives over one warehouse, and what must hold between them."""

    def __init__(
        self,
        new_engine: NewEngine,
        broker: KafkaBroker | MemoryBroker | None,
        folder: Path,
        *,
        topics: Sequence[str] = (),
        partitions: int | None = 3,
        engine: str = "auto",
        max_messages: int = 1_000_000,
        quiet_s: float = 10.0,
        store: str | None = None,
        source: SourceSettings | None = None,
    ) -> None:
        """``new_engine``: `on_spark`, or `ThreadsOfProcess`. ``store``: a warehouse elsewhere,
        whose options the environment has. ``source``: instead of the broker's topics."""
        self._new_engine = new_engine
        self._etcd = FakeEtcd(SystemClock())
        self._number = 0
        self._seen: dict[str, tuple[int, int]] = {}
        if source is None:
            assert broker is not None
            source = KafkaSettings(
                brokers=(broker.bootstrap,),
                topic=topics[0],
                topics=tuple(topics),
                protocol="canal-json",
                partition_num=partitions,
            )
        self._broker = broker
        self.topics = tuple(topics)
        self.warehouse = folder / "warehouse"
        self.uri = store or str(self.warehouse)
        self._followed: dict[str, tuple[DeltaVersions, dict[str, tuple[int, int]]]] = {
            name: (DeltaVersions(f"{self.uri}/_tidelake/{name}"), {})
            for name in ("changefeeds", "progress")
        }
        sink = DeltaSink(warehouse=self.uri, apply_engine=engine)  # type: ignore[arg-type]
        self.settings = Settings(
            changefeed=Changefeed(id=CHANGEFEED, source=source, sink=sink),
            batch=BatchSettings(max_messages=max_messages, quiet_s=quiet_s),
            session=SessionSettings(ttl_s=TTL_S, safety_margin_s=1.0),
        )

    @property
    def broker(self) -> KafkaBroker | MemoryBroker:
        assert self._broker is not None
        return self._broker

    def produce(self, outgoing: Iterable[Message], topic: str | None = None) -> None:
        self.broker.produce(topic or self.topics[0], outgoing)

    def begin(
        self,
        *,
        engine: str | None = None,
        max_messages: int | None = None,
        first_messages: int | None = None,
        **changes: Any,
    ) -> Life:
        """A new owner in the background; ``changes`` are the changefeed's settings."""
        self._number += 1
        changefeed = replace(self.settings.changefeed, **changes)
        if engine is not None:
            sink = replace(changefeed.sink, apply_engine=engine)  # type: ignore[arg-type]
            changefeed = replace(changefeed, sink=sink)
        batch = self.settings.batch
        batch = replace(
            batch,
            max_messages=max_messages or batch.max_messages,
            first_messages=first_messages or batch.first_messages,
        )
        settings = replace(self.settings, changefeed=changefeed, batch=batch)
        return Life(settings, self._new_engine(), self._etcd, self._number).start()

    def live(self, failpoints: str = "", **changes: Any) -> BaseException | None:
        """One whole life; how it ended."""
        return self.live_together(1, failpoints, **changes)[0]

    def live_together(
        self, count: int, failpoints: str = "", **changes: Any
    ) -> list[BaseException | None]:
        """So many captures side by side; how each ended. A step fails in one of them."""
        failpoint.configure(failpoints)
        try:
            lives = [self.begin(**changes) for _ in range(count)]
            errors = [life.join() for life in lives]
        finally:
            failpoint.configure("")
        self.look()
        return errors

    def finish(self, **changes: Any) -> None:
        """One life that must reach its target-ts."""
        error = self.live(**changes)
        if error is not None:
            raise error

    def finish_beside(self, **changes: Any) -> None:
        """Like ``finish`` while an older life still sleeps, with Spark's checkpoint of its own."""
        error = self.begin(**changes).join()
        if error is not None:
            raise error
        self.look(others=1)

    def look(self, others: int = 0) -> None:
        """No checkpoint fell since the last look; Spark's checkpoint is gone but for others'."""
        row = self.changefeed()
        seen = {str(name): (p.incarnation, p.checkpoint_ts) for name, p in self.progress().items()}
        if row is not None:
            seen["changefeed"] = (row.incarnation, row.checkpoint_ts)
        for name, before in self._seen.items():
            assert seen.get(name, (0, 0)) >= before, f"{name} fell from {before}"
        self._seen = seen
        folder, deadline = Path(tempfile.gettempdir()), time.monotonic() + QUERY_ENDS_WITHIN_S
        while len(left := list(folder.glob(f"{CHECKPOINT_PREFIX}*"))) > others:
            assert time.monotonic() < deadline, f"Spark's checkpoint is still there: {left}"
            time.sleep(0.05)

    def changefeed(self) -> ChangefeedRow | None:
        return Changefeeds(self.uri).read(CHANGEFEED)

    def progress(self) -> dict[str, ProgressRow]:
        rows = Progress(self.uri).read(CHANGEFEED)
        return {str(name): row for name, row in rows.items()}

    def ledger(self) -> list[dict[str, Any]]:
        """The published snapshots, oldest first."""
        uri = f"{self.uri}/_tidelake/snapshots"
        rows = [{**row, "tables": dict(row["tables"])} for row in read_rows(uri)]
        return sorted(rows, key=lambda row: row["primary_ts"])

    def dead_letters(self) -> list[dict[str, Any]]:
        uri = f"{self.uri}/_tidelake/dead_letters"
        rows = read_rows(uri) if DeltaTable.is_deltatable(uri) else []
        return sorted(rows, key=lambda row: (row["part"], row["position"]))

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows = read_rows(f"{self.uri}/shop/{table}")
        return sorted(rows, key=lambda row: tuple(map(repr, row.values())))

    def versions(self) -> dict[str, int]:
        """The newest Delta version of every target table."""
        folders = sorted((self.warehouse / "shop").glob("*"))
        return {folder.name: DeltaTable(str(folder)).version() for folder in folders}

    def control_rows(self) -> list[Any]:
        """Every control row as it stands: what no zombie may move."""
        return [self.changefeed(), sorted(self.progress().items()), self.ledger()]

    def assert_is(self, events: Sequence[Event], up_to: int | None = None) -> None:
        """Every table is, row for row, what the history makes it; the control tables too."""
        differences = Model.of(events, up_to=up_to).differences(self.uri)
        assert not differences, differences
        self.assert_history()
        self.assert_ledger(events)

    def assert_ledger(self, events: Sequence[Event]) -> None:
        """Each published cut, read at its versions, is the history at its ts."""
        model, following = Model(), iter(events)
        read = cache(read_rows)  # most tables are at one version in many cuts
        event = next(following, None)
        rows = self.ledger()
        assert rows
        for row in rows:
            while event is not None and event.commit_ts <= row["primary_ts"]:
                model.apply(event)
                event = next(following, None)
            differences = model.differences(self.uri, row["tables"], read)
            assert not differences, (row["primary_ts"], differences)

    def assert_history(self) -> None:
        """In no version of a control table is a checkpoint lower than in the one before. Goes on
        where the last call ended."""
        for table, key in (("changefeeds", "changefeed_id"), ("progress", "table_name")):
            versions, before = self._followed[table]
            for number, _, rows in versions.further():
                now = {row[key]: (row["incarnation"], row["checkpoint_ts"]) for row in rows}
                fell = [name for name, at in before.items() if now.get(name, (0, 0)) < at]
                assert not fell, f"{table} version {number}: {fell} fell from {before} to {now}"
                before = now
            self._followed[table] = versions, before


class Sleep:
    """Holds one capture's commits between its last fence check and the commit, until ``wake``.

    ``above``: those whose limit is above it; others are made."""

    def __init__(self, monkeypatch: Any, capture: str, *, above: int = 0) -> None:
        self.asleep = threading.Event()
        self.wake = threading.Event()
        write_of = TableWriting.write_of

        def held_write(writing: TableWriting, *of: Any) -> TableWrite:
            write = write_of(writing, *of)

            def before_commit() -> None:
                write.before_commit()
                if writing._permit.capture_id == capture and write.limit > above:
                    self.asleep.set()
                    assert self.wake.wait(PATIENCE_S)

            return replace(write, before_commit=before_commit)

        monkeypatch.setattr(TableWriting, "write_of", held_write)
