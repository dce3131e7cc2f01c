"""Rows that are written like one of them, read many at a time. That one is read slowly, and is the
*template* of the others; those that differ get a template of their own, or are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from streaming.protocols.json_text.quote_scanner import Indexes

FEW: Final = 48  # so many are read sooner one by one
PART_BYTES: Final = 4 << 20  # of rows that are read at once: larger ones leave the caches
_MAX_TEMPLATES: Final = 16
_MAX_SAMPLES: Final = 16

_Template = TypeVar("_Template")


def read_alike(
    values: pa.BinaryArray,
    places: Indexes,
    template_of: Callable[[int], _Template | None],
    take: Callable[[_Template, Indexes], Indexes],
) -> Indexes:
    """Reads rows of ``values`` at these places; returns the places of the rest.

    ``template_of`` the row at a place: None where it cannot be one. ``take`` reads what is like the
    template among some places, which rise, and returns which of them these were, from 0."""
    rest, skipped = places, list[Indexes]()
    size = max(FEW, len(values) * PART_BYTES // max(1, values.nbytes))
    for _ in range(_MAX_TEMPLATES):
        if len(rest) < FEW:
            break
        template, samples = _first(rest, template_of)
        skipped.append(rest[:samples])
        rest = rest[samples:]
        if template is None:
            break
        is_left = np.ones(len(rest), np.bool_)
        for first in range(0, len(rest), size):
            is_left[first + take(template, rest[first : first + size])] = False
        if is_left[0]:
            skipped.append(rest[:1])
            is_left[0] = False
        rest = rest[is_left]
    return np.concatenate([*skipped, rest])


def _first(
    rest: Indexes, template_of: Callable[[int], _Template | None]
) -> tuple[_Template | None, int]:
    """The template of the first row that can be one, and the number of rows before it."""
    for samples, place in enumerate(rest[:_MAX_SAMPLES].tolist()):
        template = template_of(place)
        if template is not None:
            return template, samples
    return None, 0
