"""Recorded binlogs of real servers, for machines that have none."""

from __future__ import annotations

import numpy as np
import pytest

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE
from streaming.source.binlog.format.blocks import row_blocks
from streaming.source.binlog.format.control.transactions import GroupKind
from streaming.source.binlog.format.events import joined
from streaming.source.binlog.format.type_codes import EventType
from tests.streaming.source.binlog.binlogs import blocks_of, rows_by_place, wanted
from tests.streaming.source.binlog.recorded import NAMES, TABLES, binlog, shown, told_rows


@pytest.mark.parametrize("name", NAMES)
def test_the_blocks_are_as_when_they_were_recorded(name: str):
    assert shown(blocks_of(binlog(name), *TABLES)) == told_rows(name)


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_where_a_slice_is_cut(name: str):
    """Behind any event of a transaction, with the maps that hold there; MySQL's payloads whole."""
    whole = binlog(name).slice()
    raw = [whole.data[a:b] for a, b in zip(whole.at, [*whole.at[1:], len(whole.data)], strict=True)]
    expected = rows_by_place(row_blocks(whole, "0", wanted(*TABLES)))
    for cut in range(1, len(raw)):
        found = []
        for begin, end, maps in ((0, cut, ()), (cut, len(raw), held_before(raw, cut))):
            data, at = joined(raw[begin:end])
            part = type(whole)(
                data=data,
                at=at,
                position=whole.position[begin:end],
                commit_ts=whole.commit_ts[begin:end],
                maps=maps,
                checksum=True,
                is_mariadb=whole.is_mariadb,
                charsets=whole.charsets,
            )
            found += rows_by_place(row_blocks(part, "0", wanted(*TABLES)))
        assert sorted(found, key=str) == sorted(expected, key=str), cut


def held_before(raw: list[bytes], cut: int) -> tuple[bytes, ...]:
    """What a driver keeps: the maps since the last statement's end."""
    maps: list[bytes] = []
    for event in raw[:cut]:
        kind = event[4]
        if kind == EventType.TABLE_MAP:
            maps.append(event)
        elif (kind in range(23, 33) or kind in range(166, 169)) and event[19 + 6] & 1:
            maps = []
    return tuple(maps)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_that_is_not_wanted_is_counted(name: str):
    """By its events; without a body."""
    blocks = blocks_of(binlog(name), "d.narrow")
    others = [block for block in blocks if block.name != TableName("d", "narrow")]
    assert {str(block.name) for block in others} == {"d.wide", "d.odd"}
    assert all(block.body is None and block.rows for block in others)
    assert all(block.min_ts and block.message_bytes for block in others)


@pytest.mark.parametrize("name", NAMES)
def test_rows_at_or_below_above_ts_are_left_out(name: str):
    one = binlog(name)
    (table,) = wanted("d.narrow").items()
    for above_ts in range(15):
        given = {table[0]: type(table[1])(above_ts=above_ts, key=None)}  # type: ignore[arg-type]
        found = [b for b in row_blocks(one.slice(), "0", given) if b.name == table[0]]
        everything = [b for b in blocks_of(one, "d.narrow") if b.name == table[0]]
        expected = [ts for b in everything for ts in b.table()["commit_ts"].to_pylist()]
        told = [ts for b in found for ts in b.table()["commit_ts"].to_pylist()]
        assert told == [ts for ts in expected if ts > above_ts]


@pytest.mark.parametrize("name", NAMES)
def test_with_the_key_old_has_only_the_keys_that_changed(name: str):
    block = next(b for b in blocks_of(binlog(name), "d.narrow", key=("id",)) if b.body)
    assert block.key_changes == 2
    table = block.table()
    old = dict(zip(table["index"].to_pylist(), table["old"].to_pylist(), strict=True))
    assert [row for row in table["old"].to_pylist() if row] == [{"id": 1}, {"id": 2}]
    assert old


@pytest.mark.parametrize("name", NAMES)
def test_positions_and_indexes_tell_every_row_apart(name: str):
    blocks = [block for block in blocks_of(binlog(name), *TABLES) if block.body]
    places = [
        (block.name, *place)
        for block in blocks
        for place in zip(
            *(block.table()[c].to_pylist() for c in ("position", "index")), strict=True
        )
    ]
    assert len(set(places)) == len(places)
    for block in blocks:
        table = block.table()
        order = np.lexsort((table["index"].to_numpy(), table["position"].to_numpy()))
        assert (order == np.arange(len(table))).all()
        assert block.first == table["position"][0].as_py()
        assert block.last == table["position"][-1].as_py()


@pytest.mark.parametrize("name", NAMES)
def test_transactions(name: str):
    found = binlog(name).transactions()
    kinds = [GroupKind(kind) for kind in found.kind]
    assert kinds.count(GroupKind.STATEMENT) == 1
    assert set(kinds) == {GroupKind.ROWS, GroupKind.STATEMENT}
    assert len(found.statements) == 1
    assert (found.last >= found.first).all()
    assert (found.first[1:] > found.last[:-1]).all()
    assert NO_TABLE not in {block.name for block in blocks_of(binlog(name), *TABLES)}
