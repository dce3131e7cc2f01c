"""What the schema in a message of Debezium says of a row's columns: MySQL types, as far as it tells
them, and values that no other place tells how to read.

A number means what its schema's name says (Debezium's ``time.precision.mode``), whatever the
column's type: one with a name that is not known is not read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

from streaming.protocols.debezium.envelope import Fields
from streaming.protocols.json_text.strict_json import Number, as_text
from streaming.protocols.rows.element_names import definition

_DIGITS: Final = Context(prec=80)
_MOST_DIGITS: Final = 20  # of a moment or a time
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_MOST_BYTES: Final = 40  # of a decimal: 65 digits have fewer
# Kafka Connect's and Debezium's names of types; what a name does not tell is the widest there is.
_NAMED: Final[Mapping[str, str]] = {
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "datetime(3)",
    "org.apache.kafka.connect.data.Timestamp": "datetime(3)",
    "io.debezium.time.MicroTimestamp": "datetime(6)",
    "io.debezium.time.NanoTimestamp": "datetime(6)",
    "io.debezium.time.NanoTime": "time(6)",
    "io.debezium.time.IsoDate": "date",
    "io.debezium.time.IsoTime": "time(6)",
    "io.debezium.time.IsoTimestamp": "datetime(6)",
    "io.debezium.data.geometry.Geometry": "geometry",
    "io.debezium.data.geometry.Point": "point",
    "io.debezium.time.MicroTime": "time(6)",
    "io.debezium.time.Time": "time(3)",
    "org.apache.kafka.connect.data.Time": "time(3)",
    "io.debezium.time.ZonedTimestamp": "timestamp(6)",
    "io.debezium.time.Year": "year",
    "io.debezium.data.Json": "json",
}
_BY_NAME: Final = {"io.debezium.data.Enum": "enum", "io.debezium.data.EnumSet": "set"}
_PLAIN: Final[Mapping[str, str]] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "bit(1)",
    "string": "longtext",
    "bytes": "longblob",
}
_BITS: Final = "io.debezium.data.Bits"
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_OTHERS: Final = (_DECIMAL, *(f"io.debezium.data.{each}" for each in ("Bits", "Enum", "EnumSet")))
# Of types whose texts and bytes are values by themselves, under any name.
_TEXTS: Final = ("string", "bytes")
_SRID_BYTES: Final = 4
Cell = Callable[[Any], str | None]  # from what JSON has to the text of a cell


class NotRead(Exception):
    """Says which value of Kafka Connect has no reader."""


def mysql_type(field: Fields) -> str | None:
    """The type in words that `MySQLType.parse` knows; None where it is not told."""
    parameters, name = _parameters(field), _name(field)
    source = parameters.get("__debezium.source.column.type")
    told = str(field.get("tidb_type") or source or "").lower()
    if name in _BY_NAME or told in _BY_NAME.values():
        return definition(_BY_NAME.get(name, told), parameters.get("allowed"))
    if name == _BITS or (told == "bit" and field.get("type") == "boolean"):
        return f"bit({parameters.get('length') or (64 if name else 1)})"
    if "tidb_type" in field:
        return told
    if isinstance(source, str):  # with column.propagate.source.type
        return _with_digits(source, parameters)
    if name == _DECIMAL:
        scale = parameters.get("scale") or "0"
        return f"decimal({parameters.get('connect.decimal.precision') or 65},{scale})"
    return _NAMED.get(name) or (None if _is_unknown(field) else _PLAIN.get(str(field.get("type"))))


def _name(field: Fields) -> str:
    return str(field.get("name") or "")


def _is_unknown(field: Fields) -> bool:
    name = _name(field)
    return bool(name) and not (
        name in _NAMED or name in _OTHERS or field.get("type") in _TEXTS or "tidb_type" in field
    )


def _with_digits(source: str, parameters: Mapping[str, Any]) -> str:
    length = parameters.get("__debezium.source.column.length")
    scale = parameters.get("__debezium.source.column.scale")
    words = source.lower().split()
    if not words or "(" in source or length is None or words[0] in ("enum", "set"):
        return source.lower()
    digits = f"({length})" if scale is None else f"({length},{scale})"
    return " ".join([words[0] + digits, *words[1:]])


def reader_of(field: Fields) -> Cell | None:
    """Makes of a value the text that `casts/connect_cells.py` knows; None: `cell_of` does. It
    raises NotRead and Malformed."""
    name = _name(field)
    if name == _DECIMAL and field.get("type") == "bytes":
        scale = str(_parameters(field).get("scale") or "0")
        return _decimal_reader(int(scale) if scale.isdigit() and len(scale) < 4 else 0)
    return partial(_not_read, name) if _is_unknown(field) else _READERS.get(name)


def cell_of(value: Any) -> str | None:
    """The text of a value that needs no schema. Raises NotRead and Malformed."""
    if type(value) is dict and "wkb" in value:
        return _spatial(value)
    if isinstance(value, dict | list):
        raise NotRead("it has several parts")
    return as_text(value)


def _parameters(field: Fields) -> Mapping[str, Any]:
    found = field.get("parameters")
    return found if isinstance(found, dict) else {}


def _not_read(name: str, value: Any) -> str:  # noqa: ARG001
    raise NotRead(f"it is a {name}")


def _whole(value: Any) -> int:
    digits = value if isinstance(value, Number) and len(value) <= _MOST_DIGITS else ""
    if not digits.removeprefix("-").isdecimal():
        raise NotRead(f"{str(value)[:_MOST_BYTES]} is no whole number")
    return int(digits)


def _micros(value: Any, *, in_ns: bool = False, in_ms: bool = False) -> int:
    number = _whole(value)
    if in_ns and number % 1_000:  # no type of the database has them
        raise NotRead(f"{number} has nanoseconds")
    return number // 1_000 if in_ns else number * 1_000 if in_ms else number


def _time(value: Any, *, in_ns: bool = False, in_ms: bool = False) -> str:
    return str(_micros(value, in_ns=in_ns, in_ms=in_ms))


def _moment(value: Any, *, in_ns: bool = False, in_ms: bool = False) -> str:
    """A time since 1970, whatever the digits of the column."""
    try:
        at = _EPOCH + timedelta(microseconds=_micros(value, in_ns=in_ns, in_ms=in_ms))
    except OverflowError as error:
        raise NotRead(f"{value} is beyond the years 1 to 9999") from error
    return f"{at.year:04d}{at:-%m-%d %H:%M:%S}" + (
        f".{at.microsecond:06d}" if at.microsecond else ""
    )


def _iso(value: Any) -> str | None:
    """Without the zone, which is UTC, and with a blank before the time of the day."""
    text = as_text(value)
    return text and text.removesuffix("Z").replace("T", " ")


def _spatial(value: Any) -> str:
    """MySQL's bytes, in base64: those of the SRID, and then WKB."""
    wkb, srid = (value.get("wkb"), value.get("srid")) if type(value) is dict else (None, None)
    number = 0 if srid is None else _whole(srid)
    if type(wkb) is not str or not 0 <= number < 1 << (8 * _SRID_BYTES):
        raise NotRead("it has no WKB, or no SRID")
    try:
        return base64.b64encode(
            number.to_bytes(_SRID_BYTES, "little") + base64.b64decode(wkb, validate=True)
        ).decode()
    except (ValueError, binascii.Error) as error:
        raise NotRead("its WKB is no base64") from error


def _decimal_reader(scale: int) -> Cell:
    def read(value: Any) -> str | None:
        text = as_text(value)
        if text is None or type(value) is not str:
            return text  # with decimal.format=NUMERIC
        try:
            digits = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return text
        if not digits or len(digits) > _MOST_BYTES:
            return text
        number = Decimal(int.from_bytes(digits, "big", signed=True))
        return f"{number.scaleb(-scale, _DIGITS):f}"

    return read


_READERS: Final[Mapping[str, Cell]] = {
    "org.apache.kafka.connect.data.Time": partial(_time, in_ms=True),
    "io.debezium.time.Time": partial(_time, in_ms=True),
    "io.debezium.time.MicroTime": _time,
    "io.debezium.time.NanoTime": partial(_time, in_ns=True),
    "org.apache.kafka.connect.data.Timestamp": partial(_moment, in_ms=True),
    "io.debezium.time.Timestamp": partial(_moment, in_ms=True),
    "io.debezium.time.MicroTimestamp": _moment,
    "io.debezium.time.NanoTimestamp": partial(_moment, in_ns=True),
    **{f"io.debezium.time.{each}": _iso for each in ("IsoDate", "IsoTime", "IsoTimestamp")},
    **{f"io.debezium.data.geometry.{each}": _spatial for each in ("Geometry", "Point")},
}
