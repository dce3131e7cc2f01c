"""open-protocol, decoded in Arrow: messages in, blocks out.

A message is a batch of events of several tables. It is understood as a whole or not at all: if one
of its events cannot be read, the message is one dead letter with all its bytes, and none of its
rows is applied. Rows that TiCDC cut to their key are rows with an error.

DDLs and resolved events come in every partition of a topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, Block, Messages, Wanted
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes, Mask
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.open.frames import Frames, frames_of
from streaming.protocols.open.row_keys import row_keys
from streaming.protocols.open.row_template import Template
from streaming.protocols.open.strict_parser import event
from streaming.protocols.rows.alike import read_alike
from streaming.protocols.rows.blocks import Collector, Parts, key_of, with_clocks
from streaming.protocols.rows.parsed_message import (
    EMPTY,
    Bad,
    Ddl,
    Event,
    ParsedRow,
    Shape,
    WatermarkEvent,
)
from streaming.protocols.rows.row_arrays import RowArrays

_DELETED, _WRITTEN = b'{"d":{"', b'{"u":{"'


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """As `canal_json.decoder.decode`."""
    if not len(messages):
        return iter(())
    return _Chunk(with_clocks(messages, start_ts), wanted).blocks()


class _Chunk:
    """The events of one chunk. An event's *place* is its number among all of them."""

    def __init__(self, messages: Messages, wanted: Wanted) -> None:
        frames = frames_of(messages.values)
        self._keys, self._values, self._message = frames.keys, frames.values, frames.message
        self._is_empty: Mask = messages.values.is_null().to_numpy(zero_copy_only=False)
        self._message_sizes = _lengths(messages.values)
        self._sizes = _shared_out(frames, self._message_sizes)
        parts = Parts(frames.message, frames.index, self._sizes)
        self._collector = Collector(messages, wanted, parts)
        self._rows: list[tuple[TableName, Shape, RowArrays]] = []
        self._counted: list[tuple[TableName, Indexes, Indexes]] = []

    def blocks(self) -> Iterator[Block]:
        events, bad = self._read_each(self._plain())
        is_good = ~np.isin(self._message, [*bad])
        for name, shape, rows in self._rows:
            kept = rows if not bad else rows.take(np.flatnonzero(is_good[rows.positions]))
            if len(kept.positions):
                self._collector.take(name, shape, kept)
        for name, at, ts in self._counted:
            good = is_good[at]
            if good.any():
                self._collector.count(name, at[good], ts[good])
        kept_events = {place: each for place, each in events.items() if is_good[place]}
        for message, each in bad.items():
            place = int(np.searchsorted(self._message, message))
            kept_events[place] = each
            self._sizes[place] = self._message_sizes[message]
        places = sorted(kept_events)
        self._collector.keep_each(np.array(places, np.int64), (kept_events[p] for p in places))
        return self._collector.blocks()

    def _event(self, place: int) -> Event:
        if self._is_empty[self._message[place]]:
            return Bad(NO_TABLE, EMPTY)
        key, value = self._keys[place].as_py(), self._values[place].as_py()
        found = event(key, value)
        far = self._collector
        if isinstance(found, ParsedRow | Ddl) and found.commit_ts > far.far_ts:
            is_row = isinstance(found, ParsedRow)
            return Bad(found.name, far.far_error(found.commit_ts), is_row=is_row)
        if isinstance(found, WatermarkEvent) and found.watermark_ts > far.messages.latest_ts:
            return Bad(NO_TABLE, far.far_error(found.watermark_ts, is_watermark=True))
        return found

    def _read_each(self, places: Indexes) -> tuple[dict[int, Event], dict[int, Bad]]:
        """The events at these places, and by message why it is not read: nobody looks at what is
        behind its first bad event."""
        events, bad = dict[int, Event](), dict[int, Bad]()
        sizes = np.bincount(self._message)
        for place in places.tolist():
            message = int(self._message[place])
            if message in bad:
                continue
            each = self._event(place)
            if not isinstance(each, Bad):
                events[place] = each
            elif sizes[message] == 1:
                bad[message] = each
            else:
                bad[message] = replace(each, name=NO_TABLE, is_row=False)
        return events, bad

    def _plain(self) -> Indexes:
        """Reads the plain rows; returns the places of all other events."""
        if not len(self._keys):
            return np.zeros(0, np.int64)
        likely = are_plain(self._keys, np.ones(len(self._keys), np.bool_))
        likely = are_plain(self._values, likely)
        tables, others = row_keys(self._keys, likely)
        rest = [others]
        for names, at, ts in tables:
            near = ts <= self._collector.far_ts
            rest += [at[~near], self._table(names, at[near], ts[near])]
        found: Indexes = np.sort(np.concatenate(rest))
        return found

    def _table(self, head: bytes, at: Indexes, ts: Indexes) -> Indexes:
        """Reads the plain rows of one table; returns the places of the rest."""
        try:
            fields = parse(b"{" + head + b"}")
        except Malformed:
            return at
        name = TableName(fields["scm"], fields["tbl"])
        if not name.table:
            return at
        values = some(self._values, at)
        is_new, is_old = (
            pc.starts_with(values, each).to_numpy(zero_copy_only=False)
            for each in (_WRITTEN, _DELETED)
        )
        is_row = is_new | is_old
        if name in self._collector.wanted:
            read = self._alike(name, at[is_row], ts[is_row])
            left: Indexes = np.concatenate([at[~is_row], read])
            return left
        self._counted.append((name, at[is_row], ts[is_row]))
        uncounted: Indexes = at[~is_row]
        return uncounted

    def _alike(self, name: TableName, at: Indexes, ts: Indexes) -> Indexes:
        """The rows of one table; returns the places of the rest."""

        def take(template: Template, part: Indexes) -> Indexes:
            key = key_of(template.shape, self._collector.wanted[name])
            values = some(self._values, part)
            rows, plain = template.read(values, part, ts[np.searchsorted(at, part)], key)
            if len(plain):
                self._rows.append((name, template.shape, rows))
            return plain

        return read_alike(self._values, at, self._template, take)

    def _template(self, place: int) -> Template | None:
        value = self._values[place].as_py()
        row = event(self._keys[place].as_py(), value)
        return Template.of(value, row) if isinstance(row, ParsedRow) else None


def _shared_out(frames: Frames, lengths: Indexes) -> Indexes:
    """The bytes of each event. What is no event's in a message counts as its first one's."""
    sizes = _lengths(frames.keys) + _lengths(frames.values)
    known = np.bincount(frames.message, weights=sizes, minlength=len(lengths)).astype(np.int64)
    first = frames.index == 0
    sizes[first] += (lengths - known)[frames.message[first]]
    return sizes


def _lengths(values: pa.BinaryArray) -> Indexes:
    found: Indexes = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    return found
