"""Delta's retention properties: ``interval 1 day 2 hours`` as milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from coordination.errors import TidelakeError

LOG_RETENTION = "delta.logRetentionDuration"
FILE_RETENTION = "delta.deletedFileRetentionDuration"
DAY_MS = 24 * 3600 * 1000
ORPHAN_AGE_MS = 7 * DAY_MS  # of files that no commit names; younger ones may still be committed
_UNITS_MS = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s+([a-z]+?)s?(?=\s|$)", re.IGNORECASE)


def log_retention_ms(properties: Mapping[str, str]) -> int:
    """For how many milliseconds commits and checkpoints are kept (30 days if not set). Raises
    TidelakeError for a property that is no interval."""
    return _property_ms(properties, LOG_RETENTION, 30 * DAY_MS)


def file_retention_ms(properties: Mapping[str, str]) -> int:
    """For how many milliseconds files that were removed from the table are kept (7 days if not
    set). Raises TidelakeError for a property that is no interval."""
    return _property_ms(properties, FILE_RETENTION, 7 * DAY_MS)


@lru_cache(maxsize=256)
def interval_ms(text: str) -> int:
    """The interval in milliseconds. Raises ValueError for a text that is no interval of weeks down
    to microseconds, and for a negative one."""
    rest = re.sub(r"^\s*interval\b", "", text.strip(), flags=re.IGNORECASE)
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or part[2].lower() not in _UNITS_MS:
            raise ValueError(f"no interval: {text!r}")
        total += float(part[1]) * _UNITS_MS[part[2].lower()]
        at = part.end()
    if not rest.strip() or total < 0:
        raise ValueError(f"no interval: {text!r}")
    return int(total)


def _property_ms(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        return interval_ms(text)
    except ValueError as error:
        raise TidelakeError(
            f"the table's property {name} is {text!r}, which is no interval such as "
            "'interval 7 days'; set it with ALTER TABLE … SET TBLPROPERTIES"
        ) from error
