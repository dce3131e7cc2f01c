"""Rows that are written alike, many at a time.

    messages ─► by frame (``frames.py``) ─► of TiCDC by table ─► by kind ─► by template
                                                                            (``row_template.py``)

A topic of TiCDC has many tables, one of Debezium's connectors has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.contract import Messages
from streaming.protocols.debezium.frames import Frame, Sides
from streaming.protocols.debezium.row_template import Template
from streaming.protocols.json_text.message_heads import TEXT, Heads, by_head
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes
from streaming.protocols.rows import alike
from streaming.protocols.rows.alike import read_alike
from streaming.protocols.rows.blocks import key_of
from streaming.protocols.rows.side_by_side import Taking

_MOST_FRAMES: Final = 64
_TICDC: Final = b'{"source":{'
# What names the table, behind the first time, which has the same width in all messages.
_BEHIND_TIME: Final = b',"snapshot":"'
_HEADS: Final = Heads.of(rf',"snapshot":{TEXT},"db":{TEXT},"table":{TEXT},')
_OP, _BEFORE = b'"op":"', b'{"before":'
_MOST_HEAD: Final = 800  # bytes: two names may have 64 characters each


def read_plain(messages: Messages, taking: Taking) -> Indexes:
    """Returns the places of the messages that are left, in order."""
    sides = Sides.of(messages.values)
    rest: Indexes = np.flatnonzero(sides.is_whole)
    left = [np.flatnonzero(~sides.is_whole)]
    for _ in range(_MOST_FRAMES):
        if len(rest) < alike.FEW:
            break
        frame = Frame.of(*sides.message(int(rest[0])))
        if frame is None:
            left.append(rest[:1])
            rest = rest[1:]
            continue
        texts, places = frame.rows(sides, rest)
        rest = np.setdiff1d(rest, places, assume_unique=True)
        payloads = sides.ends[places] - sides.values[places] - sum(map(len, frame.value))
        left.append(_read_frame(_Framed(messages, texts, places, payloads), taking))
    found: Indexes = np.sort(np.concatenate([*left, rest]))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Framed:
    """The rows in one frame: what it leaves of them, their places among the messages, and how many
    bytes of each text are the value's."""

    messages: Messages
    texts: pa.BinaryArray
    places: Indexes
    payloads: Indexes

    def template(self, row: int) -> Template | None:
        at, numbers = int(self.places[row]), self.messages.commit_ts
        return Template.of(
            self.messages.values[at].as_py(),
            self.texts[row].as_py(),
            int(self.payloads[row]),
            None if numbers is None else numbers[at].as_py(),
        )


def _read_frame(framed: _Framed, taking: Taking) -> Indexes:
    left = [
        _read_group(framed, group, taking)
        for table in _by_table(framed.texts)
        for group in _by_kind(framed.texts, table)
    ]
    found: Indexes = framed.places[np.concatenate([*left, np.zeros(0, np.int64)])]
    return found


def _by_table(texts: pa.BinaryArray) -> Iterator[Indexes]:
    """The rows, those of a table together."""
    is_ticdcs = pc.starts_with(texts, _TICDC).to_numpy(zero_copy_only=False)
    if not is_ticdcs.all():
        yield np.flatnonzero(~is_ticdcs)
    if is_ticdcs.any():
        rows = np.flatnonzero(is_ticdcs)
        first = max(0, texts[int(rows[0])].as_py().find(_BEHIND_TIME))
        heads = pc.binary_slice(texts, first, first + _MOST_HEAD)
        groups, others = by_head(heads, rows, _HEADS)
        yield from (each for each in (*groups.values(), others) if len(each))


def _by_kind(texts: pa.BinaryArray, rows: Indexes) -> Iterator[Indexes]:
    """The rows by a byte that differs where they look different: TiCDC's by ``op``, if its numbers
    have as many digits as those of the first row; others by whether they have a row of before."""
    first = texts[int(rows[0])].as_py()
    at = first.find(_OP) + len(_OP) if first.startswith(_TICDC) else len(_BEFORE)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :].astype(np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    kinds = data.take(offsets[rows] + at, mode="clip")
    for kind in np.unique(kinds).tolist():
        yield rows[kinds == kind]


def _read_group(framed: _Framed, rows: Indexes, taking: Taking) -> Indexes:
    """Returns the rest of the rows."""
    texts, places = framed.texts, framed.places
    told = framed.messages.commit_ts
    numbers = None if told is None else told.to_numpy()

    def take(template: Template, part: Indexes) -> Indexes:
        here = some(texts, part)
        is_plain = are_plain(here, np.ones(len(part), np.bool_))
        at: Indexes = np.flatnonzero(is_plain)
        found = read_part(template, some(here, at), places[part[at]])
        return at[found]

    def read_part(template: Template, here: pa.BinaryArray, at: Indexes) -> Indexes:
        walked = template.walked(here, None if numbers is None else numbers[at])
        if template.name not in taking.wanted:
            counted, commit_ts = walked.counted()
            if len(counted):
                taking.count(template.name, at[counted], commit_ts)
            return counted
        key = key_of(template.shape, taking.wanted[template.name])
        found, plain = walked.plain(at, key)
        if len(plain):
            taking.take(template.name, template.shape, found)
        return plain

    return read_alike(texts, rows, framed.template, take)
