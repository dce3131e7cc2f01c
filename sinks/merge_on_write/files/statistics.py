"""Statistics of a data file, as the JSON text in the log.

Readers skip files by them, so a bound may be too wide but never too narrow. Long text gets a prefix
as its lower bound, and a prefix with the largest character behind it as its upper one; timestamps
are rounded to milliseconds, down and up. Unsafe bounds are left out (decimals, which some readers
take for doubles; bounds with NaN; years beyond 9999): then no file is skipped by them.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sinks.merge_on_write.log.actions import JSON
from sinks.merge_on_write.log.physical_schema import PhysicalColumn, PhysicalSchema

TEXT_PREFIX = 32  # characters
LARGEST = "\U0010ffff"
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the suffix tells the zone
_ROWS = re.compile(r'"numRecords"\s*:\s*(\d+)')
_TELLS_TIGHT = r'"tightBounds"\s*:\s*(?:true|false)'
_TIGHT = re.compile(rf",\s*{_TELLS_TIGHT}|{_TELLS_TIGHT}\s*,?")  # with one of its commas
_WIDE = ',"tightBounds":false}'

Bound = int | float | str | bool | None


def statistics_text(table: pa.Table, shape: PhysicalSchema) -> str:
    """The statistics of a new file with these rows, which have the columns of ``shape``."""
    lowest: dict[str, Bound] = {}
    highest: dict[str, Bound] = {}
    nulls: dict[str, int] = {}
    for column, values in zip(shape.columns, table.columns, strict=True):
        if not column.has_statistics:
            continue
        nulls[column.physical] = values.null_count
        low, high = bounds(values, column)
        if low is not None:
            lowest[column.physical] = low
        if high is not None:
            highest[column.physical] = high
    return JSON.encode(
        {
            "numRecords": table.num_rows,
            "minValues": lowest,
            "maxValues": highest,
            "nullCount": nulls,
            "tightBounds": True,
        }
    )


def widened(stats: str | None, rows: int) -> str:
    """The statistics of a file that gets a deletion vector: the same text, but no longer tight.

    The text of the bounds is not parsed, since doubles might narrow them. A file without statistics
    gets its number of rows (``rows``), which a file with a vector must have.
    """
    if stats is None or _ROWS.search(stats) is None:
        return f'{{"numRecords":{rows},"tightBounds":false}}'
    if stats.endswith(_WIDE):
        return stats  # a file's second vector, or a later one
    head = _TIGHT.sub("", stats, count=1)
    return head.rstrip()[:-1].rstrip() + _WIDE


def rows_in(stats: str | None) -> int | None:
    """How many rows the file has, deleted ones included; None where the statistics lack it."""
    found = None if stats is None else _ROWS.search(stats)
    return None if found is None else int(found[1])


def bounds(values: pa.ChunkedArray, column: PhysicalColumn) -> tuple[Bound, Bound]:
    """Lower and upper bound in the form of the log; None for a bound that would not be safe."""
    kind = column.arrow
    if kind.id not in _ORDERED or values.null_count == len(values):
        return None, None
    if kind.id in _FLOATING and math.isnan(pc.sum(values).as_py()):
        return None, None  # a NaN; or infinite values of both signs, which are no bounds either
    found = pc.min_max(values)
    low, high = found[0], found[1]
    if pa.types.is_timestamp(kind):
        suffix = "Z" if kind.tz else ""
        return _timestamp(low.value // 1000, suffix), _timestamp(-(-high.value // 1000), suffix)
    return _bound(low.as_py(), is_upper=False), _bound(high.as_py(), is_upper=True)


def _bound(value: Any, *, is_upper: bool) -> Bound:
    match value:
        case float():
            return _float(value, is_upper)
        case str():
            return _text(value, is_upper)
        case date():
            return value.isoformat()
        case _:
            return int(value)


def _float(value: float, is_upper: bool) -> Bound:
    if not math.isfinite(value):
        return None
    if value == 0.0:  # 0.0 and -0.0 are equal, but some readers order them
        return 0.0 if is_upper else -0.0
    return value


def _text(value: str, is_upper: bool) -> Bound:
    if len(value) <= TEXT_PREFIX:
        return value
    prefix = value[:TEXT_PREFIX]
    if not is_upper:
        return prefix
    return None if value[TEXT_PREFIX] == LARGEST else prefix + LARGEST


def _timestamp(milliseconds: int, suffix: str) -> str | None:
    try:
        moment = _EPOCH + milliseconds * _MS
    except OverflowError:
        return None
    return f"{moment.isoformat(timespec='milliseconds')}{suffix}"


_FLOATING = frozenset((pa.float32().id, pa.float64().id))
_ORDERED = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.date32(), pa.timestamp("us")),
    )
)  # those types of ``delta_types.arrow_of`` that get bounds
