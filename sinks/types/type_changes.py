"""Converts a column's values when a DDL changes its type, by TiDB's rules where they are clear.

TiCDC does not send the rows of a table again when a column's type changes. So the values in the
target are converted here as TiDB converts them. A value that cannot be converted, or for which the
rule is not clear, is an error that names the value: none becomes NULL silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from coordination.errors import TidelakeError
from sinks.types.casts.columns import cast_column
from sinks.types.delta_types import INTEGER_BITS, arrow_type, whole_range
from sinks.types.mysql_type import BINARY_TYPES, IDENTIFIER_TYPES, INTEGER_TYPES, MySQLType
from sinks.types.table_schema import CURRENT_TIMESTAMP, Column
from sinks.types.text_arrays import CastRules
from sinks.types.time_zones import to_utc, zone_of
from sinks.types.type_changes_dates import (
    as_moment,
    as_time,
    half_away,
    half_up,
    has_other_digits,
    may_round,
    read_moment,
    rounded,
)

_FLOATS = {"float": 12, "double": 22}  # TiDB's length (Flen) of one without (M,D)
_OWN_KIND = ("decimal", "enum", "set", "json", "time", "date", "datetime", "timestamp", "vector")
_NUMBERS = ("integer", "decimal", "float")
_NAMES = ("enum", "set")
_MOMENTS = ("date", "datetime", "timestamp")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = range(1901, 2156)
_NOT_TOLD = (
    "is not known, since no CREATE TABLE was read, and the rows do not tell it (--schema-file does)"
)


class CannotConvert(TidelakeError):
    """A value that cannot be converted to the new type, or for which the rule is not clear. The
    message names the value."""


def needs_conversion(old: MySQLType, new: MySQLType) -> bool:
    """Whether a value may look different in the new type. That may be so even where both types
    have the same Delta type."""
    if arrow_type(old) != arrow_type(new):
        return True
    was, now = _kind(old), _kind(new)
    if _is_nameless(old) and now in ("text", was):
        return not _is_nameless(new)
    if was != now:
        looks_new = (*_NAMES, *IDENTIFIER_TYPES, "json", "time", "decimal")
        return now in looks_new or (was, now) == ("decimal", "text")
    loses = _LOSES.get(now)
    return loses is not None and loses(old, new)


def keeps_apart(old: MySQLType, new: MySQLType) -> bool:
    """Whether two values that differ surely differ in the new type too."""
    if {old.name, new.name} <= {*INTEGER_TYPES}:
        return True
    return (old.name, new.name) == ("time", "time") and not may_round(old, new)


def may_make_equal(old: MySQLType, new: MySQLType) -> bool:
    """Whether two values that differ may be equal in the new type."""
    return needs_conversion(old, new) and not keeps_apart(old, new)


def needs_untold(old: MySQLType, new: MySQLType) -> bool:
    """Whether the new value may depend on digits that are not known: a DDL waits then."""
    if not old.is_untold:
        return False
    if old.name in _FLOATS:
        return old.name == new.name and new.scale is not None and _writes_floats(old, new) is None
    return old.name != "time" and _kind(new) in (*_NAMES, "text", "bytes")


def converted(
    values: pa.Array, old: MySQLType, new: MySQLType, time_zone: str, *, is_strict: bool = True
) -> pa.Array:
    """The values in ``arrow_type(new)``. ``time_zone``: in which a TIMESTAMP is read or written as
    a DATETIME or text. Raises CannotConvert for the first value that cannot be converted; without
    ``is_strict`` it becomes null.
    """
    kind = arrow_type(new)
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if _is_wider(old, new):
        return values.cast(kind)
    convert = _conversion(old, new, time_zone)
    return each_converted(values, convert, (old, new), time_zone, is_strict=is_strict)


def each_converted(
    values: pa.Array,
    convert: Callable[[Any], Any],
    types: tuple[MySQLType, MySQLType],
    time_zone: str,
    *,
    is_strict: bool,
) -> pa.Array:
    """As `converted`, by this function, which is called once for each different value that is not
    NULL. What becomes a TIMESTAMP it gives in ``time_zone``."""
    old, new = types
    kind = arrow_type(new)
    if pa.types.is_nested(values.type):  # a VECTOR's floats: Arrow does not tell them apart
        if is_strict and values.null_count < len(values):
            raise CannotConvert(f"its values ({old}) cannot be converted to {new}")
        return pa.nulls(len(values), kind)
    encoded = values.dictionary_encode()
    found = []
    for value in encoded.dictionary.to_pylist():
        try:
            found.append(None if value is None else convert(value))
        except (ValueError, ArithmeticError, KeyError, OverflowError) as error:
            if not is_strict:
                found.append(None)
                continue
            raise CannotConvert(
                f"its value {value!r} ({old}) cannot be converted to {new}: {error}"
            ) from error
    if _kind(new) == "timestamp" and _kind(old) != "timestamp":
        made = to_utc(pa.array(found, pa.timestamp("us")), time_zone)
    else:
        made = pa.array(found, kind)
    return made.take(encoded.indices)


def fill_values(text: str, kind: MySQLType, rules: CastRules, ddl_us: int) -> pa.Array:
    """An array of one value: the value that old rows show in an added column with the default
    ``text``. ``ddl_us``: the DDL's time in microseconds since 1970. Raises CannotConvert."""
    if text == CURRENT_TIMESTAMP and kind.name in ("date", "datetime", "timestamp", "time", "year"):
        if kind.name == "timestamp":  # a moment, in any zone
            rules = replace(rules, time_zone="UTC")
        moment = _EPOCH + timedelta(microseconds=ddl_us)
        moment = moment.astimezone(zone_of(rules.time_zone)).replace(tzinfo=None)
        text = text_of(moment, replace(kind, is_untold=False))
        text = {"date": text[:10], "time": text[11:], "year": text[:4]}.get(kind.name, text)
    found = cast_column(pa.array([text]), Column(name="", type=kind), rules)
    if found.failed is not None:
        raise CannotConvert(f"the default {text!r} of the added column is no {kind}")
    return found.values


def _kind(of: MySQLType) -> str:
    if of.name in INTEGER_BITS or of.name in ("bit", "year"):
        return "integer"
    if of.name in _FLOATS:
        return "float"
    if of.name in BINARY_TYPES:
        return "bytes"
    return of.name if of.name in (*_OWN_KIND, *IDENTIFIER_TYPES) else "text"


def _is_wider(old: MySQLType, new: MySQLType) -> bool:
    """Whether Arrow's cast is exact and does what MySQL does."""
    if old.name in INTEGER_BITS and _kind(new) == "text":
        return True
    if old.name in INTEGER_BITS and new.name in INTEGER_BITS:
        (low, high), (lowest, highest) = whole_range(old), whole_range(new)
        return lowest <= low and high <= highest
    if (old.name, new.name) == ("float", "double"):
        return new.scale is None
    return (old.name, new.name) == ("date", "datetime")


def _conversion(old: MySQLType, new: MySQLType, time_zone: str) -> Callable[[Any], Any]:
    was, now = _kind(old), _kind(new)
    zone = zone_of(time_zone)

    def local(value: Any) -> Any:
        return value.astimezone(zone).replace(tzinfo=None) if was == "timestamp" else value

    ways: list[tuple[bool, Callable[[Any], Any]]] = [
        ("vector" in (was, now) or now == "json", _unclear),
        (new.name in IDENTIFIER_TYPES or (was in IDENTIFIER_TYPES and now != "text"), _unclear),
        (new.name == "bit" and was not in _NUMBERS, _unclear),
        (old.name == "bit" and now not in _NUMBERS, _unclear),
        (
            now in _NUMBERS and was in (*_NUMBERS, *_NAMES, "text"),
            lambda value: _number(value, old, new),
        ),
        (now in (*_NAMES, "text", "bytes"), lambda value: _as_text(local(value), old, new)),
        (was == now == "timestamp", lambda value: rounded(value, new)),
        (now in _MOMENTS and was in _MOMENTS, lambda value: as_moment(local(value), new)),
        (now in _MOMENTS and was == "text", lambda value: as_moment(read_moment(value, new), new)),
        (now == was == "time", lambda value: as_time(value, new, half_up)),
        (now == "time" and was == "text", lambda value: as_time(value, new, half_away)),
    ]
    return next((way for is_it, way in ways if is_it), _unclear)


def _unclear(_value: Any) -> Any:
    raise ValueError("MySQL's rule for it is not clear")


def _number(value: Any, old: MySQLType, new: MySQLType) -> Any:
    with localcontext(prec=100):
        number = _read_number(value, old)
        if new.unsigned and number < 0:
            raise ValueError("it is below zero")
        if _kind(new) == "float":
            return _as_float(float(number), old, new)
        if _kind(new) == "decimal":
            return _as_decimal(number, new)
        if old.name in _FLOATS:
            whole = int(number.to_integral_value(ROUND_HALF_EVEN))
        else:
            whole = int(number.to_integral_value(ROUND_HALF_UP))
    if new.name == "year":
        return _as_year(whole, value)
    low, high = whole_range(new)
    if not low <= whole <= high:
        raise ValueError("it is out of range")
    return whole


def _read_number(value: Any, old: MySQLType) -> Decimal:
    if old.name == "enum" and not _is_nameless(old):
        return Decimal(("", *old.elements).index(value))
    if old.name == "set" and not _is_nameless(old):
        names = value.split(",") if value else []
        return Decimal(sum(1 << old.elements.index(name) for name in names))
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip(" ")):
            raise ValueError("it is no number")
        return Decimal(value.strip(" "))
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _as_year(whole: int, value: Any) -> int:
    if 1 <= whole <= 99 and not isinstance(value, str):
        return whole + (2000 if whole < 70 else 1900)
    if whole not in _YEARS and not (whole == 0 and not isinstance(value, str)):
        raise ValueError("it is out of range")
    return whole


def _as_float(number: float, old: MySQLType, new: MySQLType) -> float:
    writes = new.scale is not None and _writes_floats(old, new)
    if writes is not False:
        exact, number = number, _rounded_float(number, new.scale or 0)
        if writes is None and number != exact:
            raise ValueError(
                "TiDB rounds it or not by the number of digits (M,D) that it had, which "
                + _NOT_TOLD
            )
    if new.name == "float":
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    if not np.isfinite(number):
        raise ValueError("it is out of range")
    return number


def _rounded_float(number: float, scale: int) -> float:
    """As TiDB's ``types.Round``, with its errors: 1.005 is 1.0 with two digits."""
    shifted = number * 10.0**scale
    return float(np.rint(shifted)) / 10.0**scale if np.isfinite(shifted) else number


def _writes_floats(old: MySQLType, new: MySQLType) -> bool | None:
    """Whether TiDB writes the rows anew, and so rounds them, and does not just change the
    definition; None: it is not known. For a new type with (M,D)."""
    if old.name != new.name or old.unsigned != new.unsigned:
        return True
    length, default = new.length or 0, _FLOATS[new.name]
    if old.is_untold:  # ``float`` in a message may be any FLOAT(M,D)
        return True if length < default else None
    if old.scale is None:  # TiDB has -1 for it
        return length < default
    return length < (old.length or 0) or (new.scale or 0) < old.scale


def _as_decimal(number: Decimal, new: MySQLType) -> Decimal | str:
    if new.length is None:
        raise ValueError("the precision of the new type is not known")
    found = number.quantize(Decimal(1).scaleb(-(new.scale or 0)), ROUND_HALF_UP)
    found = found or abs(found)  # no -0.00
    if found and found.adjusted() >= new.length - (new.scale or 0):
        raise ValueError("it is out of range")
    return f"{found:f}" if pa.types.is_string(arrow_type(new)) else found


def _as_text(value: Any, old: MySQLType, new: MySQLType) -> Any:
    if _is_nameless(old):
        value = _name_at(int(value), old, new)
    if _kind(new) == "bytes":
        raw = value if isinstance(value, bytes) else text_of(value, old).encode()
        return raw.ljust(new.length or 1, b"\0") if new.name == "binary" else raw
    text = text_of(value, old)
    if new.name == "enum" and new.elements:
        return _element(text, new) if text else text
    if new.name == "set" and new.elements:
        chosen = {_element(name, new) for name in text.split(",")} if text else set()
        return ",".join(name for name in new.elements if name in chosen)
    if new.name in ("enum", "set"):
        raise ValueError("the elements of the new type are not known")
    return text.rstrip(" ") if new.name == "char" else text


def text_of(value: Any, old: MySQLType) -> str:
    """The text of a value that is no text, as MySQL writes it. Raises ValueError."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        shortest = str(np.float32(value)) if old.name == "float" else repr(value)
        text = f"{Decimal(shortest):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, datetime):
        if old.digits is None:
            raise ValueError(
                "its text depends on the number of digits of its fraction, which " + _NOT_TOLD
            )
        return _seconds(value.isoformat(" ", "microseconds"), old.digits)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return f"{value:04d}" if old.name == "year" else str(value)


def _is_nameless(of: MySQLType) -> bool:
    """An ENUM or SET that was known from messages alone: its values are numbers as text."""
    return of.name in _NAMES and (of.is_untold or not of.elements)


def _name_at(number: int, old: MySQLType, new: MySQLType) -> str:
    """The names at these places in the old definition where the schema file tells it, else in the
    new one: names are mostly added behind the others."""
    names = old.elements or (new.elements if new.name == old.name else ())
    if not names:
        raise ValueError("which names it had " + _NOT_TOLD)
    most = len(names) if old.name == "enum" else 2 ** len(names) - 1
    if number > most:
        raise ValueError("it is beyond the names of the new type")
    if old.name == "enum":
        return ("", *names)[number]
    return ",".join(name for at, name in enumerate(names) if number >> at & 1)


def _seconds(text: str, digits: int) -> str:
    """A time with six digits of a fraction, cut to so many digits."""
    return text[: len(text) - 6 + digits] if digits else text[:-7]


def _element(text: str, new: MySQLType) -> str:
    """The element in the spelling of the definition; most collations of TiDB ignore case."""
    if text in new.elements:
        return text
    folded = {name.casefold(): name for name in reversed(new.elements)}
    if text.casefold() not in folded:
        raise ValueError(f"{text!r} is not among its names")
    return folded[text.casefold()]


def _lacks_names(old: MySQLType, new: MySQLType) -> bool:
    return bool(new.elements) and not set(old.elements) <= set(new.elements)


def _names_differ(old: MySQLType, new: MySQLType) -> bool:
    """A SET shows its names in the order of its definition."""
    kept = tuple(name for name in new.elements if name in old.elements)
    return bool(new.elements) and kept != old.elements


def _is_padded(old: MySQLType, new: MySQLType) -> bool:
    is_wider = old.name != "binary" or (old.length or 1) < (new.length or 1)
    return new.name == "binary" and is_wider


# For two types of one kind and one Delta type: whether a value may look different in the new one.
_LOSES: dict[str, Callable[[MySQLType, MySQLType], bool]] = {
    "time": has_other_digits,
    **dict.fromkeys(("datetime", "timestamp"), may_round),
    "enum": _lacks_names,
    "set": _names_differ,
    "bytes": _is_padded,
    "float": lambda old, new: new.scale is not None and _writes_floats(old, new) is not False,
    "integer": lambda old, new: new.name in ("bit", "year") and old.name != new.name,
    "decimal": lambda old, new: pa.types.is_string(arrow_type(new)) and old.scale != new.scale,
    "text": lambda old, new: new.name == "char" and old.name != "char",
}
