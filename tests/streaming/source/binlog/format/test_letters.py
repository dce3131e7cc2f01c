"""Dead letters of a binlog: each row of each recorded event by itself, decoded again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.contract import LETTER_HEAD, Block, Kind, Messages
from streaming.source.binlog.format import blocks as format_blocks
from streaming.source.binlog.format import letters
from streaming.source.binlog.format.events import event_at
from streaming.source.binlog.format.letters import (
    CUT_BYTES,
    MAGIC,
    NOT_ALONE,
    letter_blocks,
    letters_of,
)
from streaming.source.binlog.format.rows.letter_head import LetterHead
from tests.streaming.source.binlog.binlogs import Binlog, blocks_of, made_event, wanted
from tests.streaming.source.binlog.recorded import NAMES, TABLES, binlog

Row = dict[str, Any]


def decoded(values: Sequence[bytes | None], *names: str) -> list[Block]:
    messages = Messages(
        part="", positions=pa.array(range(len(values))), values=pa.array(values, pa.binary())
    )
    return list(letter_blocks(messages, wanted(*names)))


def rows_with_letters(log: Binlog, name: str) -> Iterator[tuple[Row, bytes]]:
    """Each row of a table as the binlog tells it, and its letter."""
    for block in blocks_of(log, name):
        if block.name != TableName(*name.split(".")):
            continue
        assert block.kind is Kind.ROW
        body = block.table()
        head = body.schema.metadata[LETTER_HEAD]
        rows = body.to_pylist()
        for position in sorted({row["position"] for row in rows}):
            here = [row for row in rows if row["position"] == position]
            at = position & ((1 << 40) - 1)
            size = int.from_bytes(log.data[at + 9 : at + 13], "little")
            event = log.data[at : at + size]
            made = letters_of(event, head, [(row["index"], row["commit_ts"]) for row in here])
            yield from zip(here, made, strict=True)


def plain(row: Row) -> Row:
    """Whether a cell is a text or a moment depends on the others in its block."""
    return {
        side: values and {name: str(value) for name, value in values.items()}
        for side, values in {"old": None, **row}.items()
        if side in ("data", "old")
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_the_same_from_its_letter(name: str) -> None:
    log, seen = binlog(name), 0
    for table in TABLES:
        rows, made = zip(*rows_with_letters(log, table), strict=True)
        found = [row for block in decoded(made, table) for row in block.table().to_pylist()]
        found.sort(key=lambda row: row["position"])
        assert [row["position"] for row in found] == [*range(len(rows))]
        for expected, row in zip(rows, found, strict=True):
            assert (row["op"], row["commit_ts"]) == (expected["op"], expected["commit_ts"])
            assert (row["index"], plain(row)) == (0, plain(expected))
        seen += len(rows)
        by_itself = [block for each in made for block in decoded([each], table)]
        assert {(block.kind, block.rows) for block in by_itself} == {(Kind.ROW, 1)}
    assert seen > 20


@pytest.mark.parametrize("name", NAMES)
def test_no_change_of_a_letters_bytes_is_an_exception(name: str) -> None:
    dice = random.Random(name)
    made = [each for _, each in rows_with_letters(binlog(name), "d.wide")]
    values: list[bytes | None] = [None, b"", MAGIC, MAGIC + b"{}\n", MAGIC + b"[]\nx"]
    for _ in range(300):
        value = bytearray(dice.choice(made))
        at = dice.randrange(len(MAGIC), len(value))
        kind = dice.randrange(4)
        if kind == 0:
            value[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del value[at:]
        elif kind == 2:
            del value[at : at + dice.randrange(1, 40)]
        else:
            value[at:at] = dice.randbytes(3)
        values.append(bytes(value))
    for some in (values, *([each] for each in values)):
        told = [
            row["position"]
            for block in decoded(some, "d.wide")
            for row in (
                [{"position": block.first}] if block.body is None else block.table().to_pylist()
            )
        ]
        assert {*range(len(some))} >= {*told}
    refused = decoded(values[:5], "d.wide")
    assert [block.kind for block in refused] == [Kind.BAD]
    assert {*refused[0].table()["error_message"].to_pylist()} == {NOT_ALONE}


def test_a_large_row_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_BYTES", 900)
    made = [each for _, each in rows_with_letters(binlog(NAMES[0]), "d.wide")]
    told = [
        (row["position"], row["error_message"])
        for block in decoded(made, "d.wide")
        if block.kind is Kind.BAD
        for row in block.table().to_pylist()
    ]
    assert told
    assert len(told) < len(made)
    for number, message in told:
        assert "bytes, and a dead letter keeps 900 at most: rewind to below it" in message
        assert len(made[number]) < CUT_BYTES + 5_000


def test_a_row_that_is_not_there_gets_its_event_as_it_is() -> None:
    head = LetterHead(b"", {}, is_mariadb=True, checksum=True).to_json()
    event = made_event(30, b"garbage")
    assert letters_of(event, head, [(0, 5)]) == [event]
    assert event_at(event, 0, checksum=True).kind == 30
    torn = letters_of(event[:-3], head, [(0, 5), (7, 5)])
    assert torn == [event[:-3]] * 2


def test_of_a_large_event_that_means_nothing_the_beginning_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(format_blocks, "BAD_BYTES", 20)
    event = bytearray(made_event(30, bytes(50)))
    event[-1] ^= 1  # of its CRC32
    slice_ = format_blocks.Slice(
        data=bytes(event),
        at=np.zeros(1, np.int64),
        position=np.ones(1, np.int64),
        commit_ts=np.ones(1, np.int64),
        checksum=True,
        is_mariadb=True,
        charsets={},
    )
    (block,) = format_blocks.row_blocks(slice_, "0", {})
    (row,) = block.table().to_pylist()
    assert row["value"] == event[:20]
    assert row["error_message"].endswith(f"(its first 20 bytes of {len(event)} are kept)")
