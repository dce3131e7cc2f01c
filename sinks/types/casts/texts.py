"""Casts text to bytes, to the names of enums and sets, and to vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.base64_texts import from_base64
from sinks.types.casts.numbers import cast_index, cast_integers
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import (
    CastColumn,
    as_mask,
    cast_result,
    data,
    is_valid,
    matches,
    only,
    without_hidden,
)

_ABOVE_A_BYTE = r"[\x{100}-\x{10FFFF}]"
_HIGHEST_LEAD = 0xC3  # of a character up to U+00FF in UTF-8
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"  # of JSON
_VECTOR = rf"\[ *(?:{_NUMBER} *(?:, *{_NUMBER} *)*)?\]"


def cast_bytes(text: pa.Array, _: MySQLType) -> CastColumn:
    """Text in ISO-8859-1: each character is one byte. One above U+00FF is a failure."""
    found = data(text)
    if len(found) and found.max() > _HIGHEST_LEAD:
        wide = as_mask(pc.match_substring_regex(text, _ABOVE_A_BYTE))
        return cast_result(_latin(only(text, is_valid(text) & ~wide)), text, ~wide)
    return CastColumn(values=_latin(text), failed=None)


def cast_base64(text: pa.Array) -> CastColumn:
    """Text in base64; one that is none is a failure."""
    found, bad = from_base64(text if text.type == pa.string() else text.cast(pa.string()))
    return CastColumn(values=found, failed=None if bad is None else pa.array(bad))


def _latin(text: pa.Array) -> pa.Array:
    text = without_hidden(text)
    found = data(text)
    if not len(found) or found.max() < 0x80:
        return text.cast(pa.binary())
    lengths = pc.fill_null(pc.utf8_length(text), 0).to_numpy()
    bounds = np.zeros(len(text) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    encoded = str(found.data, "utf-8").encode("latin-1")
    bitmap = pa.array(is_valid(text)).buffers()[1] if text.null_count else None
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(encoded)]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers)


def cast_enums(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """The element's name for its index. Index 0, which MySQL stores for an invalid value, becomes
    the empty text."""
    indexes = cast_index(text, len(mysql_type.elements))
    names = pa.array(["", *mysql_type.elements], pa.string())
    return CastColumn(values=names.take(indexes.values), failed=indexes.failed)


def cast_sets(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """The elements' names for a bitmask, in the order of the definition, joined by commas."""
    elements = mysql_type.elements
    masks = cast_integers(text, MySQLType(name="bit", length=len(elements)))
    if masks.values.null_count == len(text):
        return CastColumn(values=pa.nulls(len(text), pa.string()), failed=masks.failed)
    encoded = masks.values.cast(pa.uint64()).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    chosen = [
        pc.if_else(pa.array((distinct >> np.uint64(bit)) & np.uint64(1) != 0), name, None)
        for bit, name in enumerate(pa.array(elements, pa.string()))
    ]
    # An empty first part in every row: Arrow drops a row that has no parts.
    always = pa.repeat(pa.scalar("", pa.string()), len(distinct))
    names = pc.binary_join_element_wise(always, *chosen, ",", null_handling="skip")
    names = pc.utf8_slice_codeunits(names, len(","))
    return CastColumn(values=names.take(encoded.indices), failed=masks.failed)


def cast_vectors(text: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """A JSON array of numbers, each of which must be finite as a 32-bit float."""
    kind = arrow_type(mysql_type)
    fine = matches(text, _VECTOR)
    values = _vectors(only(text, fine), kind)
    infinite = as_mask(pc.is_inf(values.flatten()))
    if infinite.any():
        fine[pc.list_parent_indices(values).to_numpy()[infinite]] = False
        values = _vectors(only(text, fine), kind)
    return cast_result(values, text, fine)


def _vectors(text: pa.Array, kind: pa.DataType) -> pa.Array:
    inner = pc.utf8_trim(text, "[] ")
    parts = pc.split_pattern(inner, ",")
    lengths = pc.fill_null(pc.list_value_length(parts), 0).to_numpy()
    empty = as_mask(pc.equal(inner, pa.scalar("", inner.type)))
    numbers = parts.flatten()
    if empty.any():  # splitting an empty text gives one empty part
        lengths = np.where(empty, 0, lengths)
        numbers = numbers.filter(pc.not_equal(numbers, pa.scalar("", numbers.type)))
    numbers = pc.utf8_trim(numbers, " ").cast(pa.float32())
    bounds = np.zeros(len(text) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    missing = pa.array(~is_valid(text))
    return pa.ListArray.from_arrays(pa.array(bounds), numbers, type=kind, mask=missing)
