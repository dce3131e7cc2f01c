"""One connection's log, read in order: bytes come in, whole transactions go out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from conf.sources.binlog_uri import BinlogSettings
from streaming.protocols.clocks import latest_ts
from streaming.source.binlog.commit_clock import Pin
from streaming.source.binlog.database import ServerFacts
from streaming.source.binlog.dump import PACKET_HEAD_BYTES, BinlogDump
from streaming.source.binlog.format.events import Offsets
from streaming.source.binlog.log_walk import MADE_FOR_US, LogPlace, Walked, seen_to, walk
from streaming.source.binlog.position import BinlogPosition

LARGE_BYTES: Final = 64 << 20  # a transaction beyond that is handed out before it ends


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Events, and the bytes in which they lie."""

    data: bytes
    walked: Walked


class LogTail:
    """``place``: where the next stretch begins; its connection has sent everything before."""

    def __init__(self, settings: BinlogSettings, facts: ServerFacts, begin: Pin) -> None:
        """``begin``: of a whole transaction. Connects; raises what `BinlogDump` raises."""
        at = BinlogPosition.of(begin.position)
        self._dump = BinlogDump(settings, facts, at)
        self._buffer = bytearray()
        self._at: list[Offsets] = []  # events in the buffer
        self._packets_end = 0
        self._seen = at  # where the last event in the buffer ends
        self.place = LogPlace(number=at.number, offset=at.offset, after_ts=begin.ts)

    def close(self) -> None:
        self._dump.close()

    def cancel(self) -> None:
        """Called from another thread."""
        self._dump.cancel()

    def next(self, end: int, pins: Sequence[Pin], most_bytes: int) -> Stretch | None:
        """The events up to the position ``end``, or about ``most_bytes`` of them; whole
        transactions, unless one is larger than `LARGE_BYTES`. None where nothing lies between.
        Blocks."""
        most = most_bytes
        while self.place.position < end:
            self._fill(end, most)
            if not self._at:
                continue
            at = np.concatenate(self._at)
            data = bytes(self._buffer[: self._packets_end])
            walked = walk(
                data,
                at,
                self.place,
                pins=pins,
                latest=latest_ts(time.time() * 1e3),
                may_cut=len(data) >= LARGE_BYTES,
            )
            self.place = walked.place
            if walked.count:
                self._drop(at, walked.count)
                return Stretch(data, walked)
            most = max(2 * most, len(data) + most_bytes)  # its transaction is larger
        return None

    def _fill(self, end: int, most_bytes: int) -> None:
        self._look()
        while int(self._seen) < end and len(self._buffer) < most_bytes:
            self._dump.receive(self._buffer)
            self._look()

    def _look(self) -> None:
        """Note the events that stand whole in the buffer."""
        while True:
            at, packets_end = self._dump.starts(self._buffer, self._packets_end)
            if not len(at):
                return
            self._at.append(at)
            self._packets_end = packets_end
            self._seen = seen_to(np.frombuffer(self._buffer, np.uint8), at, self._seen)

    def _drop(self, at: Offsets, count: int) -> None:
        """The first events are handed out."""
        if count == len(at):
            cut, self._at = self._packets_end, []
        else:
            cut = int(at[count]) - PACKET_HEAD_BYTES
            self._at = [at[count:] - cut]
        del self._buffer[:cut]
        self._packets_end -= cut


def event_bytes(settings: BinlogSettings, facts: ServerFacts, at: BinlogPosition) -> bytes:
    """The event at a position, whole. Raises what `BinlogDump` raises."""
    dump, buffer, end = BinlogDump(settings, facts, at), bytearray(), 0
    try:
        while True:
            found, end = dump.starts(buffer, end)
            for begin in found.tolist():
                told = int.from_bytes(buffer[begin + 13 : begin + 17], "little")
                if told or buffer[begin + 4] not in MADE_FOR_US:
                    size = int.from_bytes(buffer[begin + 9 : begin + 13], "little")
                    return bytes(buffer[begin : begin + size])
            if not len(found):
                dump.receive(buffer)
    finally:
        dump.close()
