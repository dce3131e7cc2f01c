"""avro with a schema registry, decoded in Arrow: messages in, blocks out.

A message has the id of its writer's schema, which the driver fetches from the registry and sends
with the task. Rows whose schema it has not fetched yet are named by a STATE block, and read again.

If the messages are numbered by their reader, these numbers are the commit-ts of all.

Up to TiCDC 8.5 a DELETE has neither a value nor a commit-ts. It is known to be later than the row
of its table that is before it in its partition, and than the watermark before it. Where the chunk
has no such row, its block is UNTIMED, and whoever reads knows the row from an earlier chunk.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.avro.frames import DDL, DELETE, HEAD, MAGIC, TIMED, WATERMARK, Frames
from streaming.protocols.avro.row_groups import NO_ROW, Rows, read_rows
from streaming.protocols.avro.told_ddl import told_ddl
from streaming.protocols.avro.writer_schema import Unusable, WriterSchema, writer_schema
from streaming.protocols.avro_binary.byte_walk import Indexes, Mask
from streaming.protocols.contract import NO_TABLE, Block, ChunkState, Messages, Wanted
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.rows.blocks import Collector, key_of, with_clocks
from streaming.protocols.rows.parsed_message import Bad, Error, WatermarkEvent

Schemas = Mapping[int, str | None]  # by id its text; None: the registry has none
NO_SCHEMAS: Final[Schemas] = {}
LOSS: Final = (
    "protocol=avro: up to TiCDC 8.5 a DELETE has no commit-ts, and its place is told by what is "
    "before it. After a restart of TiCDC or of Tidelake a deleted row may stay, or a row that was "
    "written again may be missing, until it changes. TiCDC's new architecture sends the commit-ts"
)
_ANY: Final = np.iinfo(np.int64).max - 1
_MALFORMED: Final = Error("malformed", "not a message of avro")
_NO_KEY: Final = Error(
    "delete-without-key",
    "a message without key and value: TiCDC writes so a DELETE of a table without a key, and "
    "which row it is cannot be known",
)
_TWO_TABLES: Final = Error("malformed", "its key and its value are of two tables")
_GLUE: Final = Error(
    "glue-schema",
    "its schema is in AWS's Glue registry, which is not read here: give TiCDC a schema registry of "
    "Confluent's kind",
)


def decode(
    messages: Messages, wanted: Wanted, *, start_ts: int = 0, schemas: Schemas = NO_SCHEMAS
) -> Iterator[Block]:
    """As `canal_json.decoder.decode`. ``schemas``: those that are known."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    collector = Collector(messages, wanted)
    is_null = messages.values.is_null().to_numpy(zero_copy_only=False)
    nulls = np.flatnonzero(is_null)
    collector.keep_each(nulls, [Bad(NO_TABLE, _NO_KEY)] * len(nulls))
    if not is_null.all():
        at = np.flatnonzero(~is_null)
        _Chunk(some(messages.values, at), at, collector, schemas).take(start_ts)
    return collector.blocks()


class _Chunk:
    """``places``: of these messages in the chunk."""

    def __init__(
        self, values: pa.BinaryArray, places: Indexes, collector: Collector, schemas: Schemas
    ) -> None:
        self.values = values
        self.places = places
        self.collector = collector
        self.schemas = schemas
        self.frames = Frames.read(values)
        told = collector.messages.commit_ts
        self.numbers = None if told is None else told.to_numpy()[places]
        self.lacks: set[int] = set()
        self.lacking: list[Indexes] = []
        self.times: dict[TableName, list[tuple[Indexes, Indexes]]] = defaultdict(list)

    def take(self, start_ts: int) -> None:
        frames = self.frames
        size, first, is_ours = frames.sizes(), frames.first, frames.is_framed
        is_mark = is_ours & (first == WATERMARK) & (size == TIMED) & (frames.ts > 0)
        is_timed = is_ours & (first == DELETE) & (size == TIMED) & (frames.key_ids >= 0)
        is_gone = frames.is_tombstone & (frames.key_ids >= 0)
        is_row = is_ours & (first == MAGIC) & (frames.value_ids >= 0) & ~is_gone
        is_ddl = is_ours & (first == DDL)
        marks = np.flatnonzero(is_mark)
        events = [WatermarkEvent(ts) for ts in frames.ts[marks].tolist()]
        self.collector.keep_each(self.places[marks], events)
        self._ddls(np.flatnonzero(is_ddl))
        self._rows(np.flatnonzero(is_row))
        if self.numbers is not None:
            is_timed |= is_gone
            is_gone = np.zeros(len(first), np.bool_)
        self._deletes(np.flatnonzero(is_timed))
        marks = marks[frames.ts[marks] <= self.collector.messages.latest_ts]
        self._untimed(np.flatnonzero(is_gone), marks, start_ts)
        rest = ~(is_mark | is_timed | is_gone | is_row | is_ddl)
        self._refuse_rest(np.flatnonzero(rest))
        self._tell(marks)

    def _ddls(self, rows: Indexes) -> None:
        begins, ends = self.frames.values
        data = self.frames.of.data
        texts = [data[begins[row] + 1 : ends[row]].tobytes() for row in rows.tolist()]
        self.collector.keep_each(self.places[rows], [told_ddl(each) for each in texts])

    def _rows(self, rows: Indexes) -> None:
        frames = self.frames
        for value_id, of_value in _groups(frames.value_ids, rows):
            schema = self._schema(value_id, of_value)
            if schema is None:
                continue
            of_value = self._long_enough(schema, of_value)
            for key_id, some_rows in _groups(frames.key_ids, of_value):
                of_key = self._schema(key_id, some_rows) if key_id >= 0 else None
                if key_id >= 0 and of_key is None:
                    continue  # a table must not be made without its key
                if of_key is not None and of_key.name != schema.name:
                    bad = [Bad(NO_TABLE, _TWO_TABLES)] * len(some_rows)
                    self.collector.keep_each(self.places[some_rows], bad)
                    continue
                key = None if of_key is None else tuple(each.name for each in of_key.columns)
                begins, ends = (each[some_rows] for each in frames.values)
                given = None if self.numbers is None else self.numbers[some_rows]
                head = self._head(key_id, value_id)
                found = read_rows(
                    frames.of, begins + HEAD, ends, schema, key, head=head, given_ts=given
                )
                self._keep(schema.name, found, some_rows)

    def _long_enough(self, schema: WriterSchema, rows: Indexes) -> Indexes:
        """Without those that have fewer bytes than fields: a field takes one at least, so a message
        of a few bytes need not be walked through for thousands of columns."""
        begins, ends = self.frames.values
        is_short = ends[rows] - begins[rows] - HEAD < len(schema.fields)
        if not is_short.any():
            return rows
        self._bad(schema.name, rows[is_short])
        return rows[~is_short]

    def _deletes(self, rows: Indexes) -> None:
        """DELETEs with a commit-ts, of which only the key is known."""
        frames = self.frames
        for key_id, some_rows in _groups(frames.key_ids, rows):
            schema = self._schema(key_id, some_rows)
            if schema is not None:
                head = self._head(key_id)
                begins, ends = (each[some_rows] for each in frames.keys)
                told = (frames.ts if self.numbers is None else self.numbers)[some_rows]
                found = read_rows(
                    frames.of, begins + HEAD, ends, schema, None, head=head, deleted_ts=told
                )
                self._keep(schema.name, found, some_rows)

    def _untimed(self, rows: Indexes, marks: Indexes, start_ts: int) -> None:
        """DELETEs without a commit-ts."""
        frames, collector = self.frames, self.collector
        for key_id, some_rows in _groups(frames.key_ids, rows):
            schema = self._schema(key_id, some_rows)
            if schema is None:
                continue
            above, below, is_known = self._above(schema.name, some_rows, marks)
            begins, ends = (each[some_rows] for each in frames.keys)
            times = np.where(is_known, above + 1, np.maximum(above, 1))
            head = self._head(key_id)
            found = read_rows(
                frames.of, begins + HEAD, ends, schema, None, head=head, deleted_ts=times
            )
            self._refuse(schema.name, found, some_rows)
            right = found.is_right
            name, known = schema.name, np.flatnonzero(right & is_known)
            self._keep_right(name, found, some_rows, known)
            later = np.flatnonzero(right & ~is_known)
            if not len(later):
                continue
            if name not in collector.wanted:
                told = self._about(some_rows[later], above[later], marks, start_ts)
                collector.count(name, self.places[some_rows[later]], told)
                continue
            arrays, bad = found.arrays(later, self.places[some_rows], self._key(found, name))
            self._bad(name, some_rows[bad])
            if len(arrays.positions):
                kept = np.searchsorted(self.places[some_rows], arrays.positions)
                moved = arrays.at(np.maximum(above[kept], 0))
                collector.take_untimed(name, found.shape, moved, below[kept])

    def _above(
        self, name: TableName, rows: Indexes, marks: Indexes
    ) -> tuple[Indexes, Indexes, Mask]:
        """The ts that these DELETEs are above, -1 where none is known; the greatest that this may
        be; and whether a row of their table told it. Where the next row has a lower ts, TiCDC has
        begun again: then the DELETE was before that."""
        here = self.times.get(name)
        above = np.full(len(rows), -1, np.int64)
        if len(marks):
            before = np.searchsorted(marks, rows) - 1
            above = np.where(before >= 0, self.frames.ts[marks[np.maximum(before, 0)]], above)
        if here is None:
            return above, np.full(len(rows), _ANY, np.int64), np.zeros(len(rows), np.bool_)
        at, ts = (np.concatenate(each) for each in zip(*here, strict=True))
        order = np.argsort(at)
        at, ts = at[order], ts[order]
        after = np.searchsorted(at, rows)
        is_known = after > 0
        above = np.where(is_known, np.maximum(above, ts[np.maximum(after - 1, 0)]), above)
        below = np.append(ts - 1, _ANY)[after]
        return np.where(is_known, np.minimum(above, below), above), below, is_known

    def _about(self, rows: Indexes, above: Indexes, marks: Indexes, start_ts: int) -> Indexes:
        """A ts for DELETEs that are only counted: above the watermark before, else at the next."""
        after = np.searchsorted(marks, rows)
        ts = np.append(self.frames.ts[marks], max(start_ts, 1))
        return np.where(above >= 0, above + 1, ts[after])

    def _keep(self, name: TableName, found: Rows, rows: Indexes) -> None:
        self._refuse(name, found, rows)
        self._keep_right(name, found, rows, np.flatnonzero(found.is_right))

    def _keep_right(self, name: TableName, found: Rows, rows: Indexes, right: Indexes) -> None:
        if not len(right):
            return
        if name not in self.collector.wanted:
            self._note(name, rows[right], found.commit_ts[right])
            self.collector.count(name, self.places[rows[right]], found.commit_ts[right])
            return
        arrays, bad = found.arrays(right, self.places[rows], self._key(found, name))
        self._bad(name, rows[bad])
        fine = np.setdiff1d(right, bad)
        self._note(name, rows[fine], found.commit_ts[fine])
        if len(arrays.positions):
            self.collector.take(name, found.shape, arrays)

    def _note(self, name: TableName, rows: Indexes, commit_ts: Indexes) -> None:
        """A ts that is not believed tells nothing about others."""
        near = np.flatnonzero(commit_ts <= self.collector.far_ts)
        if len(near):
            self.times[name].append((rows[near], commit_ts[near]))

    def _key(self, found: Rows, name: TableName) -> tuple[str, ...] | None:
        return key_of(found.shape, self.collector.wanted[name])

    def _refuse(self, name: TableName, found: Rows, rows: Indexes) -> None:
        for error, at in found.errors():
            bad = [Bad(name, error, is_row=True)] * len(at)
            self.collector.keep_each(self.places[rows[at]], bad)

    def _bad(self, name: TableName, rows: Indexes) -> None:
        bad = [Bad(name, NO_ROW, is_row=True)] * len(rows)
        self.collector.keep_each(self.places[rows], bad)

    def _schema(self, number: int, rows: Indexes) -> WriterSchema | None:
        """None: it is not known, and it was said so."""
        if number not in self.schemas:
            self._lack(number, rows)
            return None
        text = self.schemas[number]
        try:
            if text is not None:
                return writer_schema(text)
            why = Error("unknown-schema", f"the schema registry has no schema of the id {number}")
        except Unusable as error:
            why = Error("unusable-schema", f"the schema of the id {number} is not used: {error}")
        self.collector.keep_each(self.places[rows], [Bad(NO_TABLE, why)] * len(rows))
        return None

    def _head(self, *ids: int) -> bytes:
        """What dead letters of such rows need besides (`letters.py`): their schemas."""
        told = {str(number): self.schemas[number] for number in ids if number >= 0}
        return json.dumps(told, ensure_ascii=False).encode()

    def _lack(self, number: int, rows: Indexes) -> None:
        self.lacks.add(number)
        self.lacking.append(rows)

    def _refuse_rest(self, rows: Indexes) -> None:
        for row in rows.tolist():
            why = _GLUE if self.frames.is_of_glue(row) else _MALFORMED
            self.collector.keep_each(self.places[row : row + 1], [Bad(NO_TABLE, why)])

    def _tell(self, marks: Indexes) -> None:
        last = [
            (name.schema, name.table, int(ts[np.argmax(at)]))
            for name, found in self.times.items()
            for at, ts in [tuple(np.concatenate(each) for each in zip(*found, strict=True))]
        ]
        state = ChunkState(
            lacks=tuple(sorted(self.lacks)),
            watermark=int(self.frames.ts[marks[-1]]) if len(marks) else None,
            tables=tuple(last),
        )
        if self.numbers is not None:
            state = ChunkState(lacks=state.lacks)
        if state != ChunkState():
            lacking = np.concatenate(self.lacking) if self.lacking else self.places[:0]
            self.collector.tell(self.places[lacking], state)


def own_ms(messages: pa.Array) -> pa.Int64Array:
    """When each was made, if it has neither a commit-ts nor watermarks: its bytes do not tell
    without their schema."""
    return pa.nulls(len(messages), pa.int64())


def _groups(ids: Indexes, rows: Indexes) -> Iterator[tuple[int, Indexes]]:
    """The rows by their id, rising."""
    here = ids[rows]
    order = np.argsort(here, kind="stable")
    numbers, first = np.unique(here[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(rows[order], first[1:]), strict=False)
