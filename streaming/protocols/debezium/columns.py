"""What the schema in a message of Debezium says of a row's columns: MySQL types, as far as it tells
them, and values that no other place tells how to read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from streaming.protocols.debezium.envelope import Fields

_DIGITS: Final = Context(prec=80)
_MS_DIGITS: Final = 16
_MOST_BYTES: Final = 40  # of a decimal: 65 digits have fewer
# Kafka Connect's and Debezium's names of types; what a name does not tell is the widest there is.
_NAMED: Final[Mapping[str, str]] = {
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.Timestamp": "datetime(3)",
    "org.apache.kafka.connect.data.Timestamp": "datetime(3)",
    "io.debezium.time.MicroTimestamp": "datetime(6)",
    "io.debezium.time.NanoTimestamp": "datetime(6)",
    "io.debezium.time.MicroTime": "time(6)",
    "io.debezium.time.Time": "time(3)",
    "org.apache.kafka.connect.data.Time": "time(3)",
    "io.debezium.time.ZonedTimestamp": "timestamp(6)",
    "io.debezium.time.Year": "year",
    "io.debezium.data.Json": "json",
}
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
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_IN_MS: Final = ("org.apache.kafka.connect.data.Time", "io.debezium.time.Time")


def mysql_type(field: Fields) -> str | None:
    """The type in words that `MySQLType.parse` knows; None where it is not told."""
    if (told := field.get("tidb_type")) is not None:
        return str(told)
    parameters = _parameters(field)
    source = parameters.get("__debezium.source.column.type")
    if isinstance(source, str):  # with column.propagate.source.type
        return _with_digits(source, parameters)
    name = str(field.get("name") or "")
    if name in ("io.debezium.data.Enum", "io.debezium.data.EnumSet"):
        allowed = str(parameters.get("allowed") or "")
        elements = ",".join("'" + each.replace("'", "''") + "'" for each in allowed.split(","))
        return f"{'set' if name.endswith('Set') else 'enum'}({elements})"
    if name == "io.debezium.data.Bits":
        return f"bit({parameters.get('length') or 64})"
    if name == _DECIMAL:
        scale = parameters.get("scale") or "0"
        return f"decimal({parameters.get('connect.decimal.precision') or 65},{scale})"
    return _NAMED.get(name) or _PLAIN.get(str(field.get("type")))


def _with_digits(source: str, parameters: Mapping[str, Any]) -> str:
    length = parameters.get("__debezium.source.column.length")
    scale = parameters.get("__debezium.source.column.scale")
    words = source.lower().split()
    if not words or "(" in source or length is None or words[0] in ("enum", "set"):
        return source.lower()
    digits = f"({length})" if scale is None else f"({length},{scale})"
    return " ".join([words[0] + digits, *words[1:]])


def reader_of(field: Fields) -> Callable[[str], str] | None:
    """Makes of a cell's text the text that `casts/connect_cells.py` knows; None: it is one."""
    name = str(field.get("name") or "")
    if name == _DECIMAL and field.get("type") == "bytes":
        scale = str(_parameters(field).get("scale") or "0")
        return _decimal_reader(int(scale) if scale.isdigit() and len(scale) < 4 else 0)
    if name in _IN_MS:
        return _thousandfold
    if name == "org.apache.kafka.connect.data.Timestamp":
        return _moment
    return None


def _parameters(field: Fields) -> Mapping[str, Any]:
    found = field.get("parameters")
    return found if isinstance(found, dict) else {}


def _thousandfold(text: str) -> str:
    return f"{text}000" if text.lstrip("-").isdigit() and text.lstrip("-") != "0" else text


def _moment(text: str) -> str:
    """Ms since 1970, whatever the digits of the column."""
    if not text.lstrip("-").isdigit() or len(text) > _MS_DIGITS:
        return text
    try:
        at = datetime(1970, 1, 1) + timedelta(milliseconds=int(text))  # noqa: DTZ001
    except (OverflowError, ValueError):
        return text
    return f"{at.year:04d}{at:-%m-%d %H:%M:%S}" + (
        f".{at.microsecond:06d}" if at.microsecond else ""
    )


def _decimal_reader(scale: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        try:
            digits = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return text
        if not digits or len(digits) > _MOST_BYTES:
            return text
        number = Decimal(int.from_bytes(digits, "big", signed=True))
        return f"{number.scaleb(-scale, _DIGITS):f}"

    return read
