"""The columns of row images that begin at given places, each for all images at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.source.binlog.format.cells.column import Column
from streaming.source.binlog.format.cells.layout import Mask, lengths, width_of
from streaming.source.binlog.format.cells.moment_cells import (
    date_cells,
    datetime_cells,
    time_cells,
    timestamp_cells,
)
from streaming.source.binlog.format.cells.number_cells import (
    bit_cells,
    decimal_cells,
    float_cells,
    integer_cells,
    year_cells,
)
from streaming.source.binlog.format.cells.reading import Reading
from streaming.source.binlog.format.cells.text_cells import (
    character_cells,
    enum_cells,
    geometry_cells,
    json_cells,
    set_cells,
    vector_cells,
)
from streaming.source.binlog.format.events import Offsets
from streaming.source.binlog.format.type_codes import ColumnType

_READERS: Final[Mapping[int, Callable[[Reading, Column, Offsets, Mask | None], pa.Array]]] = {
    ColumnType.TINY: integer_cells,
    ColumnType.SHORT: integer_cells,
    ColumnType.INT24: integer_cells,
    ColumnType.LONG: integer_cells,
    ColumnType.LONGLONG: integer_cells,
    ColumnType.FLOAT: float_cells,
    ColumnType.DOUBLE: float_cells,
    ColumnType.DECIMAL: decimal_cells,
    ColumnType.BIT: bit_cells,
    ColumnType.YEAR: year_cells,
    ColumnType.DATE: date_cells,
    ColumnType.DATETIME: datetime_cells,
    ColumnType.TIMESTAMP: timestamp_cells,
    ColumnType.TIME: time_cells,
    ColumnType.ENUM: enum_cells,
    ColumnType.SET: set_cells,
    ColumnType.STRING: character_cells,
    ColumnType.VARCHAR: character_cells,
    ColumnType.VARCHAR_COMPRESSED: character_cells,
    ColumnType.BLOB: character_cells,
    ColumnType.BLOB_COMPRESSED: character_cells,
    ColumnType.JSON: json_cells,
    ColumnType.GEOMETRY: geometry_cells,
    ColumnType.VECTOR: vector_cells,
}


def row_cells(
    reading: Reading,
    at: Offsets,
    columns: tuple[Column, ...],
    wanted: Collection[str] | None = None,
) -> dict[str, pa.Array]:
    """By column, in table order; all columns, or those that are ``wanted``. The images are whole
    (`layout.image_starts`). Values that cannot be read are NULL, and noted in ``reading``."""
    found: dict[str, pa.Array] = {}
    bitmaps = [reading.data[at + byte] for byte in range((len(columns) + 7) // 8)]
    some_null = [int(np.bitwise_or.reduce(bitmap)) for bitmap in bitmaps]
    place = at + len(bitmaps)
    for number, column in enumerate(columns):
        byte, bit = number >> 3, number & 7
        is_null = None
        if column.is_nullable and some_null[byte] >> bit & 1:
            is_null = (bitmaps[byte] >> bit & 1).astype(np.bool_)
        if wanted is None or column.name in wanted:
            found[column.name] = _READERS[column.type](reading, column, place, is_null)
        width, prefix = width_of(column)
        size = prefix + lengths(reading.data, place, prefix) if prefix else width
        place = place + (size if is_null is None else np.where(is_null, 0, size))
    return found
