"""Rows that are written alike, many at a time; those of other tables are counted.

messages ─► objects (TiCDC writes several into one) ─► by table ─► by template"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.json_text.message_heads import TEXT, Heads, by_head
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes
from streaming.protocols.maxwell.row_template import Template
from streaming.protocols.rows.alike import read_alike
from streaming.protocols.rows.blocks import key_of
from streaming.protocols.rows.side_by_side import Taking

_START: Final = b'{"database":"'
# It stands in no text: its quotes would have a backslash, or end the text amid names.
_NEXT: Final = b"}" + _START
_HEADS: Final = Heads.of(rf'\{{"database":{TEXT},"table":{TEXT},"type":{TEXT},')


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """``values`` of messages, cut where an object that may be a row's begins; ``message``: to which
    each belongs; ``index``: its number there."""

    values: pa.BinaryArray
    message: Indexes
    index: Indexes

    @staticmethod
    def of(messages: pa.BinaryArray) -> Objects:
        every: Indexes = np.arange(len(messages))
        whole = Objects(messages, every, np.zeros(len(messages), np.int64))
        buffer = messages.buffers()[2]
        has_next = pc.match_substring(messages, _NEXT.decode())
        if buffer is None or not pc.any(has_next).as_py():
            return whole
        offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset :]
        offsets = offsets[: len(messages) + 1].astype(np.int64)
        text = memoryview(buffer)[offsets[0] : offsets[-1]]
        found = [each.start() + 1 for each in re.finditer(re.escape(_NEXT), text)]
        at = np.array(found, np.int64) + offsets[0]
        of = np.searchsorted(offsets, at, side="right") - 1
        is_within = at != offsets[of]  # else a message begins there
        at, of = at[is_within], of[is_within]
        message = np.concatenate([every, of])
        begins = np.concatenate([offsets[:-1], at])
        order = np.lexsort((begins, message))
        message, begins = message[order], np.append(begins[order], offsets[-1])
        is_null = messages.is_null().to_numpy(zero_copy_only=False)[message]
        bitmap = pa.array(~is_null).buffers()[1]
        buffers = [bitmap, pa.py_buffer(begins.astype(np.int32)), buffer]
        values = pa.Array.from_buffers(pa.binary(), len(message), buffers)
        first = np.searchsorted(message, every)
        return Objects(values, message, np.arange(len(message)) - first[message])


def read_plain(values: pa.BinaryArray, commit_ts: Indexes, taking: Taking) -> Indexes:
    """Returns the places of the objects that are left, in order. ``commit_ts``: of each."""
    begins = pc.fill_null(pc.starts_with(values, _START), False)
    likely = are_plain(values, begins.to_numpy(zero_copy_only=False))
    groups, others = by_head(values, np.flatnonzero(likely), _HEADS)
    single = [np.flatnonzero(~likely), others]
    single += [_read_group(values, commit_ts, places, taking) for places in groups.values()]
    return np.sort(np.concatenate(single))


def _read_group(
    values: pa.BinaryArray, commit_ts: Indexes, places: Indexes, taking: Taking
) -> Indexes:
    """Objects of one table and type. Returns the places of the rest."""

    def take(template: Template, part: Indexes) -> Indexes:
        walked = template.walked(some(values, part), commit_ts[part])
        if template.name not in taking.wanted:
            counted = walked.counted()
            if len(counted):
                taking.count(template.name, part[counted], commit_ts[part[counted]])
            return counted
        key = key_of(template.shape, taking.wanted[template.name])
        rows, plain = walked.plain(part, key)
        if len(plain):
            taking.take(template.name, template.shape, rows)
        return plain

    return read_alike(values, places, lambda place: Template.of(values[place].as_py()), take)
