"""Many values of one column, read by the name that their schema has (``columns.py``, one value at a
time). The same cells, or the row is left to whoever reads it alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.base64_texts import from_base64
from streaming.protocols.debezium.columns import Cell, NotRead, reader_of
from streaming.protocols.debezium.envelope import Fields
from streaming.protocols.json_text.quote_scanner import Indexes, Mask
from streaming.protocols.json_text.strict_json import Malformed, Number
from streaming.protocols.json_text.value_walk import Read, no_values

_WHOLE: Final = r"^(?:0|-?[1-9][0-9]{0,17})$"
_WHOLE_MS: Final = r"^(?:0|-?[1-9][0-9]{0,14})$"  # their µs have 64 bits
_TRUTH: Final = {"true": True, "false": False}
_FIRST_US, _BEYOND_US = -62_135_596_800_000_000, 253_402_300_800_000_000  # the years 1 to 9999
_SECOND_US: Final = 1_000_000
_MOST_BYTES: Final = 8  # of a decimal that is read here
_BYTE: Final = 8


def readers_of(columns: tuple[str, ...], fields: Mapping[str, Fields]) -> Mapping[str, Read]:
    """They are of the columns whose values are not as they are written."""
    found = {name: _array_reader(fields[name]) for name in columns if name in fields}
    return {name: read for name, read in found.items() if read is not None}


def _array_reader(field: Fields) -> Read | None:
    one = reader_of(field)
    if one is None:
        return None
    name = str(field.get("name") or "")
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = field.get("parameters")
        scale = str((parameters if isinstance(parameters, dict) else {}).get("scale") or "0")
        if scale.isascii() and scale.isdigit() and len(scale) < 3:
            return partial(_decimals, one, int(scale))
    return _ARRAYS.get(name) or partial(_each, one)


def _each(one: Cell, texts: pa.StringArray, is_bare: Mask) -> tuple[pa.StringArray, Mask | None]:
    """One by one."""
    found, is_bad = list[str | None](), np.zeros(len(texts), np.bool_)
    bad = no_values(texts, is_bare)
    for at, (text, bare) in enumerate(zip(texts.to_pylist(), is_bare.tolist(), strict=True)):
        value: Any = text
        if bare:
            value = _TRUTH[text] if text in _TRUTH else Number(text)
        try:
            found.append(None if value is None else one(value))
        except (NotRead, Malformed):
            found.append(None)
            is_bad[at] = True
    if bad is not None:
        is_bad |= bad
    return pa.array(found, pa.string()), is_bad if is_bad.any() else None


def _micros(
    texts: pa.StringArray, is_bare: Mask, *, times: int, per: int
) -> tuple[pa.Int64Array, Mask]:
    """Whole numbers as µs, and which texts are none that are read here."""
    pattern = _WHOLE if times == 1 else _WHOLE_MS
    good = pc.and_(pa.array(is_bare), pc.fill_null(pc.match_substring_regex(texts, pattern), False))
    numbers = pc.if_else(good, texts, None).cast(pa.int64())
    if per > 1:
        whole = pc.divide(numbers, per)
        good = pc.and_(good, pc.fill_null(pc.equal(pc.multiply(whole, per), numbers), False))
        numbers = whole
    bad = pc.and_(texts.is_valid(), pc.invert(good)).to_numpy(zero_copy_only=False)
    return pc.multiply(numbers, times) if times > 1 else numbers, bad


def _times(
    texts: pa.StringArray, is_bare: Mask, *, times: int = 1, per: int = 1
) -> tuple[pa.StringArray, Mask | None]:
    micros, bad = _micros(texts, is_bare, times=times, per=per)
    cells = texts if times == per == 1 else micros.cast(pa.string())
    return cells, bad if bad.any() else None


def _moments(
    texts: pa.StringArray, is_bare: Mask, *, times: int = 1, per: int = 1
) -> tuple[pa.StringArray, Mask | None]:
    micros, bad = _micros(texts, is_bare, times=times, per=per)
    is_far = pc.or_(pc.less(micros, _FIRST_US), pc.greater_equal(micros, _BEYOND_US))
    if pc.any(is_far).as_py():
        bad = bad | pc.fill_null(is_far, False).to_numpy(zero_copy_only=False)
        micros = pc.if_else(is_far, None, micros)
    numbers = pc.fill_null(micros, 0).to_numpy()
    seconds = numbers // _SECOND_US
    is_whole: Mask = seconds * _SECOND_US == numbers
    cells = texts
    if is_whole.any():
        is_null = micros.is_null().to_numpy(zero_copy_only=False)
        cells = pa.array(seconds, mask=is_null).cast(pa.timestamp("s")).cast(pa.string())
    if not is_whole.all():
        finer = micros.cast(pa.timestamp("us")).cast(pa.string())
        cells = pc.if_else(pa.array(is_whole), cells, finer) if is_whole.any() else finer
    return cells, bad if bad.any() else None


def _isos(texts: pa.StringArray, is_bare: Mask) -> tuple[pa.StringArray, Mask | None]:
    cells = pc.replace_substring(pc.replace_substring_regex(texts, "Z$", ""), "T", " ")
    return cells, is_bare if is_bare.any() else None


def _decimals(
    one: Cell, scale: int, texts: pa.StringArray, is_bare: Mask
) -> tuple[pa.StringArray, Mask | None]:
    if is_bare.any():
        return _each(one, texts, is_bare)
    found, bad = from_base64(texts)
    lengths = pc.fill_null(pc.binary_length(found), 0).to_numpy().astype(np.int64)
    is_here = (lengths > 0) & (lengths <= _MOST_BYTES)
    if bad is not None:
        is_here &= ~bad
    numbers, is_below = _unscaled(found, lengths, is_here)
    cells = _with_point(pa.array(numbers, mask=~is_here), pa.array(is_below), scale)
    rest = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False) & ~is_here)
    if not len(rest):
        return cells, None
    others, wrong = _each(one, texts.take(pa.array(rest)), is_bare[rest])
    mask = np.zeros(len(texts), np.bool_)
    mask[rest] = True
    is_bad = np.zeros(len(texts), np.bool_)
    if wrong is not None:
        is_bad[rest] = wrong
    return pc.replace_with_mask(cells, pa.array(mask), others), is_bad if is_bad.any() else None


def _unscaled(found: pa.BinaryArray, lengths: Indexes, is_here: Mask) -> tuple[Any, Mask]:
    """Numbers from their bytes, without a sign, and which are below zero."""
    data = np.frombuffer(found.buffers()[2] or b"\0", np.uint8)
    bounds = np.frombuffer(found.buffers()[1], np.int32)[found.offset :][: len(found) + 1]
    ends = bounds[1:].astype(np.int64)
    first = data.take(bounds[:-1], mode="clip")
    is_below = is_here & (first >= 1 << (_BYTE - 1))
    numbers = np.where(is_below, np.uint64(2**64 - 1), np.uint64(0))
    for place in range(_MOST_BYTES, 0, -1):
        byte = data.take(ends - place, mode="clip").astype(np.uint64)
        numbers = np.where(lengths >= place, (numbers << np.uint64(_BYTE)) | byte, numbers)
    return np.where(is_below, ~numbers + np.uint64(1), numbers), is_below


def _with_point(numbers: pa.Array, is_below: pa.BooleanArray, scale: int) -> pa.StringArray:
    texts = numbers.cast(pa.string())
    if scale:
        texts = pc.ascii_lpad(texts, scale + 1, "0")
        whole = pc.utf8_slice_codeunits(texts, 0, -scale)
        texts = pc.binary_join_element_wise(
            whole, pc.utf8_slice_codeunits(texts, -scale, 1 << 30), "."
        )
    sign = pc.if_else(is_below, "-", "")
    return pc.binary_join_element_wise(sign, texts, "")


_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium.time"
_ARRAYS: Final[Mapping[str, Read]] = {
    f"{_CONNECT}.Time": partial(_times, times=1_000),
    f"{_DEBEZIUM}.Time": partial(_times, times=1_000),
    f"{_DEBEZIUM}.MicroTime": _times,
    f"{_DEBEZIUM}.NanoTime": partial(_times, per=1_000),
    f"{_CONNECT}.Timestamp": partial(_moments, times=1_000),
    f"{_DEBEZIUM}.Timestamp": partial(_moments, times=1_000),
    f"{_DEBEZIUM}.MicroTimestamp": _moments,
    f"{_DEBEZIUM}.NanoTimestamp": partial(_moments, per=1_000),
    **{f"{_DEBEZIUM}.{each}": _isos for each in ("IsoDate", "IsoTime", "IsoTimestamp")},
}
