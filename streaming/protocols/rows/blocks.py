"""From messages to blocks: one per kind, table and shape of its rows, each message in one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import SEALED_TS, TSO_LOGICAL_BITS, TableName
from streaming.protocols.clocks import KEPT_MS, clock_of, latest_ts, shown_ts
from streaming.protocols.contract import (
    BAD_BODY,
    BELOW,
    DDL_BODY,
    FAR_WATERMARK,
    NO_TABLE,
    SCHEMA_BODY,
    UNTIMED,
    Block,
    ChunkState,
    Kind,
    Messages,
    Order,
    ToldTable,
    Wanted,
    WantedTable,
    ipc,
)
from streaming.protocols.json_text.quote_scanner import Indexes
from streaming.protocols.rows.parsed_message import (
    Bad,
    Ddl,
    Error,
    Event,
    ParsedRow,
    SchemaEvent,
    Shape,
    WatermarkEvent,
)
from streaming.protocols.rows.row_arrays import RowArrays, row_body, rows_of

_Event = TypeVar("_Event")
_Shaped = tuple[Shape, RowArrays]
_Single = tuple[int, ParsedRow]


def with_clocks(messages: Messages, start_ts: int) -> Messages:
    """With values as ``binary``, and ``start_ts`` as one more clock: where an operator had the
    changefeed begin is as good as the messages'."""
    values = messages.values
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    believed_ts = max(messages.latest_ts, latest_ts(start_ts >> TSO_LOGICAL_BITS))
    return replace(messages, values=values, latest_ts=believed_ts)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The events of messages that have several, in their order: the number of each one's message in
    the chunk, its index there and its bytes. A message that has no event has one here, too, so that
    it can be said what is wrong."""

    message: Indexes
    index: npt.NDArray[np.int32]
    sizes: Indexes

    @staticmethod
    def of(counts: Indexes, sizes: Indexes) -> Parts:
        """From the number of each message's events, none of them 0, and its bytes. The first of
        them stands for the bytes."""
        message = np.repeat(np.arange(len(counts)), counts)
        first = np.cumsum(counts) - counts
        index = np.arange(len(message)) - first[message]
        return Parts(message, index.astype(np.int32), np.where(index == 0, sizes[message], 0))


class Collector:
    """The contents of one chunk so far. An event's *place* is its number among all of them: that of
    its message, unless there are ``parts``."""

    def __init__(self, messages: Messages, wanted: Wanted, parts: Parts | None = None) -> None:
        self.messages = messages
        self.wanted = wanted
        self._parts = parts
        self._rows: dict[tuple[TableName, object], list[_Shaped]] = defaultdict(list)
        self._single: dict[tuple[TableName, Shape], list[_Single]] = defaultdict(list)
        self._unwanted: dict[TableName, list[tuple[Indexes, Indexes]]] = defaultdict(list)
        self._ddls: dict[TableName, list[tuple[int, Ddl]]] = defaultdict(list)
        self._schemas: dict[TableName, list[tuple[int, SchemaEvent]]] = defaultdict(list)
        self._bad: dict[tuple[TableName, bool], list[tuple[int, Bad]]] = defaultdict(list)
        self._watermarks: list[tuple[int, int]] = []
        self._untimed: list[tuple[TableName, Shape, RowArrays, Indexes]] = []
        self._state: tuple[Indexes, ChunkState] | None = None
        self.far_ts = min(messages.latest_ts + (KEPT_MS << TSO_LOGICAL_BITS), SEALED_TS)
        # Numbered by place, else each change stands for all of its commit-ts (rule 4).
        self._order = Order.NET if messages.commit_ts is None else Order.PLACE
        self._positions: Indexes = messages.positions.to_numpy()
        if parts is None:
            sizes = pc.fill_null(pc.binary_length(messages.values), 0)
            self._sizes = sizes.to_numpy().astype(np.int64)
            self._index = np.zeros(len(messages), np.int32)
        else:
            self._positions = self._positions[parts.message]
            self._sizes = parts.sizes
            self._index = parts.index

    def keep_each(self, positions: Indexes, events: Iterable[Event | None]) -> None:
        """Events that were read one by one."""
        for position, event in zip(positions.tolist(), events, strict=True):
            match event if self._is_believed(event) else self._far(event):
                case ParsedRow() as row if row.name in self.wanted:
                    self._single[row.name, row.shape].append((position, row))
                case ParsedRow() as row:
                    self.count(row.name, np.array([position]), np.array([row.commit_ts]))
                case Ddl() as ddl:
                    self._ddls[ddl.name].append((position, ddl))
                case SchemaEvent() as schema:
                    self._schemas[schema.table.name].append((position, schema))
                case WatermarkEvent() as watermark:
                    self._watermarks.append((position, watermark.watermark_ts))
                case Bad() as bad:
                    self._bad[bad.name, bad.is_row].append((position, bad))

    def take(self, name: TableName, shape: Shape, rows: RowArrays) -> None:
        if len(far := np.flatnonzero(rows.commit_ts > self.far_ts)):
            self._refuse(name, rows.positions[far], rows.commit_ts[far])
            rows = rows.take(np.flatnonzero(rows.commit_ts <= self.far_ts))
        if len(rows.positions):
            self._rows[name, shape.unordered].append((shape, rows))

    def take_untimed(self, name: TableName, shape: Shape, rows: RowArrays, below: Indexes) -> None:
        """Rows whose commit-ts is not known, only one that it is above; ``below``: see BELOW."""
        self._untimed.append((name, shape, rows, below))

    def tell(self, positions: Indexes, state: ChunkState) -> None:
        """``positions``: of the messages that cannot be read without what the state lacks."""
        self._state = (positions, state)

    def count(self, name: TableName, positions: Indexes, commit_ts: Indexes) -> None:
        if len(far := np.flatnonzero(commit_ts > self.far_ts)):
            self._refuse(name, positions[far], commit_ts[far])
            near = np.flatnonzero(commit_ts <= self.far_ts)
            positions, commit_ts = positions[near], commit_ts[near]
        if len(positions):
            self._unwanted[name].append((positions, commit_ts))

    def _refuse(self, name: TableName, positions: Indexes, commit_ts: Indexes) -> None:
        for position, ts in zip(positions.tolist(), commit_ts.tolist(), strict=True):
            self._bad[name, True].append((position, Bad(name, self.far_error(ts), is_row=True)))

    def _is_believed(self, event: Event | None) -> bool:
        match event:
            case WatermarkEvent():
                return event.watermark_ts <= self.messages.latest_ts
            case ParsedRow() | Ddl():
                return event.commit_ts <= self.far_ts
        return True

    def _far(self, event: Event | None) -> Bad:
        if isinstance(event, WatermarkEvent):
            return Bad(NO_TABLE, self.far_error(event.watermark_ts, is_watermark=True))
        assert isinstance(event, ParsedRow | Ddl), event
        is_row = isinstance(event, ParsedRow)
        return Bad(event.name, self.far_error(event.commit_ts), is_row=is_row)

    def far_error(self, ts: int, *, is_watermark: bool = False) -> Error:
        what, ahead = ("watermark", "a minute") if is_watermark else ("commit-ts", "a day")
        return Error(
            FAR_WATERMARK if is_watermark else "far-commit-ts",
            f"{what} {ts} ({shown_ts(ts)}) is more than {ahead} ahead of the clocks of reader and "
            f"broker ({clock_of(self.messages.latest_ts)}): it does not count",
        )

    def blocks(self) -> Iterator[Block]:
        """By their first position."""
        found = [
            *self._row_blocks(),
            *self._unwanted_blocks(),
            *self._ddl_blocks(),
            *self._schema_blocks(),
            *self._bad_blocks(),
            *self._watermark_block(),
            *self._untimed_blocks(),
        ]
        last = [] if self._state is None else [self._state_block(*self._state)]
        return iter([*sorted(found, key=lambda block: block.first), *last])

    def _row_blocks(self) -> Iterator[Block]:
        groups = [
            (shape, key_of(shape, self.wanted[name]), singles)
            for (name, shape), singles in self._single.items()
        ]
        for (name, shape), rows in zip(self._single, rows_of(groups), strict=True):
            self.take(name, shape, rows)
        for (name, _), found in self._rows.items():
            table = self.wanted[name]
            shape, _ = min(found, key=lambda piece: piece[1].positions[0])  # the first row's order
            key = key_of(shape, table)
            rows = RowArrays.of(found, shape, key)
            above = rows.commit_ts > table.above_ts
            if not above.all():
                rows = rows.take(np.flatnonzero(above))
            if len(rows.positions):
                places = self._positions, self._index
                body, key_changes = row_body(rows, shape, key, places, self._order)
                told = rows.positions, rows.commit_ts
                yield self._block(Kind.ROW, name, *told, body=ipc(body), key_changes=key_changes)

    def _unwanted_blocks(self) -> Iterator[Block]:
        for name, counted in self._unwanted.items():
            positions, commit_ts = (np.concatenate(part) for part in zip(*counted, strict=True))
            yield self._block(Kind.ROW, name, np.sort(positions), commit_ts)

    def _ddl_blocks(self) -> Iterator[Block]:
        for name, ddls in self._ddls.items():
            positions, events = _columns(ddls)
            commit_ts = np.array([ddl.commit_ts for ddl in events], np.int64)
            columns = [
                pa.array(commit_ts),
                pa.array(self._positions[positions]),
                pa.array(self._index[positions]),
                pa.array([ddl.name.schema for ddl in events], pa.string()),
                pa.array([ddl.name.table for ddl in events], pa.string()),
                pa.array([ddl.ddl_type for ddl in events], pa.string()),
                pa.array([ddl.query for ddl in events], pa.string()),
                pa.array([_as_json(ddl.tables) for ddl in events], pa.string()),
            ]
            body = ipc(pa.Table.from_arrays(columns, schema=DDL_BODY))
            yield self._block(Kind.DDL, name, positions, commit_ts, body=body)

    def _schema_blocks(self) -> Iterator[Block]:
        for name, schemas in self._schemas.items():
            positions, events = _columns(schemas)
            columns = [
                pa.array(self._positions[positions]),
                pa.array(self._index[positions]),
                pa.repeat(pa.scalar(name.schema, pa.string()), len(events)),
                pa.repeat(pa.scalar(name.table, pa.string()), len(events)),
                pa.array([each.table.version for each in events], pa.int64()),
                pa.array([each.table.definition for each in events], pa.string()),
            ]
            body = ipc(pa.Table.from_arrays(columns, schema=SCHEMA_BODY))
            yield self._block(Kind.SCHEMA, name, positions, None, body=body)

    def _bad_blocks(self) -> Iterator[Block]:
        for (name, is_row), found in self._bad.items():
            positions, events = _columns(found)
            columns = [
                pa.array(self._positions[positions]),
                pa.array(self._index[positions]),
                pa.array([bad.error.error_class for bad in events], pa.string()),
                pa.array([bad.error.message for bad in events], pa.string()),
                self._values(positions),
            ]
            body = ipc(pa.Table.from_arrays(columns, schema=BAD_BODY))
            yield replace(
                self._block(Kind.BAD, name, positions, None, body=body), has_only_rows=is_row
            )

    def _values(self, positions: Indexes) -> pa.Array:
        """The messages of these events."""
        at = positions if self._parts is None else self._parts.message[positions]
        return self.messages.as_sent.take(pa.array(at)).cast(pa.large_binary())

    def _watermark_block(self) -> Iterator[Block]:
        if self._watermarks:
            positions = np.array([position for position, _ in self._watermarks], np.int64)
            marks = np.array([mark for _, mark in self._watermarks], np.int64)
            block = self._block(Kind.WATERMARK, NO_TABLE, positions, marks)
            greatest = positions[marks == marks.max()]
            yield replace(block, last=int(self._positions[greatest[-1]]))

    def _untimed_blocks(self) -> Iterator[Block]:
        for name, shape, rows, below in self._untimed:
            key = key_of(shape, self.wanted[name])
            places = self._positions, self._index
            body, _ = row_body(rows, shape, key, places, self._order)
            body = body.append_column(BELOW, pa.array(below, pa.int64()))
            told = rows.positions, rows.commit_ts
            yield replace(self._block(Kind.ROW, name, *told, body=ipc(body)), token=UNTIMED)

    def _state_block(self, positions: Indexes, state: ChunkState) -> Block:
        """It is the last one of its chunk: what it tells counts behind it."""
        last = int(self._positions[-1])
        return Block(
            kind=Kind.STATE,
            part=self.messages.part,
            rows=len(positions),
            first=last,
            last=last,
            message_bytes=int(self._sizes[positions].sum()),
            token=state.to_token(),
        )

    def _block(
        self,
        kind: Kind,
        name: TableName,
        positions: Indexes,
        ts: Indexes | None,
        *,
        body: bytes | None = None,
        key_changes: int = 0,
    ) -> Block:
        """``positions`` rise."""
        return Block(
            kind=kind,
            part=self.messages.part,
            name=name,
            rows=len(positions),
            min_ts=None if ts is None else int(ts.min()),
            max_ts=None if ts is None else int(ts.max()),
            first=int(self._positions[positions[0]]),
            last=int(self._positions[positions[-1]]),
            key_changes=key_changes,
            message_bytes=int(self._sizes[positions].sum()),
            body=body,
        )


def _as_json(tables: Sequence[ToldTable]) -> str | None:
    told = [[each.name.schema, each.name.table, each.version, each.definition] for each in tables]
    return json.dumps(told, ensure_ascii=False) if told else None


def _columns(found: Sequence[tuple[int, _Event]]) -> tuple[Indexes, list[_Event]]:
    ordered = sorted(found, key=lambda entry: entry[0])
    return np.array([p for p, _ in ordered], np.int64), [event for _, event in ordered]


def key_of(shape: Shape, table: WantedTable) -> tuple[str, ...] | None:
    """The key whose old values answer all questions about an UPDATE; None: all old values are kept.

    It is used only if the message names this very key. Rows from beyond a DDL that changes the key
    are read before it has run, and are written by the new key. Messages say nothing of a unique
    key.
    """
    is_told = table.key is not None and set(shape.key_names or ()) == set(table.key)
    return table.key if is_told else None
