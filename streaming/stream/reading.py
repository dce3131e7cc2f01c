"""The part of a run that the reading thread owns: how far the source is read, and how the next read
is made.

    ends ─► one Spark job ─► blocks ─► is it still the same source? ─► a `Read`, and the place after
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from streaming.changefeed.refused.foreign_messages import ForeignMessages
from streaming.jobs.port import Jobs
from streaming.protocols.clocks import beyond_ts
from streaming.protocols.contract import Wanted
from streaming.source.contract import Reader, ReadOrder, Source, SourceMoved, SourceShape
from streaming.source.positions import NO_POSITIONS, Positions
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.stream.idle_time import IdleTime
from streaming.stream.read import Read, marks_of, nothing_read, reached
from streaming.stream.role import StreamContext

ROW_EVERY_S: Final = 0.5  # between two looks at the changefeed's row, where it says how far to read
PARTS_EVERY_S: Final = 5.0  # between two looks for new parts, while nothing comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a stream: the source as it was last looked at, the next position of each part,
    and W there."""

    shape: SourceShape
    position: Positions
    limits: Limits


class Reading:
    """For the reading thread, except for ``cancel``, ``quiet_s`` and ``beside``."""

    def __init__(self, context: StreamContext, source: Source, begin: Place) -> None:
        self._context = context
        self._source = source
        self._is_first = True
        self._reader: Reader | None = None
        self._beside = threading.Lock()
        self._beside_reader: Reader | None = None
        self._foreign = ForeignMessages(source)
        self._idle = IdleTime()
        self.place = begin
        self._looks_at_s = 0.0
        self._parts_at_s = time.monotonic() + PARTS_EVERY_S
        # The watermarks and the low water in the row, as its owner knows them. Any thread sets it.
        self.stored: tuple[Marks, Positions] = {}, NO_POSITIONS
        self._looked_at: Marks = {}  # the row's watermarks, where the owner is elsewhere
        self._owner: object | None = None  # for whom the last read was numbered

    def connect(self, jobs: Jobs) -> None:
        """Jobs can run now."""
        self._reader = self._context.reader(self._source, jobs)

    def cancel(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    def close(self) -> None:
        self._source.close()
        if self._reader is not None:
            self._reader.close()
        with self._beside:
            if self._beside_reader is not None:
                self._beside_reader.close()

    def next(self, wanted: Wanted, *, owner: object | None) -> Read | None:
        """Read on, and be behind that; None where nothing has come. ``owner``: the owner's role, if
        it reads here. Raises SourceChanged, SourceMoved, and what reading raises: then the place
        stays."""
        begun_s = time.monotonic()
        if self._source.is_numbered:
            self._number_for(owner)
        known = place = self.place
        if owner is not None:
            marks, low_water = self.stored
            stored = Stored(marks, is_ours=True, low_water=low_water)
        else:  # what is read is numbered by what is stored
            stored = Stored(self._looked_at, is_ours=False)
            told = self._source.settled(place.shape, place.limits, place.position, stored)
            known = replace(place, limits=told)
        ends = self._source.reach(self._source.ends(place.shape.parts), stored)
        ends_ms = (time.monotonic() - begun_s) * 1e3
        first_messages = self._context.batch.first_messages if self._is_first else 0
        self._is_first = False
        assert self._reader is not None
        read = self._settled(
            self._read(self._reader, known, ends, wanted, first_messages=first_messages), stored
        )
        if read is None:
            self._idle.nothing_came(place.position)
            self._look_for_parts()
            return None
        self._source.check_unchanged(place.shape)
        self._idle.came(read)
        self.place = replace(place, position=dict(read.position), limits=read.watermarks)
        return replace(read, ends_ms=ends_ms, owner=owner)

    def _look_for_parts(self) -> None:
        """Raises SourceChanged where there are more, though nothing has come to those that are
        read. Where watermarks come, they come to these too."""
        if self._source.is_numbered and (now_s := time.monotonic()) >= self._parts_at_s:
            self._parts_at_s = now_s + PARTS_EVERY_S
            self._source.check_unchanged(self.place.shape)

    def reshape(self) -> None:
        """Parts were added to the source: they are read from their beginning, and all others from
        where reading is."""
        shape = self._source.shape()
        position = self._source.begin_at(shape, self.place.position)
        self._source.tell_of(shape, position)
        above_ts = beyond_ts(time.time() * 1e3)
        limits = self.place.limits.with_parts(shape.parts, above_ts).advance({}, position)
        self.place = Place(shape=shape, position=position, limits=limits)

    def beside(self, jobs: Jobs, begin: Positions, ends: Positions, wanted: Wanted) -> Read | None:
        """One read from ``begin`` towards ``ends``, on the caller's thread; None where nothing lies
        between. It blocks, and one such read is made at a time."""
        with self._beside:
            if self._beside_reader is None:
                self._beside_reader = self._context.reader(self._source, jobs)
            place = replace(self.place, position=begin)
            return self._read(self._beside_reader, place, ends, wanted)

    def failed(self) -> None:
        self._idle.failed()

    @property
    def rest_s(self) -> float:
        """The time until the next look, if there is nothing to read."""
        return self._idle.rest_s

    def quiet_s(self, taken: Positions) -> float:
        """For how long there has been nothing beyond ``taken``."""
        return self._idle.lasts_s(taken)

    def _read(
        self,
        reader: Reader,
        place: Place,
        ends: Positions,
        wanted: Wanted,
        *,
        first_messages: int = 0,
    ) -> Read | None:
        """Read with one Spark job; None where nothing lies between."""
        begin = place.position
        if all(ends.get(part, at) <= at for part, at in begin.items()):
            return None
        begun_s = time.monotonic()
        found = reader.read(
            ReadOrder(
                begin=begin,
                ends=ends,
                wanted=wanted,
                identities=place.shape.identities,
                limits=place.limits,
                messages=self._context.batch.max_messages,
                first_messages=first_messages,
            )
        )
        blocks = tuple(found)
        self._foreign.refuse(blocks)
        end = reached(blocks)
        position, began = {**begin, **end}, {part: begin[part] for part in end}
        return Read(
            begin=began,
            end=end,
            position=position,
            watermarks=place.limits.advance(marks_of(blocks), position),
            blocks=blocks,
            messages=self._source.distance(began, end),
            rows_wait=any(position[part] < at for part, at in ends.items()),
            job_ms=(time.monotonic() - begun_s) * 1e3,
        )

    def _number_for(self, owner: object | None) -> None:
        """Before a read of a numbered source. An owner that comes numbers what is behind this place
        as a start here would: by the row. What was numbered above pins of an owner that went, and
        that it has not stored, others number otherwise."""
        if owner is not self._owner:
            limits = self.place.limits
            assert isinstance(limits, PinnedLimits)
            if self._owner is not None and limits.has_unstored:
                raise SourceMoved(
                    f"stream {self._context.name} has numbered changes for an owner that is gone, "
                    "and has not stored how: they are read and numbered anew"
                )
            if owner is not None:
                shape, at = self.place.shape, self.place.position
                told = self._source.limits(shape, self.stored[0]).advance({}, at)
                self.place = replace(self.place, limits=told)
            self._owner = owner
        if owner is None and time.monotonic() >= self._looks_at_s:
            self._looked_at = self._context.recorded()
            self._looks_at_s = time.monotonic() + ROW_EVERY_S

    def _settled(self, read: Read | None, stored: Stored) -> Read | None:
        """The read, with the facts after it that only the source can tell. If there is no read and
        that is news, it is a read of nothing."""
        place = self.place
        limits = place.limits if read is None else read.watermarks
        position = place.position if read is None else read.position
        known = self._source.settled(place.shape, limits, position, stored)
        if known == limits:
            return read
        return replace(read or nothing_read(position), watermarks=known)
