"""MySQL's binary JSON as the text that the server shows.

A document is a type byte and a value. An object or array has a table of its keys and values, whose
offsets count from its own beginning; small numbers and literals stand in the table itself. A
*small* one has offsets of 16 bits, a *large* one of 32.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from streaming.source.binlog.format.cells.layout import DIGIT_BYTES
from streaming.source.binlog.format.type_codes import ColumnType

_LARGE_OBJECT: Final = 1
_LARGE_ARRAY: Final = 3
_LITERAL: Final = 4
_INT16, _UINT16, _INT32, _UINT32, _DOUBLE = 5, 6, 7, 8, 11
_STRING: Final = 12
_OPAQUE: Final = 15
_MAX_DEPTH: Final = 100  # the server's own bound
_MOST_PLAIN_DIGITS: Final = 15  # before the point, and zeros behind it: else 1.5e20


class BadJson(ValueError):
    """The bytes are no JSON of MySQL's. The message is a sentence."""


def json_text(data: bytes) -> str:
    """The document as text; an empty value is ``null``, as the server takes it. Raises BadJson."""
    if not data:
        return "null"
    try:
        return _Document(data).value(data[0], 1, 0)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise BadJson("the bytes are no JSON document of MySQL's") from error


_quoted: Final = json.encoder.encode_basestring
_LITERALS: Final = ("null", "true", "false")
_HEADS: Final = (struct.Struct("<HH").unpack_from, struct.Struct("<II").unpack_from)
_NUMBERS: Final[Mapping[int, Callable[[bytes, int], tuple[int]]]] = {
    kind: struct.Struct(form).unpack_from
    for kind, form in {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}.items()
}
_double_from: Final = struct.Struct("<d").unpack_from


class _Document:
    """``left``: so many values may still come. Each takes a byte at least, so there are no more
    than bytes; offsets of garbage can lead to the same values again and again."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = len(data)

    def value(self, kind: int, at: int, depth: int) -> str:
        data = self.data
        if kind == _STRING:
            size, at = self.size(at)
            return _quoted(self.take(at, size).decode())
        if kind <= _LARGE_ARRAY:
            return self.container(kind, at, depth)
        if kind == _LITERAL:
            return _LITERALS[data[at]]
        if kind == _DOUBLE:
            return double_text(_double_from(data, at)[0])
        if kind == _OPAQUE:
            size, begin = self.size(at + 1)
            return _opaque(data[at], self.take(begin, size))
        return str(_NUMBERS[kind](data, at)[0])

    def container(self, kind: int, at: int, depth: int) -> str:
        """The value tables are read in place: most of a document is in them."""
        data, is_large, is_object = self.data, kind & 1, kind <= _LARGE_OBJECT
        step = 4 if is_large else 2
        count, size = _HEADS[is_large](data, at)
        self.left -= count
        if self.left < 0 or depth >= _MAX_DEPTH or at + size > len(data):
            raise BadJson("a JSON document does not fit into its bytes")
        entry = at + 2 * step + (count * (step + 2) if is_object else 0)
        keys = self.keys(at, entry, count, step) if is_object else ()
        texts = []
        for _ in range(count):
            child = data[entry]
            if child == _LITERAL:
                texts.append(_LITERALS[data[entry + 1]])
            elif child in (_INT16, _UINT16) or (is_large and child in (_INT32, _UINT32)):
                texts.append(str(_NUMBERS[child](data, entry + 1)[0]))
            else:
                place = data[entry + 1] | data[entry + 2] << 8
                if is_large:
                    place |= data[entry + 3] << 16 | data[entry + 4] << 24
                texts.append(self.value(child, at + place, depth + 1))
            entry += 1 + step
        if is_object:
            return "{" + ", ".join(map(str.__add__, keys, texts)) + "}"
        return "[" + ", ".join(texts) + "]"

    def keys(self, at: int, stop: int, count: int, step: int) -> tuple[str, ...]:
        """The keys of the object at ``at``. Their bytes stand behind both tables, without gaps."""
        if not count:
            return ()
        table = self.take(at + 2 * step, count * (step + 2))
        last = table[-step - 2 :]
        end = at + int.from_bytes(last[:step], "little") + int.from_bytes(last[step:], "little")
        begin = stop + count * (1 + step)
        names = self.take(begin, end - begin)
        return _key_texts(table, names, step, begin - at)

    def size(self, at: int) -> tuple[int, int]:
        """A size in groups of seven bits, the lowest first, and where it ends."""
        data = self.data
        size = data[at]
        if size < 0x80:
            return size, at + 1
        size &= 0x7F
        for group in range(1, 5):
            byte = data[at + group]
            size |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                return size, at + group + 1
        raise BadJson("a size in a JSON document has too many bytes")

    def take(self, at: int, size: int) -> bytes:
        if size < 0 or at + size > len(self.data):
            raise BadJson("a JSON document does not fit into its bytes")
        return self.data[at : at + size]


@lru_cache(maxsize=4096)
def _key_texts(table: bytes, names: bytes, step: int, first: int) -> tuple[str, ...]:
    """Each key as text with its colon. Most documents of a column have the same keys."""
    texts = []
    for entry in range(0, len(table), step + 2):
        begin = int.from_bytes(table[entry : entry + step], "little") - first
        size = table[entry + step] | table[entry + step + 1] << 8
        if begin < 0 or begin + size > len(names):
            raise BadJson("a key of a JSON document stands outside it")
        texts.append(_quoted(names[begin : begin + size].decode()) + ": ")
    return tuple(texts)


def double_text(value: float) -> str:
    """As the server shows a double in JSON: the fewest digits that tell it, ``1e20``, ``1.0``."""
    mantissa, _, exponent = f"{value!r}e".removesuffix("e").partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    if not whole.isdigit():
        raise BadJson(f"a JSON document has the number {value}")
    point = len(whole) + int(exponent or 0)
    stripped = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(stripped)
    digits = stripped.rstrip("0")
    if not digits:
        return sign + "0.0"
    if point < 1 - _MOST_PLAIN_DIGITS or (point > _MOST_PLAIN_DIGITS and len(digits) <= point):
        rest = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return sign + "0." + "0" * -point + digits
    return sign + digits[:point].ljust(point, "0") + "." + (digits[point:] or "0")


def _opaque(kind: int, raw: bytes) -> str:
    """A value of an SQL type: a number for DECIMAL, else a quoted text."""
    if kind == ColumnType.DECIMAL:
        return _decimal(raw)
    if kind in (
        ColumnType.DATE,
        ColumnType.DATETIME_OLD,
        ColumnType.TIMESTAMP_OLD,
        ColumnType.TIME_OLD,
    ):
        return _quoted(_moment(int.from_bytes(raw, "little", signed=True), kind))
    return _quoted(f"base64:type{kind}:{base64.b64encode(raw).decode()}")


def _moment(packed: int, kind: int) -> str:
    if kind == ColumnType.TIME_OLD:
        sign = "-" if packed < 0 else ""
        packed = abs(packed)
        clock = packed >> 24
        return f"{sign}{clock >> 12 & 1023:02}:{_minutes(clock)}.{packed & 0xFFFFFF:06}"
    us, packed = packed & 0xFFFFFF, packed >> 24
    year_month, day = packed >> 22, packed >> 17 & 31
    date = f"{year_month // 13:04}-{year_month % 13:02}-{day:02}"
    if kind == ColumnType.DATE:
        return date
    return f"{date} {packed >> 12 & 31:02}:{_minutes(packed)}.{us:06}"


def _minutes(packed: int) -> str:
    return f"{packed >> 6 & 63:02}:{packed & 63:02}"


def _decimal(raw: bytes) -> str:
    """Two bytes with precision and scale, then the digits as in a column (`number_cells.py`)."""
    precision, scale = raw[0], raw[1]
    whole = precision - scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    is_negative = raw[2] < 0x80
    at, digits = 2, ""
    for size in filter(None, sizes):
        width = DIGIT_BYTES[size]
        part = int.from_bytes(raw[at : at + width], "big")
        if at == 2:
            part ^= 1 << (8 * width - 1)
        if is_negative:
            part ^= (1 << 8 * width) - 1
        digits += f"{part:0{size}}"
        at += width
    if at != len(raw) or whole < 0:
        raise BadJson("a decimal in a JSON document does not fit into its bytes")
    front = digits[:whole].lstrip("0") or "0"
    return ("-" if is_negative else "") + front + ("." + digits[whole:] if scale else "")
