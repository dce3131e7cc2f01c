"""DDLs that bring rows which TiCDC does not send, as an owner carries them out on its tables."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from conf.settings import Changefeed, DeltaSink
from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import Stop
from coordination.model import TableName, Ts
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from sinks.control.progress import DROPPED
from sinks.control.warehouse import ControlTables
from sinks.ddl.partition_clauses import read_partitioning
from sinks.ddl.text.tokens import read_words
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.pause import set_paused
from sinks.storage.errors import StorageAway
from sinks.target.engine_port import TableHeld
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.changefeed.routes import Routes
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.control_rows import EndedSpan, RenamedSpans
from streaming.owner.ddl.ddl_scan import DdlScanResult, pending_ddls
from streaming.owner.ddl.known_tables import KnownTables
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.refusal import DdlNotSupported
from streaming.owner.ddl.steps import DdlEvent, DdlStep
from streaming.owner.ddl_run import HELD_S, carry_out
from streaming.owner.progress_rows import first_progress
from streaming.stream.lasting_warnings import LastingWarnings
from tests.own_lines import own_lines
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.ddls import orphans
from tests.sinks.merge_on_write.orders import NAME, Changes, rows_of, write
from tests.streaming.owner.test_schema_rows import Owner

OTHER = TableName(NAME.schema, "other")
PARTS = TableName(NAME.schema, "parts")


class Ground:
    """An owner that takes up by itself what has run."""

    def __init__(self, warehouse: Path, **settings: Any) -> None:
        self.warehouse = warehouse
        self.owner = Owner(warehouse)
        self._changefeed = Changefeed(
            id="shop",
            start_ts=Ts(1),
            source=KafkaSettings(
                brokers=("h:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=1
            ),
            sink=DeltaSink(warehouse=str(warehouse)),
            **settings,
        )

    def put(self, name: TableName, limit: int, changes: Changes) -> None:
        target = self.owner.spans[name].target
        assert target is not None
        engine = MergeOnWriteEngine({}, keeps_up=False)
        engine.apply(replace(write(target.uri, limit, changes), target=target))
        engine.close()

    def partitioned(self) -> None:
        """Another table, like the first one and cut in two at 10."""
        bounds = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE"
        first = self.owner.spans[NAME].target
        assert first is not None
        cut = read_partitioning(read_words(f"PARTITION BY RANGE (id) ({bounds})"))
        query = "CREATE TABLE parts …"
        made = DdlEvent(commit_ts=Ts(6), place=0, name=PARTS, ddl_type="", query=query)
        self.owner.spans.create(
            PARTS, replace(first.schema, partitioning=cut), made.identity, Ts(6)
        )
        self.owner.rows.add([(self.owner.spans[PARTS], {})])
        self.put(PARTS, 50, {7: "x", 20: "y"})

    def rewind(self, ts: int) -> None:
        owner = self.owner
        row = replace(owner.rows.row, incarnation=2, state="rewinding", checkpoint_ts=ts)
        progress = {
            name: first_progress(of, owner.rows.row, {}) for name, of in owner.spans.items()
        }
        owner.spans = TableRegistry(self._changefeed.sink, row)
        owner.rows.spans = owner.rows.state.tables = owner.spans
        owner.spans.resume(progress)

    def plan(self, name: TableName, ts: int, query: str) -> DdlPlan:
        event = DdlEvent(commit_ts=Ts(ts), place=ts, name=name, ddl_type="", query=query)
        spans = self.owner.spans
        return plan(
            in_order([event]),
            KnownTables(
                schemas=spans.schemas(),
                last_ddls=spans.last_ddls(),
                shaped={each: table.shape_ts for each, table in spans.items()},
                defined=spans.defined,
                unmade={},
                forms=spans.forms,
            ),
            checkpoint=Ts(1),
            start_ts=Ts(1),
            limit=Ts(9999),
            routes=Routes((), self._changefeed.filter),
            orders={},
            failed={},
        )

    def run(self, name: TableName, ts: int, query: str) -> DdlPlan:
        """Carried out twice where it is at all, as by an owner who died before it was noted."""
        planned = self.plan(name, ts, query)
        if planned.runs is not None:
            ran = [self.carried_out(planned.runs, threading.Event()) for _ in range(2)][-1]
            for done in ran:
                self._take(done)
        return planned

    def carried_out(self, step: DdlStep, closing: threading.Event) -> list[Any]:
        context = SimpleNamespace(
            changefeed=self._changefeed,
            trust=SimpleNamespace(check=lambda: None),
            watch=lambda what: Watchdog(SystemClock()).watch(what, 60.0),
            tables=ControlTables.of(self._changefeed.sink),
            concerns=LastingWarnings(),
        )
        ran: list[Any] = []
        reader = cast(Any, SimpleNamespace(ran=ran.append))
        carry_out(cast(Any, context), self.owner.rows, reader, step, closing)
        return ran

    def _take(self, done: ReplicatedTable | EndedSpan | RenamedSpans) -> None:
        spans, rows = self.owner.spans, self.owner.rows
        if isinstance(done, ReplicatedTable):
            spans.put(done)
        elif isinstance(done, EndedSpan):
            spans.end(done.table.name, done.at_ts)
            rows.end(done)
        else:
            rows.add([(each, {}) for each in done.made])
            for each in done.made:
                spans.put(each)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    made.owner.make()
    made.put(NAME, 50, {1: "a", 2: "b"})
    return made


@pytest.fixture
def removed(ground: Ground) -> Ground:
    """Rows of a partition, and then the partition, with another column in between; then a rewind
    to below all that, and the first of them again."""
    ground.partitioned()
    ground.run(PARTS, 100, "ALTER TABLE `parts` TRUNCATE PARTITION `p0`")
    ground.put(PARTS, 150, {8: "z"})
    ground.run(PARTS, 200, "ALTER TABLE `parts` ADD COLUMN `n` INT")
    ground.run(PARTS, 300, "ALTER TABLE `parts` DROP PARTITION `p0`")
    assert table(ground, "parts") == {20: "y"}
    ground.rewind(50)
    ground.put(PARTS, 70, {7: "x"})
    return ground


def test_partitions_go_again_after_a_rewind(removed: Ground) -> None:
    removed.run(PARTS, 100, "ALTER TABLE `parts` TRUNCATE PARTITION `p0`")
    assert table(removed, "parts") == {20: "y"}
    removed.put(PARTS, 150, {8: "z"})
    removed.run(PARTS, 200, "ALTER TABLE `parts` ADD COLUMN `n` INT")
    removed.run(PARTS, 300, "ALTER TABLE `parts` DROP PARTITION `p0`")
    assert table(removed, "parts") == {20: "y"}


def test_partitions_of_then_that_nobody_knows_are_refused(removed: Ground, tmp_path: Path) -> None:
    known = DeltaTable(str(tmp_path / "_tidelake" / "schemas"))
    known.delete("table_name = 'parts' AND commit_ts < 100")
    with pytest.raises(DdlNotSupported, match="rewound to below later DDLs") as error:
        removed.run(PARTS, 100, "ALTER TABLE `parts` TRUNCATE PARTITION `p0`")
    assert "\n" not in str(error.value)
    assert table(removed, "parts") == {7: "x", 20: "y"}


def table(ground: Ground, name: str) -> dict[int, str | None]:
    return dict(rows_of(f"{ground.warehouse}/{NAME.schema}/{name}"))


def test_a_dropped_table_is_a_span_again(ground: Ground, tmp_path: Path) -> None:
    ground.run(NAME, 100, "DROP TABLE `orders`")
    planned = ground.plan(NAME, 200, "RECOVER TABLE `orders`")
    known = DdlScanResult(position_ts=Ts(300), made=(), removed=(), plan=planned)
    (pending,) = pending_ddls(known, ground.owner.spans, ground.owner.rows.row.incarnation)
    assert (pending.commit_ts, pending.table_ids) == (199, None), "all tables wait for it"
    ground.run(NAME, 200, "RECOVER TABLE `orders`")
    span = ground.owner.spans[NAME]
    assert (span.checkpoint, span.created_ts, span.state) == (200, 200, "replicating")
    assert ground.plan(NAME, 200, "RECOVER TABLE `orders`").blocked is None
    ground.put(NAME, 250, {2: None, 3: "c"})
    assert table(ground, NAME.table) == {1: "a", 3: "c"}
    heir = Owner(tmp_path)
    assert heir.spans[NAME].checkpoint >= 200


def test_a_dropped_table_comes_back_under_another_name(ground: Ground) -> None:
    ground.run(NAME, 100, "DROP TABLE `orders`")
    ground.run(OTHER, 200, "FLASHBACK TABLE `orders` TO `other`")
    assert (NAME in ground.owner.spans, ground.owner.rows.progress[NAME].state) == (False, DROPPED)
    ground.put(OTHER, 250, {2: None})
    assert table(ground, "other") == {1: "a"}


def test_rows_that_were_not_kept_stop_it_in_one_line(tmp_path: Path) -> None:
    ground = Ground(tmp_path, on_drop="drop")
    ground.owner.make()
    ground.run(NAME, 100, "DROP TABLE `orders`")
    with pytest.raises(DdlNotSupported, match=r"were not kept .*CREATE TABLE makes it") as refused:
        ground.run(NAME, 200, "RECOVER TABLE `orders`")
    assert "\n" not in str(refused.value)
    ground = Ground(tmp_path / "empty")
    with pytest.raises(DdlNotSupported, match=r"no DROP TABLE of .* was carried out"):
        ground.run(NAME, 200, "RECOVER TABLE `orders`")


def test_a_partition_and_a_table_change_rows(ground: Ground) -> None:
    ground.partitioned()
    query = "ALTER TABLE `shop`.`parts` EXCHANGE PARTITION `p1` WITH TABLE `shop`.`orders`"
    planned = ground.plan(PARTS, 100, query)
    assert planned.runs is not None, planned.why
    assert (planned.limit, set(planned.runs.names)) == (99, {PARTS, NAME})
    with pytest.raises(DdlNotSupported, match="are not in partition p1"):
        ground.run(PARTS, 100, query)
    query = query.replace("p1", "p0")
    ground.run(PARTS, 100, query)
    assert (table(ground, "parts"), table(ground, NAME.table)) == (
        {1: "a", 2: "b", 20: "y"},
        {7: "x"},
    )
    assert {ground.owner.spans[name].last_ddl_ts for name in (PARTS, NAME)} == {100}
    assert ground.plan(PARTS, 100, query).blocked is None
    ground.put(NAME, 150, {8: "later"})
    assert table(ground, NAME.table) == {7: "x", 8: "later"}


def test_rows_that_are_written_anew_when_it_is_asked_to_stop(ground: Ground) -> None:
    """That is no refusal of the DDL: whoever comes next begins it again."""
    query = "ALTER TABLE `orders` ADD COLUMN `n` INT DEFAULT 7"
    step = ground.plan(NAME, 100, query).runs
    assert step is not None
    closing = threading.Event()
    closing.set()
    uri = f"{ground.warehouse}/{NAME.schema}/{NAME.table}"
    before = DeltaTable(uri).version()
    assert ground.carried_out(step, closing) == []
    assert (DeltaTable(uri).version(), orphans(uri)) == (before, set())
    ground.run(NAME, 100, query)
    assert DeltaTable(uri).version() == before + 1
    assert {row["n"] for row in read_rows(uri)} == {7}


def test_a_table_may_be_paused_for_days_while_storage_is_away_now_and_then(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ground.plan(NAME, 100, "TRUNCATE TABLE `orders`").runs
    assert step is not None
    answers = iter([StorageAway("away"), StorageAway("away"), TableHeld("paused")] * 10)
    waits: list[float] = []

    def alter(*_: object) -> object:
        if (answer := next(answers, None)) is None:
            raise Stop("that is enough")
        raise answer

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    monkeypatch.setattr(MergeOnWriteEngine, "alter", alter)
    assert ground.carried_out(step, Closing()) == []
    assert waits == [0.5, 1.0, HELD_S] * 10


def test_a_ddl_that_waits_for_a_paused_table_says_so_until_it_runs(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but a checkpoint that stood still told of it."""
    step = ground.plan(NAME, 100, "TRUNCATE TABLE `orders`").runs
    assert step is not None
    uri = f"{ground.warehouse}/{NAME.schema}/{NAME.table}"
    set_paused(uri, {}, paused=True)
    caplog.set_level(logging.INFO)

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
            set_paused(uri, {}, paused=False)
            return False

    assert len(ground.carried_out(step, Closing())) == 1
    said = f"a DDL waits: table {NAME} is paused: `tidelake table resume` lets it go on"
    lines = own_lines(caplog)
    assert said in lines, "it is a concern, which the changefeed's row shows"
    assert f"it is over: {said}" in lines
