"""What an owner holds of what it reads: DDLs and where rows begin, never the rows."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from conf.settings import FilterSettings
from coordination.errors import TryAgain
from coordination.model import TableName, Ts
from coordination.trust.clock import SystemClock
from coordination.trust.watchdog import Watchdog
from sinks.control.blocked_ddls import BlockedDdl
from sinks.types.table_schema import schema_from_mysql_types
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.changefeed.routes import Routes
from streaming.changefeed.schema_file import Definitions, read_definitions
from streaming.changefeed.schema_from_rows import Untold, WholeRow
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.control_rows import EndedSpan
from streaming.owner.ddl.unplanned import in_pairs
from streaming.owner.ddl_reader import DdlReader, DdlScanResult
from streaming.protocols.contract import DDL_BODY, Block, Kind, Wanted, ipc
from streaming.source.positions import Positions
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.read import Read
from tests.streaming.apply.blocks import A, Row, block_of

PARTITIONS = "shop/0", "shop/1"
READS = 6
STEP = Watchdog(SystemClock()).watch("the reader", 60.0)


class Body(bytes):
    """Rows of a block; how many of them are in memory."""

    alive = 0
    most = 0

    def __new__(cls, of: bytes) -> Body:
        Body.alive += 1
        Body.most = max(Body.most, Body.alive)
        return super().__new__(cls, of)

    def __del__(self) -> None:
        Body.alive -= 1


def read_of(begin: Positions, end: Positions, *rows: Row, name: TableName = A) -> Read:
    """One block with these rows."""
    block = block_of(rows, name)
    return Read(
        begin=begin,
        end=end,
        position=dict(end),
        watermarks=Watermarks(parts=frozenset(PARTITIONS)),
        blocks=(replace(block, body=Body(block.body or b"")),),
        messages=1,
        rows_wait=False,
        job_ms=0.0,
    )


def ddl_at(ts: int, query: str, ddl_type: str = "ALTER") -> Block:
    fields = {"commit_ts": ts, "position": ts, "index": 0, "schema_name": A.schema}
    event = {**fields, "table_name": A.table, "ddl_type": ddl_type, "query": query}
    body = ipc(pa.Table.from_pylist([event], DDL_BODY))
    return Block(kind=Kind.DDL, part="shop/0", name=A, rows=1, body=body)


def row(at: int, part: str = "shop/0", **types: str) -> Row:
    types = {"id": "bigint", **types}
    return Row(
        op="INSERT",
        ts=100 + at,
        data=dict.fromkeys(types, "1"),
        types=types,
        part=part,
        position=at,
    )


class _Made(dict[TableName, Any]):
    """Tables, and what told their columns."""

    def __init__(self) -> None:
        self.told: dict[TableName, Any] = {}
        self.made_elsewhere: dict[TableName, Any] = {}
        self.defined = Definitions()
        self.forms = WriteModes()
        self.ended: dict[TableName, Ts] = {}
        self.at = dict[TableName, Any]().get

    def put(self, table: Any) -> None:
        self[table.name] = table

    def opened(self, name: TableName, row: Any, at_least: Ts) -> Any:  # noqa: ARG002
        return self.made_elsewhere.get(name, self[name])

    def schemas(self) -> dict[TableName, Any]:
        return {name: table.target for name, table in self.items()}

    def last_ddls(self) -> dict[TableName, Ts]:
        return {**{name: table.created_ts for name, table in self.items()}, **self.ended}

    def end(self, name: TableName, at_ts: Ts) -> None:
        self.pop(name, None)
        self.ended[name] = at_ts

    def make_from_rows(self, name: TableName, told: Any, start: Ts, *_: Any) -> None:
        self.told[name] = told
        schema = self.defined.schema(name)
        if schema is None and isinstance(told, WholeRow):
            schema, _ = schema_from_mysql_types(told.types, told.key)
        shape_ts = Ts(0 if isinstance(told, Untold) or name in self.defined else told.commit_ts)
        of: Any = schema
        self[name] = ReplicatedTable(name=name, checkpoint=start, target=of, shape_ts=shape_ts)

    def create(self, name: TableName, schema: Any, _: Any, start: Ts, **__: Any) -> None:
        self[name] = ReplicatedTable(name=name, checkpoint=start, target=schema)


class Ground:
    """A reader, and its stream: what lies between is read when it is asked for."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.position: Positions = dict.fromkeys(PARTITIONS, 0)
        self.resolved = Ts(0)
        self.between: Sequence[tuple[Positions, Positions, Row]] = ()
        self.asked: list[Positions] = []
        self.known: list[DdlScanResult] = []
        self.failures: list[BaseException] = []
        self.spans = _Made()
        self.marks: list[tuple[TableName, Ts]] = []
        self.begun: list[TableName] = []
        self.storage_is_away = False
        told = {"add_messages": list, "place": str, "source": None}
        nothing: Any = SimpleNamespace(check=lambda: None, **told)
        rows: Any = SimpleNamespace(
            spans=self.spans,
            dead_letters=nothing,
            row=SimpleNamespace(start_ts=0, checkpoint_ts=0, incarnation=1),
            progress={A: SimpleNamespace()},
            end=self.end,
            add=self.add,
        )
        same: Any = dict.fromkeys(("trust", "source", "changefeed"), nothing)
        same |= {"routes": Routes((), FilterSettings()), "concerns": LastingWarnings()}
        context: Any = SimpleNamespace(stream=self, **same)
        self.blocked: Any = SimpleNamespace(orders={}, failed={})
        news: Any = {"on_known": self.known.append, "on_failed": self.failures.append}
        self.reader = DdlReader(context, rows, self.blocked, **news)

    def wake(self) -> None:
        pass

    def end(self, ended: EndedSpan) -> None:
        if self.storage_is_away:
            raise TryAgain("storage is away")
        self.marks.append((ended.table.name, ended.at_ts))

    def add(self, tables: Sequence[tuple[ReplicatedTable, Any]]) -> None:
        if self.storage_is_away:
            raise TryAgain("storage is away")
        self.begun += [table.name for table, _ in tables]

    def resolved_ts(self) -> Ts:
        return self.resolved

    def read_between(self, begin: Positions, _end: Positions, _wanted: Wanted) -> Iterator[Read]:
        self.asked.append(begin)
        return (read_of(*each) for each in self.between)

    def backlog(self) -> None:
        """Reads of the first partition, a row in each."""
        first, _ = PARTITIONS
        self.between = [({first: at}, {first: at + 1}, row(at)) for at in range(READS)]

    def resolve(self) -> DdlScanResult:
        self.resolved = Ts(1_000)
        self.reader.apply_due()
        assert not self.failures
        return self.known[-1]


@pytest.fixture
def ground() -> Ground:
    gc.collect()
    Body.alive = Body.most = 0
    return Ground()


def test_what_lies_before_is_held_read_by_read(ground: Ground) -> None:
    ground.backlog()
    ground.reader.submit(dict.fromkeys(PARTITIONS, READS))
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    assert 0 < Body.most <= 2  # one is asked for while the one before still has its name
    (made,) = ground.resolve().made
    assert made.low_water[PARTITIONS[0]] == 0


def test_no_read_of_the_stream_is_held_until_the_reader_has_caught_up(ground: Ground) -> None:
    first, second = PARTITIONS
    ground.reader.submit({first: READS, second: 0})
    for at in range(READS, 2 * READS):
        ground.reader.take(read_of({first: at}, {first: at + 1, second: 0}, row(at)))
    assert Body.alive == 0
    ground.resolved = Ts(1_000)
    ground.reader.apply_due()
    assert not ground.known, "nothing is known while a part is missing"

    ground.backlog()
    ground.reader.catch_up({first: 0, second: 0}, STEP)
    (made,) = ground.resolve().made
    assert made.low_water == {first: 0, second: 0}


def test_of_a_table_that_nobody_made_the_newest_whole_row_alone_is_held(ground: Ground) -> None:
    first, _ = PARTITIONS
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    ground.reader.take(read_of({first: 0}, dict.fromkeys(PARTITIONS, READS), row(0)))
    rows = [row(at, **({"w": "int"} if at == READS - 2 else {})) for at in range(READS)]
    rows[-2] = replace(rows[-2], ts=900)
    rows[0] = replace(rows[0], ts=1_001, data={"x": "1"}, types={"x": "int"})  # not resolved yet
    ground.between = [({first: at}, {first: at + 1}, each) for at, each in enumerate(rows)]

    (made,) = ground.resolve().made

    assert made.table.name == A
    assert ground.spans.told[A] == WholeRow({"id": "bigint", "w": "int"}, ("id",))
    assert 0 < Body.most <= 2


def test_rows_of_an_unknown_table_are_looked_for_in_every_partition_that_has_some(
    ground: Ground,
) -> None:
    """What was read beside the stream tells of the partitions alone that were read."""
    first, second = PARTITIONS
    ground.reader.submit({first: READS, second: 0})
    ground.backlog()
    ground.reader.catch_up({first: 0}, STEP)
    later = row(READS, part="shop/1")
    ground.reader.take(read_of({second: 3}, {first: READS, second: 4}, later))
    (made,) = ground.resolve().made
    assert made.low_water == ground.asked[-1] == {first: 0, second: 3}


class Altered(Ground):
    """A table that nobody created, with these rows, all resolved, and DDLs between them."""

    def __init__(self, rows: Sequence[Row], *ddls: Block, start: int = 0, file: str = "") -> None:
        super().__init__()
        self.rows = rows
        self.spans.defined = read_definitions(file, lambda _: True)
        self.reader._rows.row = SimpleNamespace(start_ts=start, checkpoint_ts=start)  # type: ignore[assignment]
        self.reader._start_ts = self.reader._unplanned.checkpoint_ts = Ts(start)
        here = dict.fromkeys(PARTITIONS, 0)
        self.reader.submit(here)
        self.reader.catch_up(here, STEP)
        first, _ = PARTITIONS
        for each in rows:
            self.reader.take(read_of({first: 0}, here, each))
        empty = read_of({first: 0}, here, *rows[:1])
        self.reader.take(replace(empty, blocks=ddls))

    def read_between(self, begin: Positions, end: Positions, wanted: Wanted) -> Iterator[Read]:
        self.asked.append(begin)
        rows = [each for each in self.rows if A in wanted and each.ts > wanted[A].above_ts]
        return (read_of(begin, end, each) for each in rows)


OLD, NEW = row(10), row(30, c="int")
ADD = ddl_at(120, "ALTER TABLE `a` ADD COLUMN `c` INT DEFAULT 5")


def test_a_ddl_of_a_table_that_nobody_made_waits_until_the_rows_below_it_tell_it() -> None:
    """Old rows show the default of an added column, and a TRUNCATE removes them."""
    known = Altered([OLD, NEW], ADD).resolve()
    assert known.plan.limit == 119
    assert known.plan.runs is not None
    assert known.plan.runs.change is not None
    assert known.plan.runs.change.fills == {"c": "5"}
    assert [made.table.name for made in known.made] == [A]

    known = Altered([OLD, NEW], ddl_at(120, "TRUNCATE TABLE `a`", "TRUNCATE")).resolve()
    assert known.plan.runs is not None
    assert known.plan.runs.empties


def test_a_ddl_that_waits_for_an_operator_is_kept_and_planned_anew_at_a_word() -> None:
    ground = Altered([OLD, NEW], ddl_at(115, "ALTER TABLE `a` FROBNICATE"), ADD)
    (held,) = ground.resolve().plan.held
    assert (held.place, ground.known[-1].plan.limit) == ((A, 115), 1_000)
    word = BlockedDdl(
        changefeed_id="shop",
        schema_name=A.schema,
        table_name=A.table,
        commit_ts=115,
        query="",
        reason="",
        action="skip",
    )
    ground.blocked.orders = {word.place: word}
    ground.reader.ran(None)
    plan = ground.resolve().plan
    assert (plan.held, plan.runs is not None and plan.runs.is_skipped) == ((), True)


def test_a_ddl_below_all_rows_is_in_what_they_tell() -> None:
    ground = Altered([NEW], ADD)
    known = ground.resolve()
    assert (known.plan.limit, known.plan.blocked) == (1_000, None)
    assert ground.spans.told[A] == WholeRow({"id": "bigint", "c": "int"}, ("id",))


def test_rows_below_the_start_are_not_what_a_ddl_waits_for() -> None:
    """They may be of a shape that another DDL, below the start too, has changed."""
    ground = Altered([OLD, NEW], ADD, start=115)
    known = ground.resolve()
    assert known.plan.blocked is None
    assert ground.spans.told[A] == WholeRow({"id": "bigint", "c": "int"}, ("id",))


def test_rows_that_do_not_tell_it_are_not_waited_for() -> None:
    ground = Altered([replace(OLD, op="DELETE"), NEW], ADD)
    known = ground.resolve()
    assert known.plan.blocked is None
    assert list(ground.spans.told[A].types) == ["id", "c"]


FILE = "CREATE TABLE `{}`.`{}` (`id` BIGINT PRIMARY KEY, `d` DECIMAL(9,2));"


def test_a_table_of_the_schema_file_is_made_for_its_rows_and_for_its_ddls() -> None:
    file = FILE.format(A.schema, A.table)
    ground = Altered([row(10, d="decimal"), NEW], ADD, file=file)
    known = ground.resolve()
    assert known.plan.runs is not None
    assert known.plan.runs.change is not None
    assert [each.name for each in known.plan.runs.change.after.columns] == ["id", "d", "c"]
    assert ground.spans.told[A] == WholeRow({"id": "bigint", "d": "decimal"}, ("id",))

    alone = Altered([NEW], ADD, file=file)  # no row below the DDL
    known = alone.resolve()
    assert (known.plan.limit, [made.table.name for made in known.made]) == (119, [A])
    assert alone.spans.told[A] is Untold.NOT_WRITTEN


def test_a_create_table_in_the_stream_wins_over_the_schema_file() -> None:
    ground = Altered([NEW], file=FILE.format(A.schema, A.table))
    create = ddl_at(115, "CREATE TABLE `a` (`id` BIGINT PRIMARY KEY, `c` INT)", "CREATE")
    first, _ = PARTITIONS
    empty = read_of({first: 0}, {first: 0}, NEW)
    ground.reader.take(replace(empty, blocks=(create,)))
    ground.resolve()
    assert ground.spans.told == {}
    assert [column.name for column in ground.spans[A].target.columns] == ["id", "c"]


def test_rows_below_the_start_are_not_held_against_the_schema_file() -> None:
    ground = Altered([OLD], start=115, file=FILE.format(A.schema, A.table))
    ground.resolve()
    assert ground.spans.told[A] is Untold.NOT_WRITTEN


def test_a_table_that_its_writer_has_made_since_gets_its_ddls() -> None:
    """It was registered when only DELETEs of it had come: what it is nobody knew."""
    ground = Altered([NEW], ADD)
    rest = {"checkpoint": Ts(0), "created_ts": 0, "last_ddl_ts": 0, "shape_ts": 0, "lacks": ""}
    ground.spans[A] = SimpleNamespace(name=A, target=None, is_settled=False, **rest)
    schema, _ = schema_from_mysql_types({"id": "bigint"}, ["id"])
    made = SimpleNamespace(name=A, target=schema, is_settled=True, **rest)
    ground.spans.made_elsewhere[A] = made
    known = ground.resolve()
    assert known.plan.runs is not None
    assert known.plan.runs.change is not None

    unmade = Altered([NEW], ADD)
    unmade.spans[A] = SimpleNamespace(name=A, target=None, is_settled=False, **rest)
    assert unmade.resolve().plan.blocked is None
    unregistered = Altered([NEW], ADD)
    unregistered.spans[A] = unmade.spans[A]
    unregistered.reader._rows.progress = {}
    assert unregistered.resolve().plan.blocked is None


def test_of_two_reads_that_wait_the_earlier_is_read_again_until_the_later_is_due() -> None:
    waiting = [(Ts(9), {"t/0": 1}), (Ts(7), {"t/0": 2}), (Ts(8), {"t/0": 3})]
    assert in_pairs(waiting) == [(9, {"t/0": 1}), (8, {"t/0": 3})]
