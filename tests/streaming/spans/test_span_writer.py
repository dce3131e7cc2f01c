"""What a capture holds of its spans' rows when they come, go, and cannot be kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import BatchSettings
from coordination.model import TableName, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import Checkpoint, Span, stored_table_id
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from streaming.apply.carry import Carry
from streaming.apply.row_block import RowBlock
from streaming.protocols.contract import Block
from streaming.source.positions import counted
from streaming.source.resolved.watermarks import Watermarks
from streaming.spans.assigned_spans import AssignedSpans, Assignment
from streaming.spans.joining_spans import JoiningSpan, low_water_of, passes
from streaming.spans.span_writer import SpanWriter, _Joined
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.read import Read
from tests.streaming.apply.blocks import A, Row, block_of

SPAN = Span(stored_table_id(1, A.schema, A.table, 5), A.schema, A.table)
AT = Checkpoint(Ts(10), Ts(10))
FENCE = 1 << 32 | 1
PARTITION = "shop/0"
ADDED = "shop/1"
WHEN_S = 10.0


def read_of(begin: int, end: int) -> Read:
    """A row of the table at each offset, with commit-ts 100 + offset."""
    rows = [
        Row(op="INSERT", ts=100 + at, data={"id": str(at)}, position=at) for at in range(begin, end)
    ]
    return Read(
        begin={PARTITION: begin},
        end={PARTITION: end},
        position={PARTITION: end},
        watermarks=Watermarks(parts=frozenset([PARTITION])),
        blocks=(block_of(rows),),
        messages=1,
        rows_wait=False,
        job_ms=0.0,
    )


class _Tables(dict[TableName, Any]):
    def put(self, table: Any) -> None:
        self[table.name] = table


class Ground:
    """A writer with spans and a carry that are real. It is the writer's stream itself: nothing is
    resolved, so nothing is written."""

    name = "stub"
    watermarks = Watermarks(parts=frozenset([PARTITION]))

    def __init__(self, folder: Path) -> None:
        self.held = AssignedSpans()
        self.held.set_barrier(Barrier(Ts(1_000)))
        self.carry = Carry(folder=folder)
        self.position: dict[str, int] = {PARTITION: 0}
        self.between: list[Read] = []
        self.failures: list[BaseException] = []
        self.woken = threading.Event()
        self.closing = threading.Event()
        nothing: Any = SimpleNamespace(
            have_news=lambda: False,
            stops=lambda _: None,
            say_stopped=lambda _: None,
            counts={},
            selects=lambda _: True,
            rows_wait=lambda _: None,
        )
        context: Any = SimpleNamespace(
            stream=self,
            changefeed=SimpleNamespace(id="shop"),
            batch=BatchSettings(),
            trust=SimpleNamespace(identity=nothing),
            filter=nothing,
            wake=lambda: None,
            progress=dict,
            spans=lambda _: _Tables(),
            dead_letters=lambda _: nothing,
            carry=lambda: self.carry,
            applier=lambda *_: nothing,
            concerns=LastingWarnings(),
        )
        row: Any = SimpleNamespace(incarnation=1)
        self.writer = SpanWriter(context, row, self.held, self.failures.append)

    def resolved_ts(self) -> Ts:
        return Ts(0)

    def wake(self) -> None:
        self.woken.set()

    def read_between(self, *_: Any) -> Iterator[Read]:
        yield from self.between

    def add(self) -> Assignment:
        """The span comes; it is not to be written yet."""
        self.held.add(SPAN, AT, FENCE, is_prepare=True)
        (assignment,) = self.held.assignments()
        return assignment

    def begin(self, assignment: Assignment, at: int) -> JoiningSpan:
        """It joins, and the stream's next read begins at ``at``."""
        table: Any = SimpleNamespace(
            name=A,
            is_settled=False,
            target=None,
            version_at_checkpoint=None,
            engine="",
            dropped={},
            null_dates={},
            state="",
            identity=None,
            is_blocked=False,
            error="",
        )
        low_water: Mapping[str, int] = {PARTITION: 0}
        self.writer.newcomers.begin(
            [JoiningSpan(assignment=assignment, table=table, low_water=low_water)]
        )
        self.writer.submit({**self.position, PARTITION: at})
        (joining,) = self.writer.newcomers.coming()
        return joining

    def catch_up(self, joining: JoiningSpan) -> threading.Thread:
        step = Watchdog(SystemClock()).watch("the worker", 60.0)
        thread = threading.Thread(
            target=self.writer.newcomers.catch_up,
            args=([joining], step, self.closing),
            daemon=True,
        )
        thread.start()
        return thread

    def advance_until_over(self, thread: threading.Thread) -> None:
        """As the applying thread does, woken after each step."""
        while thread.is_alive():
            self.woken.wait(0.1)
            self.woken.clear()
            self.writer.apply_due()
        self.writer.apply_due()

    def leave(self) -> None:
        self.held.remove(SPAN.table_id)
        assert self.held.take_stopped(SPAN.table_id) is not None


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def joined(ground: Ground) -> None:
    """The span is here, with nothing before it."""
    joining = ground.begin(ground.add(), at=0)
    ground.advance_until_over(ground.catch_up(joining))
    assert not ground.writer.newcomers.coming()


def test_a_span_that_leaves_and_comes_again_keeps_the_rows_that_came_since(ground: Ground):
    joined(ground)
    ground.writer.take(read_of(0, 3))
    ground.leave()
    joining = ground.begin(ground.add(), at=3)  # before the applying thread saw it leave
    ground.writer.take(read_of(3, 6))
    ground.between = [read_of(0, 3)]
    ground.advance_until_over(ground.catch_up(joining))
    assert ground.carry.low_water(A) == {PARTITION: 0}
    assert {offset for block in ground.carry.due(A, 0, 1_000) for offset in _offsets(block)} == {
        *range(6)
    }


def _offsets(block: RowBlock) -> list[int]:
    return [each for batch in block.batches() for each in batch["position"].to_pylist()]


def test_a_read_that_is_kept_does_not_hide_one_that_was_lost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
):
    joined(ground)

    def full(_self: Carry, _block: Block) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Carry, "add", full)
        with pytest.raises(OSError, match="no space"):
            ground.writer.take(read_of(0, 3))
    assert ground.writer.has_lost_rows
    ground.writer.take(read_of(3, 6))
    assert ground.writer.has_lost_rows
    assert not ground.carry.bytes


def test_a_read_that_is_being_kept_is_not_lost(ground: Ground, monkeypatch: pytest.MonkeyPatch):
    """The worker looks after a failure of its own: it would leave, and read everything again."""
    joined(ground)
    seen: list[bool] = []
    add = Carry.add

    def look(carry: Carry, block: Block) -> None:
        seen.append(ground.writer.has_lost_rows)
        add(carry, block)

    monkeypatch.setattr(Carry, "add", look)
    ground.writer.take(read_of(0, 3))
    assert seen == [False]


def test_what_lies_before_a_newcomer_goes_to_the_carry_read_by_read(ground: Ground):
    joining = ground.begin(ground.add(), at=30)
    ground.between = [read_of(at, at + 10) for at in (0, 10, 20)]
    thread = ground.catch_up(joining)
    assert ground.woken.wait(WHEN_S)
    most = 0
    while thread.is_alive():
        most = max(most, sum(block.rows for block in list(joining.caught)))
        ground.writer.apply_due()
    assert most <= 10
    ground.writer.apply_due()
    assert sum(each.rows for each in ground.carry.due(A, 0, 10**18)) == 30
    assert not ground.writer.newcomers.coming()


def test_a_newcomer_gives_way_when_the_writer_has_failed(ground: Ground):
    joining = ground.begin(ground.add(), at=30)
    ground.between = [read_of(0, 10), read_of(10, 20)]
    thread = ground.catch_up(joining)
    assert ground.woken.wait(WHEN_S)
    ground.writer.failed(OSError("storage is away"))
    thread.join(WHEN_S)
    assert not thread.is_alive()
    assert ground.writer.newcomers.coming() == [joining]  # it is caught up with once more
    assert not joining.is_caught_up


def test_after_a_failure_a_newcomer_goes_on_where_it_was(ground: Ground):
    """Any table's commit may fail now and then. A long backlog would never be caught up with, and
    each try would leave its rows in the carry once more."""
    joining = ground.begin(ground.add(), at=30)
    ground.between = [read_of(0, 10), read_of(10, 20)]
    thread = ground.catch_up(joining)
    assert ground.woken.wait(WHEN_S)
    ground.writer.failed(OSError("storage is away"))
    thread.join(WHEN_S)
    assert low_water_of([joining]) == {PARTITION: 10}
    ground.writer.retry()
    ground.between = [read_of(10, 20), read_of(20, 30)]
    ground.advance_until_over(ground.catch_up(joining))
    assert sum(each.rows for each in ground.carry.due(A, 0, 10**18)) == 30
    assert ground.carry.low_water(A) == {PARTITION: 0}
    assert not ground.writer.newcomers.coming()


def test_a_replica_that_closes_does_not_read_the_rest_of_a_backlog(ground: Ground):
    """A pause would take as long; after ten minutes its capture would end by suicide."""
    joining = ground.begin(ground.add(), at=30)
    ground.between = [read_of(at, at + 10) for at in (0, 10, 20)]
    ground.closing.set()
    ground.advance_until_over(ground.catch_up(joining))
    assert ground.carry.low_water(A) == {PARTITION: 0}
    assert sum(each.rows for each in ground.carry.due(A, 0, 10**18)) == 10
    assert not joining.is_caught_up


def test_a_newcomer_that_goes_before_its_rows_are_here_leaves_nothing(ground: Ground):
    joining = ground.begin(ground.add(), at=30)
    ground.between = [read_of(0, 10), read_of(10, 20)]
    thread = ground.catch_up(joining)
    ground.leave()
    ground.advance_until_over(thread)
    assert not ground.carry.bytes
    assert not ground.writer.known()
    assert ground.writer.submit({PARTITION: 40}) == {}


def test_a_partition_that_was_added_is_read_from_its_beginning_for_a_newcomer(ground: Ground):
    """Its progress row is from before: no capture has reported the partition yet. The stream here
    has read it already, without the newcomer's rows."""
    ground.position[ADDED] = 50
    assignment = ground.add()
    ground.begin(assignment, at=30)
    (joining,) = ground.writer.newcomers.coming()
    assert joining.since == {PARTITION: 30, ADDED: 50}
    assert low_water_of([joining]) == {PARTITION: 0, ADDED: 0}
    assert joining.behind(counted) == 80


def joining(*, behind: int, at: int = 1_000_000) -> JoiningSpan:
    nothing: Any = None
    low_water = {PARTITION: at - behind}
    return JoiningSpan(
        assignment=nothing, table=nothing, low_water=low_water, since={PARTITION: at}
    )


def test_newcomers_whose_rows_begin_near_each_other_are_read_in_one_pass():
    near, nearer, far = joining(behind=60), joining(behind=50), joining(behind=500_000)
    elsewhere, waiting = joining(behind=55, at=70), joining(behind=1)
    waiting.since = None
    found = passes([far, near, waiting, nearer, elsewhere], counted)
    assert sorted(map(len, found)) == [1, 1, 2]
    assert found[-1] == [far]
    (together,) = [each for each in found if len(each) == 2]
    assert together == [nearer, near]
    assert low_water_of(together) == {PARTITION: 1_000_000 - 60}


def test_a_span_may_leave_while_the_worker_asks_how_far_all_are(tmp_path: Path) -> None:
    """Both threads are woken at once when a span leaves."""
    ground = Ground(tmp_path)
    writer = ground.writer

    class Leaving(_Tables):
        """The applying thread comes in between."""

        def get(self, *asked: Any) -> Any:
            writer._drop_leavers({})
            return super().get(*asked)

        def __getitem__(self, name: TableName) -> Any:
            found = super().__getitem__(name)
            writer._drop_leavers({})
            return found

    spans: Any = Leaving()
    writer._spans = spans
    for name in (A, TableName("shop", "other")):
        assignment: Any = SimpleNamespace(id=1, name=name, checkpoint_ts=Ts(10))
        writer._joined[name] = _Joined(assignment=assignment, is_written=True)
        spans.put(SimpleNamespace(name=name, checkpoint=Ts(10)))
    writer.reached()
