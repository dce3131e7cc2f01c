"""From canal-json's text to Delta's types (design 6), once, in Spark SQL, for both commit engines.

Every value of canal-json is a JSON string. A cast here gives the exact value or NULL, and never
raises: ANSI mode is on by default, so everything that could raise is tried or guarded. A NULL that
the source did not send is a failure (``cast_failure``), and its row a dead letter: nothing is
rounded, cut or guessed.

Millions of rows pass through these expressions: they are plain functions that Spark compiles, with
a regular expression only for bytes, vectors and (of unreadable dates only) zero dates. What the
guards of the numbers leave unseen is a tab or line feed behind the digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812

from sinks.delta_types import DELTA_BITS, INTEGER_BITS, UNSIGNED_LONG, decimal_type, delta_type
from sinks.schema import BINARY_TYPES, Column, MySQLType

_DATES = ("date", "datetime", "timestamp")
_LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_FINITE_LENGTH = 38  # a plain number of so many characters is finite, also as a float
_YEARS = (1901, 2155)  # and 0


_DATE_LENGTH = 10  # 2020-01-02
_SECONDS_LENGTH = 19  # 2020-01-02 03:04:05
_MICROS_LENGTH = 26  # 2020-01-02 03:04:05.000006
_ZERO_DATE = (
    "^(?:0000-[0-9]{2}-[0-9]{2}|[0-9]{4}-00-[0-9]{2}|[0-9]{4}-[0-9]{2}-00)"
    r"(?: [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)?$"
)


def cast_column(text: SparkColumn, column: Column, time_zone: str) -> SparkColumn:
    """The value of a column in its Delta type, or NULL where the text cannot be one.

    ``text`` is the string (or NULL) in canal-json's ``data``. ``time_zone`` is what the TiCDC
    server writes TIMESTAMP in; the session's own time zone plays no part. Where clocks are set
    back, the earlier of the two instants is taken: the text does not tell.
    """
    if column.type.name == "timestamp":
        return _timestamp(text, time_zone)
    cast = _CASTS.get(column.type.name)
    return cast(text, column.type) if cast else text


def cast_failure(
    text: SparkColumn, typed: SparkColumn, column: Column, zero_date: Literal["null", "fail"]
) -> SparkColumn:
    """Whether a value that the source sent was lost in the cast (a boolean, never NULL).

    With ``zero_date="null"`` a zero date is not a failure: NULL is what it shall be.
    """
    if delta_type(column.type) == "string" and not column.type.elements:
        return F.lit(False)
    lost = typed.isNull() & text.isNotNull()  # in this order Spark casts once for both
    if column.type.name in _DATES and zero_date == "null":
        return lost & ~is_zero_date(text)
    return lost


def is_zero_date(text: SparkColumn) -> SparkColumn:
    """Whether a text is a MySQL date with a year, month or day of zero (NULL for NULL)."""
    return text.rlike(_ZERO_DATE)


def _integer_range(mysql_type: MySQLType) -> tuple[int, int]:
    bits = INTEGER_BITS[mysql_type.name]
    return (0, 2**bits - 1) if mysql_type.unsigned else _bounds(bits)


def _bounds(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _integer(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    return _whole(text, delta_type(mysql_type), *_integer_range(mysql_type))


def _bit(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    return _whole(text, delta_type(mysql_type), 0, 2 ** (mysql_type.length or 64) - 1)


def _whole(text: SparkColumn, spark_type: str, low: int, high: int) -> SparkColumn:
    """Only what fits the MySQL type, written as digits: Spark alone would trim and round."""
    typed = text.try_cast(spark_type)
    strict = _is_number(text)
    if spark_type == UNSIGNED_LONG:
        strict &= (text >= "0") & _is_integral(text) & _is_at_most(text, high)
    elif (low, high) != _bounds(DELTA_BITS[spark_type]):
        not_below = text >= "0" if low == 0 else F.lit(True)
        short = F.octet_length(text) < len(str(high))  # so short that it needs no second look
        strict &= not_below & (short | typed.between(low, high))
    return F.when(strict, typed)


def _is_at_most(digits: SparkColumn, high: int) -> SparkColumn:
    """Compared as text, since a comparison of decimals would cost a second cast."""
    length, most = F.octet_length(digits), len(str(high))
    return (length < most) | ((length == most) & (digits <= str(high)))


def _long_literal(value: int) -> SparkColumn:
    return F.lit(str(value)).cast(UNSIGNED_LONG)


def _is_number(text: SparkColumn) -> SparkColumn:
    """A text that starts with a digit, a point or a minus, and has no blank behind it.

    Cheap on purpose: it compares the first byte and the last one, and leaves the rest to the cast.
    """
    return (text >= "-") & (text < ":") & ~text.endswith(" ")


def _is_integral(text: SparkColumn) -> SparkColumn:
    return ~text.contains(".") & _has_no_exponent(text)


def _has_no_exponent(text: SparkColumn) -> SparkColumn:
    return ~text.contains("e") & ~text.contains("E")


def _year(text: SparkColumn, _: MySQLType) -> SparkColumn:
    typed = text.try_cast("smallint")
    return F.when(_is_number(text) & ((typed == 0) | typed.between(*_YEARS)), typed)


def _decimal(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    """More digits behind the point than the scale are refused: the cast would round them."""
    spark_type = decimal_type(mysql_type)
    if spark_type == "string":
        return text
    point = F.locate(".", text)
    fits = (point == 0) | (F.octet_length(text) - point <= (mysql_type.scale or 0))
    return F.when(_is_number(text) & fits & _has_no_exponent(text), text.try_cast(spark_type))


def _floating(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    """Digits, finite: Java would also read ``1d``, hexadecimal, NaN, and too large as infinite."""
    typed = text.try_cast(mysql_type.name)
    largest = F.lit(_LARGEST[mysql_type.name]).cast(mysql_type.name)
    digits = _is_number(text) & (F.right(text, F.lit(1)) < ":") & ~text.contains("x")
    small = (F.octet_length(text) <= _FINITE_LENGTH) & _has_no_exponent(text)
    return F.when(digits & (small | typed.between(-largest, largest)), typed)


def _bytes(text: SparkColumn, _: MySQLType) -> SparkColumn:
    """One byte a character; a character above U+00FF is no byte, and ``encode`` would raise."""
    is_ascii = F.octet_length(text) == F.char_length(text)
    are_bytes = is_ascii | ~text.rlike("[^\\x00-\\xFF]")
    return F.when(are_bytes, F.encode(text, "ISO-8859-1"))


def _date(text: SparkColumn, _: MySQLType) -> SparkColumn:
    is_date = (F.octet_length(text) == _DATE_LENGTH) & _has_real_year(text)
    return F.when(is_date, text.try_cast("date"))


def _datetime(text: SparkColumn, _: MySQLType) -> SparkColumn:
    return F.when(_is_datetime(text), text.try_cast("timestamp_ntz"))


def _timestamp(text: SparkColumn, time_zone: str) -> SparkColumn:
    zone = "Z" if time_zone.upper() == "UTC" else " " + time_zone
    return F.when(_is_datetime(text), F.concat(text, F.lit(zone)).try_cast("timestamp"))


def _has_real_year(text: SparkColumn) -> SparkColumn:
    return (text >= "0001") & (text < ":")


def _is_datetime(text: SparkColumn) -> SparkColumn:
    """Date and time to the second or finer: Spark alone would take ``2020``, or drop a zone."""
    length = F.octet_length(text)
    to_seconds = (length == _SECONDS_LENGTH) & (F.substring(text, _SECONDS_LENGTH - 2, 1) == ":")
    finer = length.between(_SECONDS_LENGTH + 1, _MICROS_LENGTH) & (
        F.locate(".", text) == _SECONDS_LENGTH + 1
    )
    return _has_real_year(text) & (to_seconds | finer)


def _enum(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    """The name for an index; 0 is what MySQL keeps for an invalid value: the empty text."""
    elements = mysql_type.elements
    if not elements:
        return text
    names = F.array(F.lit(""), *(F.lit(element) for element in elements))
    return F.when(_is_number(text), F.get(names, text.try_cast("int")))


def _set(text: SparkColumn, mysql_type: MySQLType) -> SparkColumn:
    """The names for a bitmask, in the order of the definition."""
    elements = mysql_type.elements
    if not elements:
        return text
    size = len(elements)
    mask = _whole(text, "bigint" if size < 64 else UNSIGNED_LONG, 0, 2**size - 1)
    bits = mask if size < 64 else _as_signed(mask)
    chosen = (
        F.when(bits.bitwiseAND(_power(position)) != 0, F.lit(element))
        for position, element in enumerate(elements)
    )
    return F.when(mask.isNotNull(), F.concat_ws(",", *chosen))


def _power(position: int) -> SparkColumn:
    return F.lit(1 << position if position < 63 else -(1 << 63)).cast("bigint")


def _as_signed(mask: SparkColumn) -> SparkColumn:
    """The same 64 bits as a bigint."""
    above = mask >= _long_literal(2**63)
    return F.when(above, (mask - _long_literal(2**64 - 1) - F.lit(1)).try_cast("bigint")).otherwise(
        mask.try_cast("bigint")
    )


def _vector(text: SparkColumn, _: MySQLType) -> SparkColumn:
    plain = text.rlike(r"^\[[-+0-9.eE, ]*\]$")
    return F.when(plain, F.from_json(text, "array<float>"))


_CASTS: dict[str, Callable[[SparkColumn, MySQLType], SparkColumn]] = {
    **dict.fromkeys(INTEGER_BITS, _integer),
    **dict.fromkeys(_LARGEST, _floating),
    **dict.fromkeys(BINARY_TYPES, _bytes),
    "bit": _bit,
    "year": _year,
    "decimal": _decimal,
    "date": _date,
    "datetime": _datetime,
    "enum": _enum,
    "set": _set,
    "vector": _vector,
}
