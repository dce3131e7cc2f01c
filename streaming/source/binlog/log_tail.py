"""One connection's log, read in order: bytes come in, whole transactions go out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from conf.sources.binlog_uri import BinlogSettings
from streaming.protocols.clocks import latest_ts
from streaming.source.binlog.database import ServerFacts
from streaming.source.binlog.dump import PACKET_HEAD_BYTES, BinlogDump, TornFile
from streaming.source.binlog.format.events import Event, Offsets, event_at
from streaming.source.binlog.position import FIRST_OFFSET, BinlogPosition
from streaming.source.binlog.walk.event_places import MADE_FOR_US, seen_to
from streaming.source.binlog.walk.log_walk import LogPlace, Walked, walk
from streaming.source.binlog.walk.named_groups import GTID_HEADS
from streaming.source.contract import SourceLost
from streaming.source.resolved.commit_clock import Pin
from streaming.source.resolved.gtid_sets import Trail

STUCK_S: Final = 60.0  # without a step towards the log's end
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
        self._settings, self._facts = settings, facts
        at = BinlogPosition.of(begin.position)
        self._made_s = begin.made_s  # of its file, until that is looked at
        self._begin_at(at, begin.floor_ts, begin.trail)

    def _begin_at(self, at: BinlogPosition, after_ts: int, trail: Trail | None) -> None:
        self._dump = BinlogDump(self._settings, self._facts, at)
        self._buffer = bytearray()
        self._at: list[Offsets] = []  # events in the buffer
        self._packets_end = 0
        self._seen = at  # where the last event in the buffer ends
        self.place = LogPlace(
            number=at.number,
            offset=at.offset,
            after_ts=after_ts,
            lift=self._facts.files.lift,
            trail=trail,
        )

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
            torn = self._fill(end, most)
            if self._at:
                at, data = np.concatenate(self._at), bytes(self._buffer[: self._packets_end])
                walked = walk(
                    data,
                    at,
                    self.place,
                    pins=pins,
                    latest=latest_ts(time.time() * 1e3),
                    end=end,
                    may_cut=len(data) >= LARGE_BYTES,
                    is_torn_file=torn is not None,
                )
                self._check_file(walked.made_s)
                self.place = walked.place
                if walked.count:
                    self._drop(at, walked.count)
                    return Stretch(data, walked)
                most = max(2 * most, len(data) + most_bytes)  # its transaction is larger
            if torn is not None:
                if BinlogPosition.of(end).number <= self.place.number:
                    raise torn  # there is no next file
                self._go_to_next_file()
        return None

    def _check_file(self, made_s: int) -> None:
        """Raise SourceLost if the file is not the one of the pin at which this tail begins."""
        if not made_s:
            return  # its head has not come yet
        expected_s, self._made_s = self._made_s, 0
        if expected_s not in (0, made_s):
            raise SourceLost(
                f"the binlog {self._dump.begin} is another one than the one that was read: the log "
                "was begun anew (RESET MASTER, or a restored backup). Copy the tables anew into "
                "another warehouse"
            )

    def _go_to_next_file(self) -> None:
        """The server has rolled back the transaction whose event it had not written to its end, and
        goes on in its next file."""
        self._dump.close()
        at = BinlogPosition(self.place.number + 1, FIRST_OFFSET)
        self._begin_at(at, self.place.after_ts, self.place.trail)

    def _fill(self, end: int, most_bytes: int) -> TornFile | None:
        """The error where the server can send nothing more of the file."""
        until_s = time.monotonic() + STUCK_S
        try:
            self._look()
            while not self._at or (int(self._seen) < end and len(self._buffer) < most_bytes):
                before = self._seen
                self._dump.receive(self._buffer)
                self._look()
                is_amid = len(self._buffer) > self._packets_end  # of a large event
                if self._seen != before or is_amid:
                    until_s = time.monotonic() + STUCK_S
                elif time.monotonic() > until_s:
                    raise self._dump.away("it does not come to the end that it tells")
        except TornFile as torn:
            return torn
        return None

    def _look(self) -> None:
        """Note the events that stand whole in the buffer."""
        while True:
            at, packets_end = self._dump.starts(self._buffer, self._packets_end)
            if not len(at):
                return
            self._at.append(at)
            self._packets_end = packets_end
            lift = self._facts.files.lift
            self._seen = seen_to(np.frombuffer(self._buffer, np.uint8), at, self._seen, lift)

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
    return _first(settings, facts, at, lambda kind, told: bool(told) or kind not in MADE_FOR_US)


def file_head(settings: BinlogSettings, facts: ServerFacts, number: int) -> Event:
    """The event with the GTIDs that lie before a file. Raises as ``event_bytes``, and BadEvent."""
    at = BinlogPosition(number, FIRST_OFFSET)
    found = _first(settings, facts, at, lambda kind, _: kind in GTID_HEADS)
    return event_at(found, 0, checksum=False)


def _first(
    settings: BinlogSettings,
    facts: ServerFacts,
    at: BinlogPosition,
    is_it: Callable[[int, int], bool],
) -> bytes:
    """The first event from there on that is so, by its kind and where it says that it ends."""
    dump, buffer, end = BinlogDump(settings, facts, at), bytearray(), 0
    try:
        while True:
            found, end = dump.starts(buffer, end)
            for begin in found.tolist():
                told = int.from_bytes(buffer[begin + 13 : begin + 17], "little")
                if is_it(buffer[begin + 4], told):
                    size = int.from_bytes(buffer[begin + 9 : begin + 13], "little")
                    return bytes(buffer[begin : begin + size])
            if not len(found):
                dump.receive(buffer)
    finally:
        dump.close()
