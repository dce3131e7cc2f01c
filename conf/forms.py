"""The forms that values of settings must have: IDs, addresses, time zones, TSOs."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

ID_MAX_LENGTH = 128
_ID = re.compile(r"^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$")  # TiCDC's rule
_ADDRESS = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):([0-9]{1,5})$")
_OFFSET = re.compile(r"^[+-](0\d|1[0-8]):[0-5]\d$")
LOGICAL_BITS: Final = 18
_FROM_S: Final = 1_262_304_000  # 2010: TiDB is younger
_UNTIL_S: Final = 4_102_444_800  # 2100
_UNITS: Final = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def is_id(text: str) -> bool:
    """TiCDC's rule for the IDs of changefeeds and clusters."""
    return len(text) <= ID_MAX_LENGTH and _ID.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether it is ``host:port``. A port above 65535 must not come to the socket's functions,
    which take another one for it in silence."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[2]) < 65536


def is_time_zone(name: str) -> bool:
    """Whether it is the name of a zone, or an offset such as +08:00."""
    if _OFFSET.match(name):
        return True
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown; a folder of zones; an absolute path
        return False
    return True


def other_unit(ts: int) -> str | None:
    """A sentence on a number that is no TSO but a time, such as seconds since 1970; else None. Read
    as a TSO it would be a moment of 1970, or of the far future."""
    if ts % (1 << LOGICAL_BITS) == 0:  # a TSO that was made of a time
        return None
    for unit, per_s in _UNITS.items():
        if _FROM_S <= ts / per_s < _UNTIL_S:
            return _advice(ts, f"{unit} since 1970", ts * 1000 // per_s)
    if len(str(ts)) == 14:
        with suppress(ValueError):
            at = datetime.strptime(str(ts), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            return _advice(ts, "a date and time", int(at.timestamp()) * 1000)
    return None


def _advice(ts: int, what: str, ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return (
        f"{ts} looks like {what} ({at:%Y-%m-%d %H:%M:%S} UTC), and is no TSO: the TSO of that time "
        f"is {ms << LOGICAL_BITS} (milliseconds since 1970, times 2^{LOGICAL_BITS})"
    )
