"""Which columns the images of row events have. An event tells it by a bitmap for its old images
and one for its new ones, and an image has a NULL bit for the columns alone that are there.

A server may leave out what nobody changed (``binlog_row_image``); MariaDB from 11 on leaves out
generated columns, too, but of INSERTs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streaming.source.binlog.format.events import Events, Offsets
from streaming.source.binlog.format.rows.maps_in_force import members
from streaming.source.binlog.format.type_codes import IS_UPDATE

ColumnNumbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """The columns of the old images and of the new ones, by rising number. An event that has but
    one image of each row counts as if it had both."""

    before: ColumnNumbers
    after: ColumnNumbers


def by_columns(
    events: Events, numbers: Offsets, begin: Offsets, count: int
) -> Iterator[tuple[Present, Offsets]]:
    """Which of these events have images with the same columns, as places in ``numbers``.
    ``begin``: where the first image of each begins, behind the bitmaps. ``count``: the table's
    columns."""
    if not len(numbers):
        return
    width = (count + 7) // 8
    at = begin[:, np.newaxis] - width + np.arange(width)
    after = events.data[at]
    before = events.data[at - np.where(IS_UPDATE[events.kind[numbers]], width, 0)[:, np.newaxis]]
    used = np.packbits(np.arange(8 * width) < count, bitorder="little")
    bits = np.hstack((before & used, after & used))
    if (bits == bits[0]).all():
        kinds, kind = bits[:1], np.zeros(len(numbers), np.int64)
    else:
        kinds, kind = np.unique(bits, axis=0, return_inverse=True)
    for some, those in zip(kinds, members(kind.reshape(-1), len(kinds)), strict=True):
        there = np.unpackbits(some.reshape(2, width), axis=1, count=count, bitorder="little")
        old, new = (tuple(np.flatnonzero(each).tolist()) for each in there)
        yield Present(old, new), those
