"""Converts local times of a time zone to UTC, a column at a time.

Where clocks are set back, the earlier instant is taken. A time that clocks skip gets the offset
from before the gap (02:30 becomes the instant of 03:30). That is Python's ``fold=0``, and what Java
does. Arrow's own ``assume_timezone`` has no such rule for gaps, and needs the operating system's
time zones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a local time
_MICRO = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# TIMESTAMP ends in 2038 (MySQL, TiDB) or 2106 (MariaDB): changes of a zone are listed until then.
_LISTED = (datetime(1969, 12, 1), datetime(2106, 3, 1))  # noqa: DTZ001
_UTC_MICROS = pa.timestamp("us", tz="UTC")


class _Offsets:
    """A zone's offsets from UTC in microseconds. ``offsets[i]`` holds for local times from
    ``since[i]`` on, until the next one."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        found = list(_changes(zone))
        self.since = np.array([_micros(at) for at, _ in found], np.int64)
        self.offsets = np.array([offset for _, offset in found], np.int64)
        self.end = _micros(_LISTED[1])

    def of(self, local: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | int:
        """The offset of each local time (microseconds), or one number where all have the same.
        ``local`` must not be empty."""
        low, high = int(local.min()), int(local.max())
        if low < self.since[0] or high >= self.end:
            return self._one_by_one(local)
        first, last = np.searchsorted(self.since, [low, high], side="right") - 1
        if first == last:
            return int(self.offsets[first])
        places = np.searchsorted(self.since[first + 1 : last + 1], local, side="right")
        found: npt.NDArray[np.int64] = self.offsets[first : last + 1][places]
        return found

    def _one_by_one(self, local: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The offsets of times outside the list, which no TIMESTAMP of MySQL has."""
        distinct, places = np.unique(local, return_inverse=True)
        found = [_offset(self.zone, _EPOCH + timedelta(microseconds=int(at))) for at in distinct]
        offsets: npt.NDArray[np.int64] = np.array(found, np.int64)[places]
        return offsets


def to_utc(local: pa.Array, time_zone: str) -> pa.Array:
    """The instants of ``local``: timestamps without a zone (microseconds), read in ``time_zone``,
    which is a zone's name or ``+08:00``.

    Raises ZoneInfoNotFoundError (a KeyError) for an unknown zone.
    """
    if len(local) == local.null_count or time_zone.upper() == "UTC":
        return local.cast(_UTC_MICROS)
    offsets = _known(time_zone)
    micros = pc.fill_null(local.view(pa.int64()), 0).to_numpy()
    if local.null_count:  # nulls get a real time, so that they do not widen the range
        present = local.is_valid().to_numpy(zero_copy_only=False)
        micros = np.where(present, micros, micros[np.argmax(present)])
    shifted = pa.array(micros - offsets.of(micros))
    if local.null_count:
        shifted = pc.if_else(local.is_valid(), shifted, pa.scalar(None, pa.int64()))
    return shifted.view(_UTC_MICROS)


@lru_cache(maxsize=16)
def _known(time_zone: str) -> _Offsets:
    return _Offsets(zone_of(time_zone))


def zone_of(name: str) -> tzinfo:
    """The zone for a name or an offset like ``+08:00``. Raises ZoneInfoNotFoundError."""
    if name[0] not in "+-":
        return ZoneInfo(name)
    hours, minutes = int(name[1:3]), int(name[4:6])
    away = timedelta(hours=hours, minutes=minutes)
    return timezone(-away if name[0] == "-" else away)


def _changes(zone: tzinfo) -> Iterator[tuple[datetime, int]]:
    """(local time, offset from then on). Each day is looked at; in a day where the offset changes,
    each hour."""
    begin, end = _LISTED
    yield begin, _offset(zone, begin)
    day, offset = begin, _offset(zone, begin)
    while day < end:
        later = _offset(zone, day + _DAY)
        if later != offset:
            for hour in range(24):
                yield from _change_in(zone, day + hour * _HOUR)
        day, offset = day + _DAY, later


def _change_in(zone: tzinfo, hour: datetime) -> Iterator[tuple[datetime, int]]:
    """The change of the offset within an hour, to the second, if there is one."""
    before, after = hour, hour + _HOUR
    old, new = _offset(zone, before), _offset(zone, after)
    if old == new:
        return
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    yield after, new


def _offset(zone: tzinfo, local: datetime) -> int:
    offset = zone.utcoffset(local)
    assert offset is not None
    return offset // _MICRO


def _micros(local: datetime) -> int:
    return (local - _EPOCH) // _MICRO
