"""Where events of the log lie, and end: by what they say, else by their sizes. Pure."""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.events import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    Bytes,
    Events,
    Offsets,
    words_of,
)
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import EventType
from streaming.source.binlog.position import BinlogPosition, file_number
from streaming.source.resolved.commit_clock import Numbers

_ARTIFICIAL: Final = 0x20  # flag of an event that stands in no file
MADE_FOR_US: Final = (  # if they say no position
    *(EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST),
    *(EventType.PREVIOUS_GTIDS, EventType.BINLOG_CHECKPOINT, EventType.START_ENCRYPTION),
)
_HEARTBEATS: Final = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
_FILE: Final = re.compile(rb"[^\0]*?\.\d{6,}")
_TOLD_BITS: Final = 32  # of an event's own word about where it ends


def seen_to(data: Bytes, at: Offsets, before: BinlogPosition, lift: int) -> BinlogPosition:
    """Where the last of these events that says so ends: a quick look, before they are walked.
    ``before``: where the events before them end. ``lift``: of the files' numbers."""
    number, offset = before
    words = words_of(data, "<u4")
    kind, told = data[at + 4], words[at + 13].astype(np.int64)
    here = 0
    for rotate in np.flatnonzero(kind == EventType.ROTATE).tolist():
        begin, size = int(at[rotate]), int(words[at[rotate] + 9])
        number, offset = _next_file(
            _rotate_body(data[begin : begin + size].tobytes()), (number, offset), lift
        )
        here = rotate + 1
    ends = told[here:][told[here:] > 0]
    if len(ends):
        return BinlogPosition(number, int(_lifted(ends[-1], np.int64(offset))))
    return BinlogPosition(number, offset)


def _rotate_body(whole: bytes) -> bytes:
    """Without the CRC32, if there is one: its bytes may look like digits of the file's name."""
    has_crc = zlib.crc32(whole[:-CHECKSUM_BYTES]) == int.from_bytes(
        whole[-CHECKSUM_BYTES:], "little"
    )
    return whole[HEADER_BYTES : -CHECKSUM_BYTES if has_crc else None]


def places(events: Events, begin: BinlogPosition, lift: int) -> tuple[Numbers, Numbers, Numbers]:
    """File and offset of each event, and of what comes behind the last; and where each ends.
    ``begin``: of the first. ``lift``: of the files' numbers."""
    count = len(events)
    number = np.full(count + 1, begin.number, np.int64)
    offset = np.full(count + 1, begin.offset, np.int64)
    end = np.empty(count, np.int64)
    told = words_of(events.data, "<u4")[events.at + 13].astype(np.int64)
    flags = words_of(events.data, "<u2")[events.at + 17]
    size = events.stop - events.at
    is_heartbeat = np.isin(events.kind, _HEARTBEATS)
    is_made = (told == 0) & np.isin(events.kind, MADE_FOR_US) | (flags & _ARTIFICIAL != 0)
    size = np.where(is_made | is_heartbeat, 0, size)
    is_known = (told > 0) & ~is_made
    here, at = 0, (begin.number, begin.offset)
    for rotate in [*np.flatnonzero(events.kind == EventType.ROTATE).tolist(), count]:
        stop = min(rotate + 1, count)
        some = slice(here, stop)
        number[some] = at[0]
        ends = _ends_in_file(at[1], size[some], told[some], is_known[some])
        end[some] = ends
        offset[some] = ends - size[some]
        at = at[0], int(ends[-1]) if len(ends) else at[1]
        if rotate < count:
            at = _next_file(events.body(rotate), at, lift)
        here = stop
    number[count], offset[count] = at
    return number, offset, end


def _ends_in_file(
    offset: int, size: Numbers, told: Numbers, is_known: npt.NDArray[np.bool_]
) -> Numbers:
    """Where events of one file end: as they say themselves, else by their sizes. They say 32
    bits of it."""
    expected = offset + np.cumsum(size)
    lifted = _lifted(told, expected)
    nth = np.maximum.accumulate(np.where(is_known, np.arange(len(size)), -1))
    moved = np.where(is_known, lifted - expected, 0)
    return expected + np.where(nth >= 0, moved[nth], 0)


def _lifted(told: Any, expected: Any) -> Any:
    """The offset nearest to ``expected`` that has these low bits."""
    return told + ((expected - told + (1 << (_TOLD_BITS - 1))) >> _TOLD_BITS << _TOLD_BITS)


def _next_file(body: bytes, at: tuple[int, int], lift: int) -> tuple[int, int]:
    named = _FILE.match(body, 8)
    if named is None:
        raise BadEvent("a ROTATE names no file")
    number = file_number(named[0].decode()) + lift
    # The server's word where it begins to send names the place that was asked for.
    return at if number == at[0] else (number, int.from_bytes(body[:8], "little"))
