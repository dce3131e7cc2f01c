"""Texts in base64 to bytes, all of a column at once."""

from __future__ import annotations

import binascii
import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
_PAD: Final = ord("=")
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def from_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, Mask | None]:
    """The bytes, and which texts are none (None: all are good). Such a text and null become
    null."""
    raw = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    offsets = raw.astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    lengths = np.diff(offsets)
    if (lengths % 4).any():
        return _each(texts)
    pads = np.zeros(len(lengths), np.int64)
    filled = np.flatnonzero(lengths)
    for behind in (1, 2):
        pads[filled] += data[offsets[1:][filled] - behind] == _PAD
    whole = data
    if pads.any():
        whole = data.copy()
        for behind in (1, 2):
            whole[offsets[1:][pads >= behind] - behind] = ord("A")
    try:
        found = binascii.a2b_base64(whole.data, strict_mode=True)
    except binascii.Error:
        return _each(texts)
    bounds = offsets // 4 * 3
    is_null = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    return cut_out(np.frombuffer(found, np.uint8), bounds[:-1], bounds[1:] - pads, is_null), None


def base64_bytes(text: str) -> bytes:
    """Raises ValueError."""
    if _BASE64.fullmatch(text) is None:
        raise ValueError("no base64")
    return binascii.a2b_base64(text)


def cut_out(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    is_null: Mask | None,
) -> pa.BinaryArray:
    """The bytes between these places, which rise."""
    flat = np.column_stack((begins, ends)).ravel()
    offsets = pa.py_buffer(flat.astype(np.int32))
    buffers = [None, offsets, pa.py_buffer(np.ascontiguousarray(data))]
    every = pa.Array.from_buffers(pa.binary(), max(0, len(flat) - 1), buffers)
    return every.take(pa.array(np.arange(0, len(flat), 2), mask=is_null))


def _each(texts: pa.StringArray) -> tuple[pa.BinaryArray, Mask | None]:
    found: list[bytes | None] = []
    is_bad = np.zeros(len(texts), np.bool_)
    for number, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else base64_bytes(text))
        except ValueError:
            found.append(None)
            is_bad[number] = True
    return pa.array(found, pa.binary()), is_bad if is_bad.any() else None
