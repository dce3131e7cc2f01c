"""Cells that have the values of Kafka Connect, as Debezium writes them in JSON
(``contract.Cells.CONNECT``), as the texts that canal-json would have for them.

    DATE       days since 1970
    DATETIME   ms since 1970, or µs where it has more than three digits
    TIME       µs
    TIMESTAMP  2020-01-02T03:04:05.6Z
    BIT        base64, the lowest byte first; a BIT(1) is true or false
    DECIMAL    a number, perhaps with an exponent
    TINYINT    true or false, of a BOOL
    BIGINT     of an unsigned one, above 2^63: less 2^64

What is already such a text stays as it is, and so does what is no value at all: the casts refuse
it. An array at a time, but for rare ones."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.typed_cells import cell_texts
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import try_cast

_WHOLE = r"^-?[0-9]{1,18}$"
_ISO = r"^(?P<day>[0-9-]+)T(?P<time>[0-9:]+(?:\.[0-9]{1,6})?)(?:Z|\+00:00)$"
_MICROS = 1_000
_MOST_EXPONENT = 400  # of a number that is written out; a DOUBLE has less
_BITS = {"true": "1", "false": "0"}


def canal_texts(cells: pa.Array, of: MySQLType) -> pa.Array:
    """``cells`` are strings; null stays null."""
    make = _MAKERS.get(of.name)
    if make is None or cells.null_count == len(cells):
        return cells
    return make(cells, of)


def _numbers(cells: pa.Array) -> tuple[pa.Array | None, pa.Array]:
    """Whole numbers, and which cells are such; None where none is."""
    is_whole = pc.fill_null(pc.match_substring_regex(cells, _WHOLE), False)
    if not pc.any(is_whole).as_py():
        return None, is_whole
    return try_cast(pc.if_else(is_whole, cells, None), pa.int64()), is_whole


def _made(cells: pa.Array, make: Callable[[pa.Array], pa.Array]) -> pa.Array:
    numbers, is_whole = _numbers(cells)
    if numbers is None:
        return cells
    return pc.if_else(is_whole, make(numbers).cast(cells.type), cells)


def _dates(cells: pa.Array, of: MySQLType) -> pa.Array:  # noqa: ARG001
    def days(numbers: pa.Array) -> pa.Array:
        small = try_cast(numbers, pa.int32())
        return numbers.cast(pa.string()) if small is None else small.cast(pa.date32())

    return _made(cells, lambda numbers: _plain(days(numbers)))


def _plain(values: pa.Array) -> pa.Array:
    return values if pa.types.is_string(values.type) else cell_texts(values)


def _datetimes(cells: pa.Array, of: MySQLType) -> pa.Array:
    factor = _MICROS if (of.digits or 0) <= 3 else 1

    def moments(numbers: pa.Array) -> pa.Array:
        micros = pc.multiply(numbers, factor)
        return cell_texts(micros.cast(pa.timestamp("us")))

    return _made(cells, moments)


def _times(cells: pa.Array, of: MySQLType) -> pa.Array:
    return _made(cells, lambda n: cell_texts(n.cast(pa.duration("us")), of.digits or 0))


def _timestamps(cells: pa.Array, of: MySQLType) -> pa.Array:  # noqa: ARG001
    found = pc.extract_regex(cells, _ISO)
    joined = pc.binary_join_element_wise(found.field("day"), found.field("time"), " ")
    return pc.if_else(found.is_valid(), joined.cast(cells.type), cells)


def _bits(cells: pa.Array, of: MySQLType) -> pa.Array:  # noqa: ARG001
    coded = cells.dictionary_encode()
    texts = pa.array([_bit(each) for each in coded.dictionary.to_pylist()], cells.type)
    return texts.take(coded.indices)


def _bit(text: str) -> str:
    if text in _BITS:
        return _BITS[text]
    try:
        return str(int.from_bytes(base64.b64decode(text, validate=True), "little"))
    except (ValueError, binascii.Error):
        return text


def decimal_texts(cells: pa.Array, of: MySQLType) -> pa.Array:
    """Without an exponent, and with as many digits behind the point as the type has. A decimal that
    is a text in Delta has them all; where the type is not told, those of the number."""
    is_text = pa.types.is_string(arrow_type(of))
    scale = _MOST_EXPONENT if of.scale is None else of.scale
    has_exponent = pc.fill_null(pc.match_substring_regex(cells, "[eE]"), False)
    behind = pc.extract_regex(cells, r"\.(?P<digits>[0-9]+)$").field("digits")
    is_long = pc.fill_null(pc.greater(pc.utf8_length(behind), scale), False)
    is_padded = is_text and of.scale is not None
    rare = pa.repeat(True, len(cells)) if is_padded else pc.or_(has_exponent, is_long)
    rare = pc.and_(rare, cells.is_valid())
    if not pc.any(rare).as_py():
        return cells
    texts = [_decimal(text, scale, is_padded) for text in cells.filter(rare).to_pylist()]
    return pc.replace_with_mask(cells, rare, pa.array(texts, cells.type))


def _decimal(text: str, scale: int, is_padded: bool) -> str:
    """A double has digits that the column never had: they are rounded off."""
    try:
        number = Decimal(text)
        if not number.is_finite() or abs(number.adjusted()) > _MOST_EXPONENT:
            return text
        behind = -int(number.as_tuple().exponent)
        return f"{number:.{scale if is_padded else min(max(behind, 0), scale)}f}"
    except (InvalidOperation, ValueError):
        return text


def _truths(cells: pa.Array, of: MySQLType) -> pa.Array:  # noqa: ARG001
    is_true = pc.equal(cells, "true")
    return pc.case_when(
        pc.make_struct(pc.fill_null(is_true, False), pc.fill_null(pc.equal(cells, "false"), False)),
        pa.scalar("1", cells.type),
        pa.scalar("0", cells.type),
        cells,
    )


def _wrapped(cells: pa.Array, of: MySQLType) -> pa.Array:
    if not of.unsigned:
        return cells
    below = pc.fill_null(pc.starts_with(cells, "-"), False)
    if not pc.any(below).as_py():
        return cells
    made = [
        str(int(text) + (1 << 64)) if re.fullmatch(r"-[0-9]{1,19}", text) else text
        for text in cells.filter(below).to_pylist()
    ]
    return pc.replace_with_mask(cells, below, pa.array(made, cells.type))


_MAKERS: dict[str, Callable[[pa.Array, MySQLType], pa.Array]] = {
    "date": _dates,
    "datetime": _datetimes,
    "time": _times,
    "timestamp": _timestamps,
    "bit": _bits,
    "decimal": decimal_texts,
    "bigint": _wrapped,
    "tinyint": _truths,
}
