"""Values as a malicious user would give them: extremes of each type, and texts that look like the
protocols' own. As SELECT shows them (`expected.json`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tests.services.other_recordings.cells import base, digits, shortest

_INT_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_LENGTHS = {
    "tinytext": 60,
    "text": 500,
    "mediumtext": 3000,
    "longtext": 9000,
    "tinyblob": 255,
    "blob": 2000,
    "mediumblob": 9000,
    "longblob": 30000,
}
_ENUM = ("a", "b,c", "d'e", "中文", "")
_SET = ("x", "y", "z", "w v")
TEXTS = (
    *("", " ", "  x  ", "'", '"', "\\", "\\\\", '\\"', "''", '""', "\\'", "\0", "a\0b", "\n", "\r"),
    *("\r\n", "\t", "\x1b", "\x7f", "\b\f\v", "\\N", "\\n", "NULL", "null", "Null", "true", "0"),
    *('"],"old":[{', '"}],"data":[{"id":"1"}]', '{"u":{"id":', '","type":"DELETE"', '"v":null'),
    *("]}", "}}", "[]", "{}", "null}", '","_tidb":{"commitTs":1}', "aGVsbG8=", "AAAA", "QQ==", "="),
    *("0xDEADBEEF", "deadbeef", "x'00'", "\\x00", "\\u0041", "\\u0000", "%s", "%00", "${x}", "{0}"),
    *("中文", "é", "e\u0301", "😀", "\u2028", "\u2029", "\ufeff", "\u200b", "\ufffd", "\U0010ffff"),
    *("1e5", "-0", "NaN", "Infinity", "0000-00-00", "1970-01-01", "--", "/*", "*/", "<&>", "&lt;"),
    *("I", "U", "D", ",", "|", ";", 'a","b', "a|b", "\\,", "\\|", "a\\", '"\r\n"I","x', "a\r"),
    *("\\\r", "shop", "orders", "_tidb", "commitTs", "onlyHandleKey", '"claimCheckLocation":"x"'),
    *('{"location":"UTC","value":"2020-01-01 00:00:00"}', '{"location":"', "BOOTSTRAP"),
)
JSONS = (
    *("null", "true", "0", "-1", '""', "[]", "{}", '"null"', "18446744073709551615", "1e300"),
    *("-9223372036854775808", "0.1", '"\\""', '"\\\\"', '"\\u0000"', '"\\n"', '"中文😀"'),
    *('{"": ""}', '{"a": [1, 2, {"b": null}], "中": "文"}', "[" * 50 + "]" * 50),
    *('"],\\"old\\":[{"', '{"old": [{"data": "}]"}]}', '"2020-01-01"', '"base64:type15:AAAA"'),
)
_DAYS = (
    *("0001-01-01", "9999-12-31", "1582-10-04", "1582-10-05", "1582-10-15", "1900-02-28"),
    *("2000-02-29", "1969-12-31", "1970-01-01", "0999-12-31", "1000-01-01", "2024-03-10"),
)
_SECONDS = (1, 2**31 - 1, 86399, 1_000_000_000, 1_583_650_800)  # the last: clocks go on in New York
_FLOATS = (0.0, 1e-5, 1e-4, 123456789.125, 1e15, 1e20, 1e21, 1e22, 2.0**53 + 1, 0.1, 1 / 3)


def other_value(dice: random.Random, mysql_type: str) -> Any:
    return _MAKERS[base(mysql_type)](dice, mysql_type)


def _whole(dice: random.Random, mysql_type: str) -> str:
    bits = _INT_BITS[base(mysql_type)]
    low = 0 if "unsigned" in mysql_type else -(2 ** (bits - 1))
    high = low + 2**bits
    some = (low, low + 1, 0, 1, low // 3, high - 1, high // 2, dice.randrange(low, high))
    return str(dice.choice(some))


def _bit(dice: random.Random, mysql_type: str) -> str:
    bits = digits(mysql_type)
    return str(dice.choice((0, 1, 2**bits - 1, 2 ** (bits - 1), dice.randrange(2**bits))))


def _year(dice: random.Random, _type: str) -> str:
    return dice.choice(("0000", "1901", "2155", "1970", "2000"))


def _float(dice: random.Random, mysql_type: str) -> str:
    is_single = base(mysql_type) != "double"
    kind: Any = np.float32 if is_single else np.float64
    of = np.finfo(kind)
    limits = (of.smallest_subnormal, of.tiny, of.max, of.eps, 10.0 ** dice.randrange(-37, 38))
    value = float(dice.choice((*_FLOATS, *limits, dice.uniform(-1e6, 1e6))))
    value = abs(value) if "unsigned" in mysql_type else value * dice.choice((1, -1))
    return shortest(repr(float(kind(value))), single=is_single)


def _decimal(dice: random.Random, mysql_type: str) -> str:
    whole, scale = map(int, mysql_type.partition("(")[2].partition(")")[0].split(","))
    some = (0, 1, 10**whole - 1, 10 ** (whole - 1), dice.randrange(10**whole))
    number = dice.choice(some)
    text = f"{number:0{scale + 1}d}"
    text = f"{text[:-scale]}.{text[-scale:]}" if scale else text
    is_unsigned = "unsigned" in mysql_type or number == 0
    return text if is_unsigned else dice.choice(("", "-")) + text


def _enum(dice: random.Random, _type: str) -> dict[str, str]:
    number = dice.randrange(len(_ENUM) + 1)
    return {"name": _ENUM[number - 1] if number else "", "number": str(number)}


def _set(dice: random.Random, _type: str) -> dict[str, str]:
    bits = dice.randrange(1 << len(_SET))
    names = [name for at, name in enumerate(_SET) if bits >> at & 1]
    return {"name": ",".join(names), "number": str(bits)}


def _json(dice: random.Random, _type: str) -> str:
    return dice.choice(JSONS)


def _vector(dice: random.Random, mysql_type: str) -> str:
    return f"[{','.join(_float(dice, 'float') for _ in range(digits(mysql_type)))}]"


def _fraction(dice: random.Random, width: int) -> str:
    some = (0, 1, 10**width - 1, 10**width // 2)
    return f".{dice.choice(some):0{width}d}" if width else ""


def _time(dice: random.Random, mysql_type: str) -> str:
    width = digits(mysql_type)
    text = f"{dice.choice(('00', '838', '23', '24', '100'))}:{dice.choice(('00:00', '59:59'))}"
    text += (f".{'0' * width}" if width else "") if text == "838:59:59" else _fraction(dice, width)
    return dice.choice(("", "-")) + text if text.strip("0:.") else text


def _timestamp(dice: random.Random, mysql_type: str) -> str:
    seconds = dice.choice((*_SECONDS, dice.randrange(1, 2**31)))
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    return text + _fraction(dice, digits(mysql_type))


def _date(dice: random.Random, _type: str) -> str:
    return dice.choice((*_DAYS, "0000-00-00"))


def _datetime(dice: random.Random, mysql_type: str) -> str:
    width = digits(mysql_type)
    if dice.random() < 0.1:
        return "0000-00-00 00:00:00" + (f".{'0' * width}" if width else "")
    time = dice.choice(("00:00:00", "23:59:59", "02:30:00"))
    return f"{dice.choice(_DAYS)} {time}{_fraction(dice, width)}"


def some_text(dice: random.Random, most: int) -> str:
    kind = dice.random()
    if kind < 0.6:
        made = "".join(dice.choice(TEXTS) for _ in range(dice.choice((1, 1, 1, 2, 5))))
    elif kind < 0.8:
        made = "".join(chr(dice.randrange(0x250)) for _ in range(dice.randrange(most)))
    elif kind < 0.9:
        made = dice.choice(("x", "\\", '"', "'", "\0", "é", "😀", "\n", ",", "中")) * most
    else:
        made = dice.choice(TEXTS) * dice.randrange(1, most)
    return made[:most]


def _text(dice: random.Random, mysql_type: str) -> str:
    kind = base(mysql_type)
    text = some_text(dice, digits(mysql_type) or _LENGTHS[kind])
    return text.rstrip(" ") if kind == "char" else text


def _bytes(dice: random.Random, mysql_type: str) -> dict[str, str]:
    kind = base(mysql_type)
    most = digits(mysql_type) or _LENGTHS[kind]
    some = (
        *(b"", b"\0", bytes(range(256)), b"\xff" * most, b"\\x00", b'"', b"\\", b"\r\n", b"'"),
        *(b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"AAAA"),
        *(b"\x7f\x80\x9f\xa0\xad", some_text(dice, 20).encode()),
        dice.randbytes(dice.randrange(most + 1)),
    )
    made = dice.choice(some)[:most]
    return {"hex": (made.ljust(most, b"\0") if kind == "binary" else made).hex()}


_MAKERS: dict[str, Callable[[random.Random, str], Any]] = {
    **dict.fromkeys(_INT_BITS, _whole),
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _text),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    "bit": _bit,
    "year": _year,
    "decimal": _decimal,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
    "time": _time,
    "timestamp": _timestamp,
    "date": _date,
    "datetime": _datetime,
}
