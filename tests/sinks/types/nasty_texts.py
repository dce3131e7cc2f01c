"""Random texts for a MySQL type: values of it, values a little broken, and what is none at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from sinks.types.mysql_type import MySQLType
from tests.sinks.types.cast_cases import DATES, NUMBERS, TEXTS

TYPES = (
    *("tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint"),
    *("mediumint unsigned", "int", "int unsigned", "bigint", "bigint unsigned"),
    *("bit(1)", "bit(10)", "bit(63)", "bit(64)", "bit", "year(4)"),
    *("decimal(10,2)", "decimal(5,0)", "decimal(18,18)", "decimal(38,0)", "decimal(38,10)"),
    *("decimal(38,38)", "decimal(65,30)", "decimal", "float", "double"),
    *("varchar(64)", "json", "time(6)", "binary(4)", "blob", "enum('a','b,c','中文','')", "enum"),
    *("set('x','y','z','w v')", "set", "vector(3)"),
    *("date", "datetime", "datetime(6)", "timestamp", "timestamp(6)"),
)
ALPHABET = "0123456789" * 3 + "-+.eE:T Zx,_[]\"'/#\tnaif\n\u00e9\u00ff\u0100\u0661\u4e2d𝄞"
HOSTILE = (
    *("", " ", "-", "+", ".", "-.", "1.", ".5", "-.5", "1.e5", "1e", "e1", "1e5", "1E+5", "1e-5"),
    *(
        "+1",
        "01",
        "-01",
        "-0",
        "-0.0",
        "00",
        "0x1f",
        "0X10",
        "0b1",
        "1_000",
        "1,000",
        "\uff11",
        "\u0663",
    ),
    *(
        "nan",
        "NaN",
        "-nan",
        "inf",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "1e-999",
        "1d",
        "1f",
    ),
    *("null", "NULL", "true", "1 ", " 1", "1\t", "\t1", "1\n", "1\u0000", "1\u00a0", "--1", "1-"),
    *("9" * 38, "9" * 39, "9" * 77, "0" * 60 + "1", "-" + "0" * 60 + "1", "0." + "0" * 60 + "1"),
    *("3.4028235677973362e38", "3.4028235677973366e38", "3.4028236e38", "1e-46", "1.4e-45"),
    *("1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "2e-324", "1e-400"),
    *("2020-01-02", "2020-01-02 ", "2020-1-2", "20200102", "2020/01/02", "2020-01-02Z", "epoch"),
    *("2020-01-02 03:04", "2020-01-02 03", "2020-01-02 03:04:05 ", "2020-01-02T03:04:05"),
    *("2020-01-02 03:04:05.", "2020-01-02 03:04:05.1", "2020-01-02 03:04:05.1234567"),
    *("2020-01-02 03:04:05Z", "2020-01-02 03:04:05+08:00", "2020-01-02 03:04:05.12+08"),
    *(
        "2020-01-02 03:04:05.1Z",
        "2020-01-02 24:00:00",
        "2020-01-02 23:60:00",
        "2020-1-2 3:4:5.00000",
    ),
    *("02020-01-02", "12020-01-02 00:00:00", "12020-1-02 00:00:00", "0000-00-00", "0000-01-01"),
    *("-2020-01-02", "+2020-01-02 00:00:00", "1900-02-29", "2000-02-29", "2100-02-29 00:00:00"),
    *("0000-00-00 00:00:00", "0000-00-00 00:00:00.000000", "2020-00-00 99:99:99", "0000-02-29"),
    *("[]", "[ ]", "[1]", "[1,2]", "[1, 2 ]", "[ 1,2]", "[1 2]", "[01]", "[1.]", "[.5]", "[+1]"),
    *("[1e5]", "[1e39]", "[1e999]", "[-0]", "[NaN]", "[1,]", "[,1]", "[,]", "[[1]]", "[1][2]"),
    *("[1e-50]", "[1]]", " [1]", "[1] ", "[123456789012345678901234567890]", "[-]", "[1,-2.5E+3]"),
)


def texts(mysql_type: str, count: int, random_: random.Random) -> list[str | None]:
    """The same for the same state of ``random_``; among them all of HOSTILE and NULL."""
    cases = (NUMBERS | TEXTS | DATES).get(mysql_type, [])
    found: list[str | None] = [None, *HOSTILE]
    found += [text for text, _ in cases if len(text or "") < 400]
    make = _maker(MySQLType.parse(mysql_type), random_)
    while len(found) < count:
        text = make()
        found.append(text)
        found.append(broken(text, random_))
    random_.shuffle(found)
    return found


def values(mysql_type: str, count: int, random_: random.Random) -> list[str]:
    """Texts as TiCDC writes them, mostly within the type's range."""
    make = _maker(MySQLType.parse(mysql_type), random_)
    return [make() for _ in range(count)]


def broken(text: str, random_: random.Random) -> str:
    """With one or two characters changed, added or left out."""
    for _ in range(random_.choice((1, 1, 2))):
        at = random_.randint(0, len(text))
        kept = random_.randint(0, 1)
        put = random_.choice(ALPHABET) if random_.random() < 0.8 else ""
        text = text[:at] + put + text[at + kept :]
    return text


def _maker(mysql_type: MySQLType, random_: random.Random) -> Callable[[], str]:
    makers: dict[str, Callable[[], str]] = {
        "float": lambda: _floating(random_, 45),
        "double": lambda: _floating(random_, 330),
        "decimal": lambda: _decimal(random_, mysql_type),
        "date": lambda: _moment(random_)[:10],
        "datetime": lambda: _moment(random_),
        "timestamp": lambda: _moment(random_),
        "vector": lambda: (
            f"[{','.join(_floating(random_, 12) for _ in range(random_.randint(0, 4)))}]"
        ),
        "year": lambda: str(random_.choice((0, random_.randint(1890, 2170)))),
        "enum": lambda: str(random_.randint(0, 6)),
        "set": lambda: str(random_.randint(0, 18)),
    }
    for name in ("varchar", "json", "time", "binary", "blob"):
        makers[name] = lambda: _any_text(random_)
    return makers.get(mysql_type.name, lambda: _whole(random_))


def _whole(random_: random.Random) -> str:
    """Near a power of two, where ranges end, or of any size."""
    edge = 1 << random_.choice((0, 1, 7, 8, 10, 15, 16, 23, 24, 31, 32, 63, 64))
    near = edge + random_.randint(-2, 2)
    value = random_.choice((near, -near, random_.randint(-(10**18), 10**18) % edge))
    return str(value) if random_.random() < 0.9 else str(value).zfill(random_.choice((5, 20, 30)))


def _decimal(random_: random.Random, mysql_type: MySQLType) -> str:
    scale = mysql_type.scale or 0
    size = random_.randint(1, max((mysql_type.length or 38) - scale, 1) + 1)
    whole = "".join(random_.choices("0123456789", k=size)).lstrip("0") or "0"
    digits = scale if random_.random() < 0.7 else random_.randint(0, scale + 2)
    behind = "." + "".join(random_.choices("0123456789", k=digits)) if digits else ""
    return random_.choice(("", "-")) + whole + behind


def _floating(random_: random.Random, exponent: int) -> str:
    value = random_.uniform(-10, 10) * 10.0 ** random_.choice((0, 0, random_.randint(-9, 9)))
    if random_.random() < 0.1:
        return f"{random_.uniform(-10, 10):.17g}e{random_.randint(-exponent, exponent)}"
    return random_.choice((repr(value), f"{value:.{random_.randint(0, 20)}f}"))


def _vector(random_: random.Random) -> str:
    return "[" + ",".join(_floating(random_, 12) for _ in range(random_.randint(0, 4))) + "]"


def _moment(random_: random.Random) -> str:
    if random_.random() < 0.2:
        parts = [random_.randint(0, most) for most in (2200, 13, 32, 24, 60, 60)]
        text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*parts)
    else:
        first = datetime(1970, 1, 2) if random_.random() < 0.8 else datetime(1, 1, 2)  # noqa: DTZ001
        years = 68 if first.year > 1 else 9997
        text = str(first + timedelta(seconds=random_.randrange(int(years * 365.2425 * 86400))))
    digits = random_.randint(0, 6)
    return text + ("." + "".join(random_.choices("0123456789", k=digits)) if digits else "")


def _any_text(random_: random.Random) -> str:
    return "".join(random_.choices(ALPHABET, k=random_.randint(0, 12)))
