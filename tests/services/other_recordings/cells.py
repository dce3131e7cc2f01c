"""A value as SELECT showed it (`expected.json`), and as TiCDC's encoders write it."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from tests.services.other_recordings.go_json import Number

UTC_ZONE = "UTC"
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_LONG = ("tinytext", "text", "mediumtext", "longtext", *_BYTES[2:])
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")
Encode = Callable[[str, Any, str], Any]  # MySQL's type, the value (not NULL), TiCDC's zone


def base(mysql_type: str) -> str:
    return re.split(r"[( ]", mysql_type, maxsplit=1)[0]


def digits(mysql_type: str) -> int:
    found = re.search(r"\((\d+)", mysql_type)
    return int(found[1]) if found else 0


def local(text: str, zone: str) -> str:
    """A TIMESTAMP in a zone. What has no moment (zero) is the same in each."""
    if zone == UTC_ZONE or text.startswith("0000"):
        return text
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(zone_of(zone))
    shown = moment.replace(tzinfo=None).isoformat(" ", "seconds")
    return shown + text[19:]


@cache
def zone_of(zone: str) -> Any:
    if found := re.fullmatch(r"([+-])(\d\d):(\d\d)", zone):
        return datetime.fromisoformat(f"2000-01-01T00:00:00{found[0]}").tzinfo
    return ZoneInfo(zone)


def shortest(text: str, *, single: bool) -> str:
    """All digits that a float needs, none more, without an exponent."""
    value = np.float32(text) if single else np.float64(text)
    return str(np.format_float_positional(value, unique=True, trim="-"))


def go_number(text: str, *, single: bool, low: int = -6, high: int = 21, exponent: int = 1) -> str:
    """As Go writes a number in JSON, or (-4, 21, 2) by ``%v``."""
    plain = Decimal(shortest(text, single=single))
    at = plain.adjusted() if plain else 0
    if low <= at < high:
        return shortest(text, single=single)
    of = plain.normalize()
    mantissa = f"{of.scaleb(-at):f}"
    return f"{mantissa}e{'-' if at < 0 else '+'}{abs(at):0{exponent}}"


def _number(mysql_type: str, value: Any) -> str | None:
    """Of types that are numbers, or are sent as numbers."""
    kind = base(mysql_type)
    if kind == "year":
        return str(int(value))
    if kind in ("enum", "set"):
        return str(value["number"])
    return str(value) if kind in _WHOLE else None


def canal(mysql_type: str, value: Any, zone: str) -> Any:
    kind = base(mysql_type)
    if (number := _number(mysql_type, value)) is not None:
        return number
    if kind in ("float", "double"):
        return shortest(value, single=kind == "float")
    if kind in _BYTES:
        return bytes.fromhex(value["hex"]).decode("latin-1")
    return local(value, zone) if kind == "timestamp" else value


def simple(mysql_type: str, value: Any, zone: str) -> Any:
    kind = base(mysql_type)
    if kind in _BYTES:
        return _base64(bytes.fromhex(value["hex"]))
    if kind == "timestamp":
        return {"location": zone, "value": local(value, zone)}
    return canal(mysql_type, value, zone)


def open_event(mysql_type: str, value: Any, zone: str) -> Any:
    kind = base(mysql_type)
    if (number := _number(mysql_type, value)) is not None:
        return Number(number)
    if kind in ("float", "double"):
        return Number(go_number(value, single=kind == "float"))
    if kind in _LONG:
        data = bytes.fromhex(value["hex"]) if kind in _BYTES else value.encode()
        return _base64(data)
    if kind in _BYTES:
        return go_quoted(bytes.fromhex(value["hex"]))
    return local(value, zone) if kind == "timestamp" else value


def debezium(mysql_type: str, value: Any, zone: str) -> Any:  # noqa: ARG001 - in UTC
    kind = base(mysql_type)
    if kind in _CONNECT:
        return _CONNECT[kind](mysql_type, value)
    if kind in ("float", "double", "decimal"):
        return Number(go_number(value, single=kind == "float", exponent=2))
    if kind in _BYTES:
        return _base64(bytes.fromhex(value["hex"]))
    text = None if kind in ("enum", "set") else _number(mysql_type, value)
    if text is not None:
        return Number(text)
    return value["name"] if kind in ("enum", "set") else value


def _connect_bits(mysql_type: str, value: str) -> Any:
    bits = digits(mysql_type)
    if bits == 1:
        return value == "1"
    return _base64(int(value).to_bytes((bits + 7) // 8, "little"))


def _connect_long(_type: str, value: str) -> Number:
    number = int(value)
    return Number(number - (1 << 64) if number >= 1 << 63 else number)


def _connect_day(_type: str, value: str) -> Number | None:
    if value.startswith("0000"):
        return None
    day = date.fromisoformat(value.replace("0001-", "2001-", 1))  # TiCDC loses such years
    return Number((day - date(1970, 1, 1)).days)


def _connect_moment(mysql_type: str, value: str) -> Number | None:
    if value.startswith("0000"):
        return None
    moment = datetime.fromisoformat(value.replace("0001-", "2001-", 1)).replace(tzinfo=UTC)
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution
    return Number(micros if digits(mysql_type) > 3 else micros // 1000)


def _connect_instant(_type: str, value: str) -> str:
    if value.startswith("0000"):
        return "1970-01-01T00:00:00Z"
    whole, _, fraction = value.replace(" ", "T").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def _connect_time(_type: str, value: str) -> Number:
    found = re.fullmatch(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?", value)
    assert found is not None
    seconds = (int(found[2]) * 60 + int(found[3])) * 60 + int(found[4])
    micros = seconds * 10**6 + int((found[5] or "0").ljust(6, "0"))
    return Number(-micros if found[1] else micros)


_CONNECT: dict[str, Callable[[str, str], Any]] = {
    "bit": _connect_bits,
    "bigint": _connect_long,
    "date": _connect_day,
    "datetime": _connect_moment,
    "timestamp": _connect_instant,
    "time": _connect_time,
}
ENCODERS: dict[str, Encode] = {
    "canal-json": canal,
    "simple-json": simple,
    "open-protocol": open_event,
    "debezium": debezium,
}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def go_quoted(data: bytes) -> str:
    """As Go's `strconv.Quote` writes these bytes, without the quotes around them."""
    made = []
    at = 0
    while at < len(data):
        char, size = _char(data, at)
        if char is None:
            made.append(f"\\x{data[at]:02x}")
        elif char in '"\\':
            made.append(f"\\{char}")
        elif char == " " or unicodedata.category(char)[0] in "LMNPS":
            made.append(char)
        elif char in _GO_ESCAPES:
            made.append(_GO_ESCAPES[char])
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            made.append(f"\\x{ord(char):02x}")
        else:
            made.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
        at += size
    return "".join(made)


_GO_ESCAPES = dict(zip("\a\b\f\n\r\t\v", (f"\\{c}" for c in "abfnrtv"), strict=True))


def _char(data: bytes, at: int) -> tuple[str | None, int]:
    for size in range(1, 5):
        try:
            char = data[at : at + size].decode()
        except UnicodeDecodeError:
            continue
        return char, size
    return None, 1
