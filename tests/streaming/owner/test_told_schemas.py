"""Rows whose schema's version was not told wait. What tells it is read again after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from streaming.changefeed.schema_from_rows import WholeRow
from streaming.owner.ddl import told_schemas
from streaming.protocols.contract import Messages, Wanted
from streaming.protocols.simple.decoder import decode
from streaming.source.positions import Positions
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.read import Read
from tests.streaming.owner.test_ddl_reader import PARTITIONS, STEP, Ground
from tests.streaming.protocols.simple.reading import bootstrap, column, ddl, row, table

T = TableName("shop", "t")
FIRST, SECOND = PARTITIONS


def read_of(begin: int, values: Sequence[bytes], wanted: Wanted) -> Read:
    """Messages of the first partition, from a position on."""
    positions = pa.array(range(begin, begin + len(values)), pa.int64())
    chunk = Messages(part=FIRST, positions=positions, values=pa.array(values, pa.binary()))
    end = {FIRST: begin + len(values), SECOND: 0}
    return Read(
        begin={FIRST: begin},
        end=end,
        position=end,
        watermarks=Watermarks(parts=frozenset(PARTITIONS)),
        blocks=tuple(decode(chunk, wanted)),
        messages=len(values),
        rows_wait=False,
        job_ms=0.0,
    )


class Topic(Ground):
    """Messages of one partition, read three at a time."""

    def __init__(self, values: Sequence[bytes] = (), *, has_end: bool = False) -> None:
        super().__init__()
        self.values = list(values)
        self.concerns: LastingWarnings = self.reader._context.concerns
        source: Any = SimpleNamespace(
            has_end=has_end, ends=lambda _: {FIRST: len(self.values)}, close=lambda: None
        )
        self.reader._context.new_source = lambda: source  # type: ignore[method-assign]

    def begin(self, at: int = 0) -> None:
        here = {FIRST: at, SECOND: 0}
        self.reader.submit(here)
        self.reader.catch_up(here, STEP)
        self.take(at)

    def take(self, at: int = 0) -> None:
        for begin in range(at, len(self.values), 3):
            self.reader.take(read_of(begin, self.values[begin : begin + 3], {}))
            self.position = {FIRST: min(begin + 3, len(self.values)), SECOND: 0}

    def read_between(self, begin: Positions, end: Positions, wanted: Wanted) -> Iterator[Read]:
        self.asked.append(begin)
        for at in range(begin[FIRST], end.get(FIRST, 0), 3):
            yield read_of(at, self.values[at : min(at + 3, end[FIRST])], wanted)

    def told(self) -> WholeRow:
        found = self.spans.told[T]
        assert isinstance(found, WholeRow)
        return found


def other(ts: int) -> bytes:
    return row(ts=ts, table="o", schemaVersion=1)


def of_other() -> bytes:
    return bootstrap(tableSchema=table(1, "o"))


def test_a_table_is_what_its_version_says() -> None:
    topic = Topic([bootstrap(), row(ts=11), row("UPDATE", 12)])
    topic.begin()
    (made,) = topic.resolve().made
    assert made.table.name == T
    assert topic.told().types == {"id": "bigint", "v": "varchar(9)"}
    assert (topic.told().key, topic.told().commit_ts) == (("id",), 12)


def test_a_column_that_no_whole_row_has_is_virtual() -> None:
    columns = [column(name, "int") for name in ("id", "v", "w")]
    topic = Topic([bootstrap(tableSchema=table(columns=columns)), row(ts=11)])
    topic.begin()
    topic.resolve()
    schema = topic.told().schema
    assert schema is not None
    assert [each.name for each in schema.delivered] == ["id", "v"]


def test_cut_rows_and_deletes_tell_no_column() -> None:
    cut = row(ts=11, data={"id": "1"}, handleKeyOnly=True)
    topic = Topic([bootstrap(), cut, row("DELETE", 12, old={"id": "1"})])
    topic.begin()
    topic.resolve()
    assert [*topic.told().types] == ["id", "v"]


def test_rows_of_an_unknown_version_hold_all_below_them_until_it_is_told() -> None:
    topic = Topic([of_other(), other(10), row(ts=20), row(ts=21), other(30)])
    topic.begin()
    known = topic.resolve()
    assert ({each.table.name.table for each in known.made}, known.position_ts) == ({"o"}, 19)
    topic.reader.apply_due()
    assert topic.known[-1].position_ts == 19

    topic.values += [bootstrap(tableSchema=table(6)), other(40), other(41)]
    topic.take(5)
    topic.reader.apply_due()
    assert topic.known[-1].position_ts == 19, "another version"

    topic.values += [bootstrap()]
    topic.take(8)
    known = topic.resolve()
    assert ([each.table.name for each in known.made], known.position_ts) == ([T], 1_000)
    assert not topic.reader._awaited


def test_the_schema_before_a_ddl_is_told_with_it() -> None:
    told = ddl(25, "ALTER TABLE t ADD w INT", tableSchema=table(24), preTableSchema=table(7))
    topic = Topic([row(ts=20), told, row(ts=26, schemaVersion=24)])
    topic.begin()
    topic.resolve()
    assert topic.told().version == 7


def test_what_told_the_version_is_read_again_after_a_restart() -> None:
    """The low water is that of the BOOTSTRAP, which came before the first row."""
    values = [of_other(), bootstrap(), other(10), other(11), other(12), other(13), row(ts=2_000)]
    topic = Topic(values)
    topic.begin()
    topic.resolve()
    assert T not in topic.spans
    assert topic.reader.low_water[FIRST] == 0

    again = Topic(values)
    again.begin(topic.reader.low_water[FIRST])
    again.resolved = Ts(3_000)
    again.reader.apply_due()
    assert again.told().version == 7


def test_a_table_without_rows_holds_the_low_water_for_a_while_alone() -> None:
    topic = Topic([bootstrap(), other(10), of_other()])
    topic.begin()
    topic.resolve()
    assert topic.reader.low_water[FIRST] == 0
    topic.resolved = Ts(400_000 << TSO_LOGICAL_BITS)
    topic.reader.apply_due()
    assert topic.reader.low_water[FIRST] == 3


def test_a_long_wait_is_a_concern_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([row(ts=20)])
    topic.begin()
    topic.resolved = Ts(1_000)
    topic.reader.apply_due()
    assert topic.concerns.first is None
    monkeypatch.setattr(told_schemas, "PATIENCE_S", -1.0)
    topic.reader.apply_due()
    concern = topic.concerns.first or ""
    assert "rows of table shop.t from commit-ts 20 on have schema version 7" in concern
    assert "--schema-file" in concern
    topic.values += [bootstrap()]
    topic.take(1)
    assert topic.concerns.first is None


def test_nothing_waits_at_the_end_of_a_source() -> None:
    topic = Topic([row(ts=20)], has_end=True)
    topic.begin()
    topic.resolved = Ts(1_000)
    with pytest.raises(TidelakeError, match=r"table shop\.t .* and the source ends: give"):
        topic.reader.apply_due()
