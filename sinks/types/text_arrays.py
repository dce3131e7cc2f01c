"""Arrow text arrays seen through their buffers: quick checks that casts make on a column's text.

Arrow's casts of strings accept more than is a value here (hexadecimal, ``+1``, ``nan``, a bare
date), and raise for the whole array at the first text that they refuse. So a cast first checks by
the bytes of the whole column that it holds nothing which Arrow accepts and we do not; that costs a
tenth of the cast. Only where this check or Arrow's cast fails, a regular expression looks at each
text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CastRules:
    """``time_zone``: that of TIMESTAMP texts, a zone's name or ``+08:00``. ``zero_date``: whether a
    date that Delta does not have (``casts/dates.py``) becomes null or is a failure.
    ``ddl_time_zone``: that of the sessions which run DDLs; None: nobody has said, and it is taken
    to be ``time_zone``. ``are_encoded``: bytes are in base64, not ISO-8859-1."""

    time_zone: str
    zero_date: Literal["null", "fail"]
    ddl_time_zone: str | None = None
    are_encoded: bool = False
    mask_salt: bytes = field(default=b"", repr=False)  # before a value that is hashed (`masks`)

    @property
    def of_ddl(self) -> Self:
        """The rules for values that a DDL makes: TIMESTAMPs are those of its session."""
        return replace(self, time_zone=self.ddl_time_zone or self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class CastColumn:
    """A column's values in its Arrow type, and which texts could not be cast.

    Both are as long as the text array was, and where ``failed`` is true the value is null.
    ``failed`` has no nulls; it is None where nothing failed.
    """

    values: pa.Array
    failed: pa.BooleanArray | None


def offsets(text: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """Where each text begins in the data buffer; the last entry is where the last text ends."""
    kind = np.dtype(np.int64 if pa.types.is_large_string(text.type) else np.int32)
    buffer = text.buffers()[1]
    return np.frombuffer(buffer, kind, len(text) + 1, text.offset * kind.itemsize)


def data(text: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all texts, one after the other. A null may have bytes too, but mostly has
    none."""
    bounds = offsets(text)
    first, last = int(bounds[0]), int(bounds[-1])
    if first == last:
        return np.empty(0, np.uint8)
    return np.frombuffer(text.buffers()[2], np.uint8, last - first, first)


def is_within(text: pa.Array, lowest: str, highest: str) -> bool:
    """Whether every byte lies between two ASCII characters, ends included. Bytes of nulls count,
    so False does not prove that a text has another character."""
    found = data(text)
    return not len(found) or bool(found.min() >= ord(lowest) and found.max() <= ord(highest))


def is_valid(text: pa.Array) -> Mask:
    return as_mask(text.is_valid())


def as_mask(found: pa.Array) -> Mask:
    """A boolean array as a NumPy mask; null is false."""
    if found.null_count:
        found = pc.fill_null(found, False)
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def spans(text: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Where the texts that are not null begin and end in the data buffer."""
    bounds = offsets(text)
    if not text.null_count:
        return bounds[:-1], bounds[1:]
    valid = is_valid(text)
    return bounds[:-1][valid], bounds[1:][valid]


def bytes_at(text: pa.Array, positions: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes at positions of the data buffer, as ``spans`` counts them."""
    found: npt.NDArray[np.uint8] = np.frombuffer(text.buffers()[2], np.uint8)[positions]
    return found


def matches(text: pa.Array, pattern: str) -> Mask:
    """Which texts match a regular expression (RE2) as a whole; null does not."""
    return as_mask(pc.match_substring_regex(text, f"^(?:{pattern})$"))


def only(text: pa.Array, keep: Mask) -> pa.Array:
    """The same texts, with null where ``keep`` is false. Copies no bytes: nulls keep theirs."""
    width = 8 if pa.types.is_large_string(text.type) else 4
    _, bounds, bytes_ = text.buffers()
    bounds = bounds.slice(text.offset * width, (len(text) + 1) * width)
    return pa.Array.from_buffers(
        text.type, len(text), [pa.array(keep).buffers()[1], bounds, bytes_]
    )


def without_hidden(text: pa.Array) -> pa.Array:
    """The same texts, copied where needed so that nulls have no bytes."""
    begin, end = spans(text)
    if int((end - begin).sum()) == len(data(text)):
        return text
    return text.take(pa.array(np.arange(len(text))))


def try_cast(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Arrow's cast, or None where it refuses a text."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def cast_result(values: pa.Array, text: pa.Array, fine: Mask) -> CastColumn:
    """The result for ``values``, which are null if not ``fine``. A text that the source sent (not
    null) and that is not ``fine`` has failed."""
    lost = is_valid(text) & ~fine
    return CastColumn(values=values, failed=pa.array(lost) if lost.any() else None)


def nullified(values: pa.Array, keep: Mask) -> pa.Array:
    """The values, with null where ``keep`` is false."""
    return pc.if_else(pa.array(keep), values, pa.scalar(None, values.type))
