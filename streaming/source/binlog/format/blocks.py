"""A slice of the binlog as blocks of the contract.

    Slice ──row_blocks(slice, part, wanted)──► blocks: ROW per table and shape of its rows, BAD

Pure, on NumPy and Arrow: it runs in the driver and on an executor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import (
    BAD_BODY,
    NO_TABLE,
    Block,
    Kind,
    Wanted,
    WantedTable,
    ipc,
)
from streaming.source.binlog.format.charsets import Charsets
from streaming.source.binlog.format.events import Events, Offsets, event_at, events_of
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.inflate import pieces
from streaming.source.binlog.format.rows.block_body import row_body
from streaming.source.binlog.format.rows.maps_in_force import HEAD_BYTES, Shape
from streaming.source.binlog.format.rows.row_events import (
    Garbage,
    TableEvents,
    TableRows,
    table_events,
    table_rows,
)
from streaming.source.binlog.format.table_map import TABLE_ID_BYTES

BAD_BYTES: Final = 1 << 20  # of an event that means nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """Events of whole transactions, or a piece of one large transaction.

    ``at``: where each event begins in ``data`` (at its header), rising. The protocol's framing may
    stand between the events, as it came from the socket. ``position``: the event's position in the
    part. The events of a compressed transaction (MySQL's TRANSACTION_PAYLOAD) have the payload's.
    ``maps``: the TABLE_MAP events that hold where the slice begins, whole, with their checksums;
    there are none where a statement begins.
    """

    data: bytes
    at: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]  # file number << 40 | offset in the file
    commit_ts: npt.NDArray[np.int64]  # of the event's transaction, as the driver has given it
    maps: tuple[bytes, ...] = ()
    checksum: bool  # each event ends in a CRC32
    is_mariadb: bool
    charsets: Charsets


def row_blocks(
    slice_: Slice, part: str, wanted: Wanted, *, checks_crc: bool = True
) -> Iterator[Block]:
    """Row blocks and BAD blocks, per piece of the slice by their first position. A compressed
    transaction that is large when inflated comes in several pieces.

    - ROW of a wanted table, one per shape of its rows and per set of columns that their images
      have; rows at or below its ``above_ts`` are in none. A row with a value that cannot be read
      has ``error_class`` and ``error_message``, and NULL in that column. A column that is in none
      of a row's images has the type null (`contract.Cells`).
    - ROW without a body of another table: ``rows`` counts its row *events*.
    - BAD: events that mean nothing, with their bytes. The name is told where the event's checksum
      is right and its TABLE_MAP is known.

    ``index`` of a row is its number in its event. In a compressed transaction it rises over all
    events of the payload, but with gaps.

    Cells are typed (``cells/``). A column of dates comes as text where one of them is no date of
    the calendar (``0000-00-00``); a TIMESTAMP's text is in UTC.

    Raises Refused for a wanted table whose columns the server does not name.
    """
    events, bad = events_of(slice_.data, slice_.at, checksum=slice_.checksum, checks_crc=checks_crc)
    reading = _SliceReading(slice_, part, wanted)
    for origin, value, fault in bad:
        reading.bad[NO_TABLE].append(_Bad(origin, 0, value, fault))

    def on_fault(number: int, fault: BadEvent) -> None:
        reading.note(events, Garbage(number, fault))

    held = _held(slice_, checks_crc=checks_crc)
    for piece in pieces(events, on_fault):
        found, garbage, held = table_events(piece, held, is_mariadb=slice_.is_mariadb)
        for each in garbage:
            reading.note(piece, each)
        blocks = [block for each in found for block in reading.blocks(piece, each)]
        blocks += reading.bad_blocks()
        yield from sorted(blocks, key=lambda block: block.first)


def _held(slice_: Slice, *, checks_crc: bool) -> dict[int, Shape]:
    """The maps before the slice, by table ID. Without a good one its rows are garbage."""
    held = {}
    for raw in slice_.maps:
        try:
            body = event_at(raw, 0, checksum=slice_.checksum, checks_crc=checks_crc).body
        except BadEvent:
            continue
        held[int.from_bytes(body[:TABLE_ID_BYTES], "little")] = body[HEAD_BYTES:]
    return held


@dataclass(frozen=True, slots=True, eq=False)
class _Bad:
    origin: int  # which event of the slice it is, or stands in
    index: int
    value: bytes
    fault: BadEvent


@dataclass(frozen=True, slots=True, eq=False)
class _SliceReading:
    """``bad``: what is to come in the next BAD blocks, by the table whose rows they surely are."""

    slice: Slice
    part: str
    wanted: Wanted
    bad: dict[TableName, list[_Bad]] = field(default_factory=lambda: defaultdict(list))

    def note(self, events: Events, garbage: Garbage) -> None:
        number = garbage.number
        origin, base = int(events.origin[number]), int(events.base[number])
        bad = _Bad(origin, base, events.whole(number), garbage.fault)
        self.bad[garbage.name].append(bad)

    def blocks(self, events: Events, found: TableEvents) -> Iterator[Block]:
        """The block of one shape, if rows of it are above its table's ``above_ts``; none of a
        sequence."""
        if found.table.is_sequence:
            return
        table = self.wanted.get(found.table.name)
        if table is None:
            yield self._block(events, found, found.numbers)
            return
        commit_ts = self.slice.commit_ts[events.origin[found.numbers]]
        is_above = commit_ts > table.above_ts
        if not is_above.all():
            if not is_above.any():
                return
            found = TableEvents(found.table, found.shape, found.numbers[is_above])
        several, garbage = table_rows(events, found, is_mariadb=self.slice.is_mariadb)
        for each in garbage:
            self.note(events, each)
        for rows in several:
            if len(rows.op):
                yield self._rows(events, found, rows, table)

    def _rows(
        self, events: Events, found: TableEvents, rows: TableRows, table: WantedTable
    ) -> Block:
        origin = events.origin[rows.number]
        body, key_changes = row_body(
            events.data,
            rows,
            found.shape,
            is_mariadb=self.slice.is_mariadb,
            commit_ts=self.slice.commit_ts[origin],
            position=self.slice.position[origin],
            charsets=self.slice.charsets,
            checksum=self.slice.checksum,
            key=_key(found, table),
        )
        return self._block(events, found, rows.number, body=ipc(body), key_changes=key_changes)

    def _block(
        self,
        events: Events,
        found: TableEvents,
        numbers: Offsets,
        *,
        body: bytes | None = None,
        key_changes: int = 0,
    ) -> Block:
        """``numbers``: the event of each row, or each event."""
        origin = events.origin[numbers]
        commit_ts, position = self.slice.commit_ts[origin], self.slice.position[origin]
        theirs = numbers[np.diff(numbers, prepend=-1) != 0]  # they rise
        sizes = events.stop[theirs] - events.at[theirs]
        return Block(
            kind=Kind.ROW,
            part=self.part,
            name=found.table.name,
            rows=len(numbers),
            min_ts=int(commit_ts.min()),
            max_ts=int(commit_ts.max()),
            first=int(position[0]),
            last=int(position[-1]),
            key_changes=key_changes,
            message_bytes=int(sizes.sum()),
            body=body,
        )

    def bad_blocks(self) -> list[Block]:
        """They have what was noted since the last call."""
        blocks = [self._bad_block(name, bad) for name, bad in self.bad.items()]
        self.bad.clear()
        return blocks

    def _bad_block(self, name: TableName, found: list[_Bad]) -> Block:
        ordered = sorted(found, key=lambda bad: (bad.origin, bad.index))
        positions = [int(self.slice.position[bad.origin]) for bad in ordered]
        columns = [
            pa.array(positions, pa.int64()),
            pa.array([bad.index for bad in ordered], pa.int32()),
            pa.array([bad.fault.error_class for bad in ordered], pa.string()),
            pa.array([_why(bad) for bad in ordered], pa.string()),
            pa.array([bad.value[:BAD_BYTES] for bad in ordered], pa.large_binary()),
        ]
        return Block(
            kind=Kind.BAD,
            part=self.part,
            name=name,
            rows=len(ordered),
            first=positions[0],
            last=positions[-1],
            has_only_rows=name != NO_TABLE,
            message_bytes=sum(len(bad.value) for bad in ordered),
            body=ipc(pa.Table.from_arrays(columns, schema=BAD_BODY)),
        )


def _why(bad: _Bad) -> str:
    size = len(bad.value)
    is_cut = f" (its first {BAD_BYTES} bytes of {size} are kept)" if size > BAD_BYTES else ""
    return f"{bad.fault}{is_cut}"


def _key(found: TableEvents, table: WantedTable) -> tuple[str, ...] | None:
    """The key whose old values answer all questions about an UPDATE; None: all old values are
    kept. It is used only if the TABLE_MAP names this very key: rows from beyond a DDL that changes
    the key are read before it has run."""
    is_told = table.key is not None and set(found.table.key or ()) == set(table.key)
    return table.key if is_told else None
