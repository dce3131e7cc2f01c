"""Which texts of an array are plain: UTF-8 without a control character, as JSON demands."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.protocols.json_text.quote_scanner import Indexes, Mask

_BLANK: Final = 32  # all below are control characters


def are_plain(values: pa.BinaryArray, likely: Mask) -> Mask:
    """Those of the likely ones that are plain."""
    plain = likely.copy()
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    data = values.buffers()[2]
    text = np.frombuffer(data if data is not None else b"", np.uint8)[: offsets[-1]]
    controls = np.flatnonzero(text[offsets[0] :] < _BLANK) + offsets[0]
    if len(controls):
        plain[np.searchsorted(offsets, controls, side="right") - 1] = False
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        for position in np.flatnonzero(plain).tolist():
            plain[position] = _is_utf8(values[position].as_py())
    return plain


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def some(values: pa.Array, positions: Indexes) -> pa.Array:
    """The messages at rising positions, without a copy where they are all or side by side."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return values.slice(int(positions[0]), len(positions))
    return values.take(pa.array(positions))
