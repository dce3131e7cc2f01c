"""Bytes that stand in JSON as a text: in base64, or as Go's ``strconv.Quote`` writes them. Many at
a time, or one.

A value that is no such text makes its row one that is read by itself, where it is refused.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinks.types.casts import base64_texts
from streaming.protocols.json_text.quote_scanner import Indexes, Mask, escapes_in
from streaming.protocols.json_text.strict_json import Malformed

_X, _SHORT_U, _LONG_U = b"xuU"
_PLAIN: Final = np.full(256, -1, np.int16)  # by the letter behind a backslash
for _letter, _byte in zip(b"abfnrtv\\\"'", b"\a\b\f\n\r\t\v\\\"'", strict=True):
    _PLAIN[_letter] = _byte
_HEX: Final = np.full(256, -1, np.int16)
for _digit in b"0123456789abcdefABCDEF":
    _HEX[_digit] = int(chr(_digit), 16)
_WIDTHS: Final = np.full(256, 2, np.int64)
_WIDTHS[_X], _WIDTHS[_SHORT_U], _WIDTHS[_LONG_U] = 4, 6, 10
_ESCAPE: Final = re.compile(
    rb"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL
)


def base64_bytes(text: str) -> bytes:
    """Raises Malformed."""
    try:
        return base64_texts.base64_bytes(text)
    except ValueError as error:
        raise Malformed from error


def from_quoted(texts: pa.StringArray) -> tuple[pa.BinaryArray, Mask | None]:
    """The bytes, and which texts are none (None: all are good)."""
    offsets, data = _parts(texts)
    escapes = escapes_in(data)
    if not len(escapes):
        return texts.cast(pa.binary()), None
    # A backslash that ends a text would be seen as one before the next text's first letter.
    padded = np.concatenate([data, np.zeros(10, np.uint8)])
    letters = padded[escapes + 1]
    value, widths = _PLAIN[letters], _WIDTHS[letters]
    ends = offsets[np.searchsorted(offsets, escapes, side="right")]
    is_hex = letters == _X
    value = np.where(is_hex, _number(padded, escapes + 2, 2), value)
    is_long = (letters == _SHORT_U) | (letters == _LONG_U)
    if (value[~is_long] < 0).any() or (escapes + widths > ends).any():
        return _each(texts)
    made, kept = data.copy(), np.ones(len(data), np.bool_)
    made[escapes[~is_long]] = value[~is_long]
    for width in np.unique(widths).tolist():
        at = escapes[widths == width]
        kept[(at[:, None] + np.arange(1, width)).ravel()] = False
    for at, width in zip(escapes[is_long].tolist(), widths[is_long].tolist(), strict=True):
        try:
            letter = _character(bytes(data[at + 2 : at + width]))
        except Malformed:
            return _each(texts)
        made[at : at + len(letter)] = np.frombuffer(letter, np.uint8)
        kept[at : at + len(letter)] = True
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    bounds = before[offsets]
    is_null = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    return base64_texts.cut_out(made[kept], bounds[:-1], bounds[1:], is_null), None


def quoted_bytes(text: str) -> bytes:
    """Raises Malformed."""
    return _ESCAPE.sub(_unquoted, text.encode())


def _unquoted(found: re.Match[bytes]) -> bytes:
    escape = found[0]
    if len(escape) == 2:
        value = int(_PLAIN[escape[1]])
        if value < 0:
            raise Malformed
        return bytes((value,))
    if len(escape) < 2:
        raise Malformed
    return bytes((int(escape[2:], 16),)) if escape[1] == _X else _character(escape[2:])


def _character(digits: bytes) -> bytes:
    if (_HEX[np.frombuffer(digits, np.uint8)] < 0).any():
        raise Malformed
    try:
        return chr(int(digits, 16)).encode()
    except (ValueError, OverflowError) as error:
        raise Malformed from error


def _number(data: npt.NDArray[np.uint8], at: Indexes, count: int) -> npt.NDArray[np.int16]:
    """The hexadecimal number of so many digits; below zero where there is none."""
    found = np.zeros(len(at), np.int16)
    is_none = np.zeros(len(at), np.bool_)
    for place in range(count):
        digit = _HEX[data[np.minimum(at + place, len(data) - 1)]]
        is_none |= digit < 0
        found = found * 16 + digit
    found[is_none] = -1
    return found


def _parts(texts: pa.StringArray) -> tuple[Indexes, npt.NDArray[np.uint8]]:
    """Offsets from 0 on, and the bytes from the first text's on."""
    raw = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    offsets = raw.astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], data


def _each(texts: pa.StringArray) -> tuple[pa.BinaryArray, Mask | None]:
    found: list[bytes | None] = []
    is_bad = np.zeros(len(texts), np.bool_)
    for number, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else quoted_bytes(text))
        except Malformed:
            found.append(None)
            is_bad[number] = True
    return pa.array(found, pa.binary()), is_bad if is_bad.any() else None
