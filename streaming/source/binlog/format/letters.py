"""Dead letters of a binlog: the bytes of one row that stand for themselves, and what they mean.

    event + head of its block ──letters_of──► magic │ JSON, one line │ an event with this row alone
    letters ──letter_blocks (the decoder of every slice)──► blocks, as contract.Decoder has them

The JSON has the facts of `rows/letter_head.py` and the row's commit-ts. The event is neither
compressed nor ends in a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.protocols.contract import BAD_BODY, Block, Kind, Messages, Wanted, ipc
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.cells.layout import image_ends, layout_of
from streaming.source.binlog.format.events import HEADER_BYTES, Events, Offsets, events_of, joined
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.inflate import pieces
from streaming.source.binlog.format.rows.letter_head import LetterHead
from streaming.source.binlog.format.rows.row_events import (
    TableEvents,
    TableRows,
    image_begins,
    table_events,
    table_rows,
)
from streaming.source.binlog.format.table_map import FLAGS_BYTES, TABLE_ID_BYTES
from streaming.source.binlog.format.type_codes import EventType, RowsFlag

MAGIC: Final = b"tidelake binlog row\n"
MOST_BYTES: Final = 16 << 20  # of a row's event
CUT_BYTES: Final = 64 << 10  # of a larger one so many are kept
SLICE_BYTES: Final = 32 << 20  # of letters that are decoded at once
BAD_LETTER: Final = "bad-letter"  # the error class of what cannot be decoded
NOT_ALONE: Final = (
    "its bytes are no row of a binlog that stands for itself (the event is garbage): rewind to "
    "below it, or resolve it"
)


def letters_of(event: bytes, head: bytes, rows: Sequence[tuple[int, int]]) -> list[bytes]:
    """The letter of each of these rows (index, commit-ts) of an event, which is whole. A row that
    is not found there gets the event as it is, or its beginning."""
    facts = LetterHead.of(json.loads(head))
    told = replace(facts, checksum=False).told()
    alone = _alone(event, facts, {index for index, _ in rows})
    return [_letter(alone.get(index), {**told, "commit_ts": ts}, event) for index, ts in rows]


def _letter(alone: bytes | None, told: dict[str, Any], event: bytes) -> bytes:
    if alone is None:
        return event[:CUT_BYTES]
    if len(alone) > MOST_BYTES:
        told, alone = {**told, "cut_from": len(alone)}, alone[:CUT_BYTES]
    return b"".join((MAGIC, json.dumps(told).encode(), b"\n", alone))


def _alone(event: bytes, facts: LetterHead, wanted: set[int]) -> dict[int, bytes]:
    """By index the events that have one row each."""
    found = dict[int, bytes]()
    events, bad = events_of(event, np.zeros(1, np.int64), checksum=facts.checksum, checks_crc=True)
    faults: list[BadEvent] = [fault for _, _, fault in bad]
    held = {int.from_bytes(event[HEADER_BYTES:][:TABLE_ID_BYTES], "little"): facts.shape}
    indexes = np.array(sorted(wanted))
    try:
        for piece in pieces(events, lambda _, fault: faults.append(fault)):
            tables, _, held = table_events(piece, held, is_mariadb=facts.is_mariadb)
            for table in (each for each in tables if each.shape == facts.shape):
                for rows in table_rows(piece, table, is_mariadb=facts.is_mariadb)[0]:
                    found |= _each_alone(piece, table, rows, indexes)
    except (BadEvent, Refused):
        pass  # what has been decoded before does not come here
    return found


def _each_alone(
    events: Events, table: TableEvents, rows: TableRows, wanted: Offsets
) -> dict[int, bytes]:
    """By index the events with one row, which ends its statement."""
    chosen = np.flatnonzero(np.isin(rows.index, wanted))
    number, new, old = rows.number[chosen], rows.at[chosen], rows.old_at[chosen]
    begin = image_begins(events, number, len(table.table.columns))
    end = image_ends(events.data, new, events.end[number], layout_of(rows.after))
    first = np.where(old < 0, new, old)  # the new image of an UPDATE stands behind its old one
    columns = (rows.index[chosen], events.at[number], begin, first, end)
    return {
        index: _event(events.data[at:head].tobytes(), events.data[image:stop].tobytes())
        for index, at, head, image, stop in zip(*(c.tolist() for c in columns), strict=True)
    }


def _event(head: bytes, image: bytes) -> bytes:
    """``head``: up to the first image."""
    made = bytearray(head)
    made[9:13] = (len(head) + len(image)).to_bytes(4, "little")
    made[HEADER_BYTES + TABLE_ID_BYTES] |= RowsFlag.STATEMENT_END
    return bytes(made) + image


@dataclass(frozen=True, slots=True, eq=False)
class _Letter:
    number: int
    facts: LetterHead
    commit_ts: int
    event: bytes

    def events(self) -> tuple[bytes, bytes]:
        """The TABLE_MAP and the rows."""
        table_id = self.event[HEADER_BYTES:][:TABLE_ID_BYTES]
        body = table_id + bytes(FLAGS_BYTES) + self.facts.shape
        head = bytearray(HEADER_BYTES)
        head[4] = EventType.TABLE_MAP
        head[9:13] = (HEADER_BYTES + len(body)).to_bytes(4, "little")
        return bytes(head) + body, self.event


def letter_blocks(messages: Messages, wanted: Wanted) -> Iterator[Block]:
    """A `contract.Decoder` for letters. Those that are no rows become one BAD block."""
    bad: list[tuple[int, str, bytes]] = []
    known: dict[tuple[bool, bytes], list[_Letter]] = {}
    numbers, values = messages.positions.to_pylist(), messages.values.to_pylist()
    for number, value in zip(numbers, values, strict=True):
        found = NOT_ALONE if value is None else _read(number, value)
        if isinstance(found, str):
            bad.append((number, found, value or b""))
            continue
        facts = found.facts
        told = facts.is_mariadb, json.dumps(facts.told()["charsets"]).encode()
        known.setdefault(told, []).append(found)
    for letters in known.values():
        for some in _slices(letters):
            blocks, refused = _decoded(some, messages.part, wanted)
            yield from blocks
            bad += refused
    if bad:
        yield _bad_block(messages.part, sorted(bad))


def _read(number: int, value: bytes) -> _Letter | str:
    """The letter, or why it is none."""
    if not value.startswith(MAGIC):
        return NOT_ALONE
    line, _, event = value[len(MAGIC) :].partition(b"\n")
    try:
        told = json.loads(line)
        if (size := told.get("cut_from")) is not None:
            return (
                f"its row has {int(size)} bytes, and a dead letter keeps {MOST_BYTES} at most: "
                "rewind to below it, or resolve it"
            )
        return _Letter(number, LetterHead.of(told), int(told["commit_ts"]), event)
    except (ValueError, KeyError, TypeError, AttributeError):
        return NOT_ALONE


def _slices(letters: Sequence[_Letter]) -> Iterator[list[_Letter]]:
    some, size = list[_Letter](), 0
    for each in letters:
        if some and size >= SLICE_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += len(each.event)
    yield some


def _decoded(
    letters: Sequence[_Letter], part: str, wanted: Wanted
) -> tuple[list[Block], list[tuple[int, str, bytes]]]:
    """The blocks, and the letters that a server's settings have left unreadable."""
    data, at = joined([event for each in letters for event in each.events()])
    slice_ = Slice(
        data=data,
        at=at,
        position=np.repeat(np.array([each.number for each in letters], np.int64), 2),
        commit_ts=np.repeat(np.array([each.commit_ts for each in letters], np.int64), 2),
        checksum=False,
        is_mariadb=letters[0].facts.is_mariadb,
        charsets=letters[0].facts.charsets,
    )
    try:
        return list(row_blocks(slice_, part, wanted)), []
    except Refused as error:
        if len(letters) == 1:
            return [], [(letters[0].number, str(error), letters[0].event)]
    each_alone = [_decoded([each], part, wanted) for each in letters]
    blocks = [block for found, _ in each_alone for block in found]
    return blocks, [each for _, refused in each_alone for each in refused]


def _bad_block(part: str, bad: Iterable[tuple[int, str, bytes]]) -> Block:
    numbers, reasons, values = (list(column) for column in zip(*bad, strict=True))
    columns = [numbers, [0] * len(numbers), [BAD_LETTER] * len(numbers), reasons, values]
    return Block(
        kind=Kind.BAD,
        part=part,
        rows=len(numbers),
        first=numbers[0],
        last=numbers[-1],
        body=ipc(pa.table(columns, schema=BAD_BODY)),
    )
