"""Keys as numbers, for the key index to sort and search.

A key of one integer, date or timestamp column is that number. Every other key (text, decimals,
several columns) becomes a 128-bit hash over the canonical bytes of its values. Their lengths and
their order count, so that ``("a", "bc")`` and ``("ab", "c")`` differ. The hash has a random seed in
each process, so keys cannot be made to collide on purpose. Keys that are equal to Delta (0.0 and
-0.0, any NaN) have one canonical form, and so has NULL, which is a value where all columns are the
key. NumPy works on all rows at once, without a loop over them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ordinals = npt.NDArray[np.int64]


Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Part = npt.NDArray[np.int64] | Words

SEEDS: Words = np.frombuffer(os.urandom(16), dtype=np.uint64)  # of this process
_STEPS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)  # odd: a bijection
_MIX = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], dtype=np.uint64)
_WORD = 8  # bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of rows as numbers, one entry per row.

    A key that is one number is ``first``, which is then ordered as the key is; ``second`` is 1 for
    NULL, else 0. A hash has its halves in ``first`` and ``second``. None: all of ``second`` is 0.
    """

    first: Part
    second: Words | None

    def __len__(self) -> int:
        return len(self.first)


_PAIR = np.dtype([("first", np.uint64), ("second", np.uint64)])


def pairs_of(keys: Keys) -> npt.NDArray[np.void]:
    """Each key as one value, alike for keys with a NULL among them and without."""
    both = np.empty(len(keys), _PAIR)
    both["first"] = keys.first.view(np.uint64)
    both["second"] = 0 if keys.second is None else keys.second
    return both


def is_numeric(types: Sequence[pa.DataType]) -> bool:
    """Whether a key of these column types is one number, and so is not hashed."""
    (only, *more) = types
    return not more and (
        pa.types.is_signed_integer(only) or pa.types.is_date32(only) or pa.types.is_timestamp(only)
    )


def keys_of(arrays: Sequence[pa.Array], seeds: Words = SEEDS) -> Keys:
    """The keys of rows. ``arrays``: the key columns in the key's order, in the table's types.
    ``seeds``: those of another process, for hashes to compare with its."""
    if not len(arrays[0]):
        return Keys(np.empty(0, np.int64), None)
    if is_numeric([array.type for array in arrays]):
        nulls = _is_null(arrays[0]).astype(np.uint64) if arrays[0].null_count else None
        return Keys(_numbers(arrays[0]), nulls)
    halves = [np.full(len(arrays[0]), seed, np.uint64) for seed in seeds]
    for array in arrays:
        _absorb_or_null(halves, array)
    return Keys(_finish(halves[0]), _finish(halves[1]))


def _is_null(array: pa.Array) -> Mask:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    if not pa.types.is_integer(array.type):
        width = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
        array = array.cast(width) if pa.types.is_date32(array.type) else array.view(width)
    filled = pc.fill_null(array, 0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def _absorb_or_null(halves: list[Words], array: pa.Array) -> None:
    """As ``_absorb``; a NULL mixes in a number that no value does."""
    if not array.null_count:
        _absorb(halves, array)
        return
    rows = np.flatnonzero(_is_null(array))
    nulls = [half[rows] for half in halves]
    for word in _MIX:
        _step(nulls, np.full(len(rows), word))
    _absorb(halves, array)
    for half, mixed in zip(halves, nulls, strict=True):
        half[rows] = mixed


def _absorb(halves: list[Words], array: pa.Array) -> None:
    """Mix one column into both halves of every row's hash. The number that a NULL mixes in means
    nothing."""
    kind = array.type
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    ):
        _absorb_bytes(halves, array.cast(pa.large_binary()))
    elif pa.types.is_decimal(kind):
        for word in _decimal_words(array):
            _step(halves, word)
    elif pa.types.is_floating(kind):
        _step(halves, _float_words(array))
    elif pa.types.is_list(kind):
        _absorb_bytes(halves, _list_bytes(array))
    elif pa.types.is_boolean(kind):
        _step(halves, _numbers(array.cast(pa.int8())).view(np.uint64))
    else:
        _step(halves, _numbers(array).view(np.uint64))


def _float_words(array: pa.Array) -> Words:
    values = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False)).copy()
    values[np.isnan(values)] = np.nan
    values += 0.0  # -0.0 + 0.0 is 0.0
    return values.view(np.uint64)


def _list_bytes(array: pa.Array) -> pa.Array:
    """The numbers of each list, one after the other."""
    words = _float_words(array.values)
    offsets = array.offsets.to_numpy().astype(np.int64) * _WORD
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def _decimal_words(array: pa.Array) -> tuple[Words, Words]:
    """The two words of each decimal128: equal values of a column have the same sixteen bytes."""
    wide = array.cast(pa.decimal128(38, array.type.scale)) if array.type.bit_width < 128 else array
    data = np.frombuffer(wide.buffers()[1], dtype=np.uint64)
    words = data[2 * wide.offset : 2 * (wide.offset + len(wide))]
    low, high = words[0::2].copy(), words[1::2].copy()
    if wide.null_count:
        dead = ~np.asarray(pc.is_valid(wide).to_numpy(zero_copy_only=False))
        low[dead] = high[dead] = 0
    return low, high


def _absorb_bytes(halves: list[Words], array: pa.Array) -> None:
    """Mix in texts or bytes: their lengths, then eight bytes of every value at a time."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(array) else (0, 0)
    content = np.zeros(last - first + _WORD, np.uint8)
    if last > first:
        content[: last - first] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
    starts = starts - first
    words_at = np.ndarray((last - first + 1,), "<u8", buffer=content, strides=(1,))
    _step(halves, lengths.astype(np.uint64))
    longest = int(lengths.max()) if len(lengths) else 0
    rows: npt.NDArray[np.intp] | None = None  # the rows that have bytes left; None: all rows
    for at in range(0, longest, _WORD):
        if rows is None and (lengths > at).all():
            left = lengths - at
            _step(halves, words_at[starts + at] & _tail_mask(left))
            continue
        rows = np.flatnonzero(lengths > at) if rows is None else rows[lengths[rows] > at]
        word = words_at[starts[rows] + at] & _tail_mask(lengths[rows] - at)
        part = [half[rows] for half in halves]
        _step(part, word)
        for half, mixed in zip(halves, part, strict=True):
            half[rows] = mixed


def _tail_mask(left: npt.NDArray[np.int64]) -> Words:
    """Which bits of the next eight bytes belong to values that have ``left`` more bytes."""
    bits = np.minimum(left, _WORD).astype(np.uint64) * np.uint64(8)
    return np.where(
        bits == 64, ~np.uint64(0), (np.uint64(1) << (bits % np.uint64(64))) - np.uint64(1)
    )


def _step(halves: list[Words], word: Words) -> None:
    """Mix one more word of every row into both halves, differently, in place."""
    for number, half in enumerate(halves):
        mixed = word * _STEPS[number]
        mixed ^= mixed >> np.uint64(29 + 4 * number)
        half ^= mixed * _MIX[number]
        turned = half << np.uint64(27 + 4 * number)
        half >>= np.uint64(37 - 4 * number)
        half |= turned
        half *= _STEPS[1 - number]
        half += _MIX[1 - number]


def _finish(half: Words) -> Words:
    for constant in _MIX:
        half ^= half >> np.uint64(33)
        half *= constant
    half ^= half >> np.uint64(33)
    return half
