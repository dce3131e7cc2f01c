"""From canal-json's text to Delta's types (docs/types.md), in Arrow, a column at a time.

Every value of canal-json is a JSON string. A cast here gives the exact value or null; a null that
the source did not send is a failure, and its row a dead letter: nothing is rounded, cut or guessed.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from sinks.casts_dates import cast_dates, cast_datetimes, cast_timestamps
from sinks.casts_numbers import cast_bits, cast_decimals, cast_floats, cast_integers, cast_years
from sinks.casts_texts import cast_bytes, cast_enums, cast_sets, cast_vectors
from sinks.delta_types import INTEGER_BITS, arrow_type
from sinks.schema import BINARY_TYPES, Column, MySQLType
from sinks.text_cells import CastRules, Cells

__all__ = ["CastRules", "Cells", "arrow_type", "cast_cells", "key_cells"]

_COMBINED_BYTES = 1 << 28


def cast_cells(text: pa.Array | pa.ChunkedArray, column: Column, rules: CastRules) -> Cells:
    """The values of a column from its text, in ``arrow_type(column.type)`` and one array.

    ``text`` is a string or large_string array, whole or in chunks, sliced or not; null stays null
    and is no failure. With ``zero_date="null"`` neither is a zero date, which becomes null. Where
    clocks are set back, a TIMESTAMP's text does not tell: the earlier instant is taken.

    Raises ArrowInvalid where one array cannot hold the text of so many rows (2 GiB).
    """
    if not isinstance(text, pa.ChunkedArray):
        return _cast(text, column.type, rules)
    if text.nbytes <= _COMBINED_BYTES:
        return _cast(_in_one_piece(text), column.type, rules)
    return _joined([_cast(chunk, column.type, rules) for chunk in text.chunks])


def key_cells(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """-0.0 as 0.0: one key in MySQL, two to whatever compares bits."""
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return values


def _cast(text: pa.Array, mysql_type: MySQLType, rules: CastRules) -> Cells:
    if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type)):
        text = text.cast(pa.string())
    if text.null_count == len(text):
        return Cells(values=pa.nulls(len(text), arrow_type(mysql_type)), failed=None)
    if (cast_date := _DATES.get(mysql_type.name)) is not None:
        return cast_date(text, rules)
    cast = _CASTS.get(mysql_type.name)
    if cast is None or (arrow_type(mysql_type) == pa.string() and not mysql_type.elements):
        return Cells(values=text.cast(pa.string()), failed=None)
    return cast(text, mysql_type)


def _in_one_piece(text: pa.ChunkedArray) -> pa.Array:
    if text.num_chunks == 1:
        return text.chunk(0)
    return pa.concat_arrays(text.chunks) if text.num_chunks else pa.nulls(0, text.type)


def _joined(parts: list[Cells]) -> Cells:
    failed = None
    if any(part.failed is not None for part in parts):
        failed = pa.concat_arrays(
            pa.repeat(False, len(part.values)) if part.failed is None else part.failed
            for part in parts
        )
    return Cells(values=pa.concat_arrays(part.values for part in parts), failed=failed)


_DATES: dict[str, Callable[[pa.Array, CastRules], Cells]] = {
    "date": cast_dates,
    "datetime": cast_datetimes,
    "timestamp": cast_timestamps,
}
_CASTS: dict[str, Callable[[pa.Array, MySQLType], Cells]] = {
    **dict.fromkeys(INTEGER_BITS, cast_integers),
    **dict.fromkeys(BINARY_TYPES, cast_bytes),
    "bit": cast_bits,
    "year": cast_years,
    "decimal": cast_decimals,
    "float": cast_floats,
    "double": cast_floats,
    "enum": cast_enums,
    "set": cast_sets,
    "vector": cast_vectors,
}
