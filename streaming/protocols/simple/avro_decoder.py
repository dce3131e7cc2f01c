"""Messages of simple in Avro, into what a chunk has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.protocols.avro_binary.byte_walk import Indexes
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.rows.blocks import Collector, key_of
from streaming.protocols.rows.parsed_message import ParsedRow, Shape
from streaming.protocols.rows.row_arrays import RowArrays
from streaming.protocols.simple.avro_heads import RowHeads
from streaming.protocols.simple.avro_maps import Names, Zone
from streaming.protocols.simple.avro_reader import MESSAGE, read, shape_of, typed_alike
from streaming.protocols.simple.avro_rows import PlainRows, rows_of

START: Final = bytes([2 * MESSAGE])  # of every message; no JSON begins so
FEW: Final = 48  # so many are read sooner one by one
PART_BYTES: Final = 4 << 20  # of messages that are read at once: larger ones leave the caches
_MAX_SAMPLES: Final = 16


def take_avro(values: pa.BinaryArray, positions: Indexes, collector: Collector) -> None:
    """``positions``: of the messages that are in Avro. As `decoder.decode`."""
    if not len(positions):
        return
    mine = some(values, positions)
    heads = RowHeads.read(mine)
    is_left = np.ones(len(positions), np.bool_)
    for name, version, rows in heads.tables():
        if name not in collector.wanted:
            collector.count(name, positions[rows], heads.commit_ts[rows])
            is_left[rows] = False
        elif len(rows) >= FEW:
            key = key_of(shape_of((), version, ()), collector.wanted[name])
            for shape, plain in _plain_rows(mine, heads, version, rows, key):
                is_left[plain.positions] = False
                moved = replace(
                    plain,
                    positions=positions[plain.positions],
                    checksums=heads.checksums_of(plain.positions),
                )
                collector.take(name, shape, moved)
    at = np.flatnonzero(is_left)
    each = [read(value.as_py()) for value in some(mine, at)]
    collector.keep_each(positions[at], typed_alike(each))


def _plain_rows(
    values: pa.BinaryArray,
    heads: RowHeads,
    version: int,
    rows: Indexes,
    key: Sequence[str] | None,
) -> Iterator[tuple[Shape, RowArrays]]:
    """Those of one table and version."""
    columns = _columns(values, rows)
    names = Names.of(columns) if columns else None
    if names is None:
        return
    zone = Zone()
    size = max(FEW, len(values) * PART_BYTES // max(1, values.nbytes))
    pieces = []
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        pieces.append(PlainRows.read(heads, part, names, zone))
    yield from rows_of(pieces, columns, version, zone, key)


def _columns(values: pa.BinaryArray, rows: Indexes) -> tuple[str, ...]:
    """The columns of the first row that is one; none where no row is."""
    for row in rows[:_MAX_SAMPLES].tolist():
        event = read(values[row].as_py())
        if isinstance(event, ParsedRow):
            return event.shape.columns
    return ()
