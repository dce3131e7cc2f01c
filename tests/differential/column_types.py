"""The types of columns that a random table has, and literals of each, the extremes among them.
Pure.

A literal may be none that the type or the session takes: the server says so, and nothing is done.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CHARSETS = (
    *("utf8mb4", "utf8mb4", "utf8mb4", "latin1", "utf8mb3", "ucs2", "gbk", "cp1251", "ascii"),
    *("utf16", "utf32", "latin2", "sjis", "binary"),
)
_NATIONAL = {"char": ("NCHAR", "NATIONAL CHAR"), "varchar": ("NVARCHAR", "NATIONAL VARCHAR")}
_COLLATIONS = ("utf8mb4_bin", "utf8mb4_general_ci", "latin1_bin", "latin1_german1_ci", "ucs2_bin")
NAMES = (
    ("a", "b", "it''s"),
    ("b", "a", "c", "é"),
    ("2", "1", "0", "10"),
    ("", "x", "Y", "0"),
    ("A", "B"),
    ("2020-01-02", "12:30:00", "z"),
)
FLAVOURS = ("numbers", "moments", "words", "extremes")
KINDS: dict[str, int] = {  # what a column may be -> how often
    "integer": 10,
    "bit": 2,
    "year": 3,
    "float": 3,
    "double": 3,
    "decimal": 5,
    "char": 4,
    "varchar": 8,
    "text": 4,
    "binary": 2,
    "varbinary": 3,
    "blob": 2,
    "date": 4,
    "datetime": 6,
    "timestamp": 6,
    "time": 5,
    "enum": 4,
    "set": 3,
    "json": 2,
    "geometry": 1,
    "point": 1,
    "vector": 1,
    "uuid": 1,
    "inet4": 1,
    "inet6": 1,
}
ONLY_MARIADB = ("uuid", "inet4", "inet6")


def random_kind(dice: random.Random, is_mariadb: bool) -> str:
    kinds = [each for each in KINDS if is_mariadb or each not in ONLY_MARIADB]
    return dice.choices(kinds, [KINDS[each] for each in kinds])[0]


def random_type(dice: random.Random, kind: str) -> str:  # noqa: C901, PLR0911, PLR0912 - one per kind
    """In SQL, with its attributes but for NULL, DEFAULT and the rest of a definition."""
    sign = dice.choice(("", "", "", " UNSIGNED", " ZEROFILL"))
    fsp = dice.choice(("", "", "(1)", "(2)", "(3)", "(4)", "(5)", "(6)", "(6)"))
    match kind:
        case "integer":
            name = dice.choice(tuple(_INTEGERS))
            width = f"({dice.randrange(1, 12)})" if sign == " ZEROFILL" else ""
            return name.upper() + width + sign
        case "bit" | "vector":
            sizes = (1, 8, 12, 33, 63, 64) if kind == "bit" else (1, 2, 3)
            return f"{kind.upper()}({dice.choice(sizes)})"
        case "year":
            return "YEAR"
        case "float" | "double":
            digits = dice.choice(("", "", "(7,2)", "(10,3)", "(5,0)", "(9,4)"))
            return kind.upper() + digits + dice.choice(("", "", "", " UNSIGNED", " ZEROFILL"))
        case "decimal":
            digits = dice.choice(
                (
                    "",
                    "(5,2)",
                    "(10,0)",
                    "(12,4)",
                    "(20,6)",
                    "(38,10)",
                    "(39,10)",
                    "(65,30)",
                    "(3,3)",
                )
            )
            return "DECIMAL" + digits + sign
        case "char" | "varchar":
            length = dice.choice((1, 5, 10, 20, 40) if kind == "char" else (1, 8, 20, 40, 200))
            if dice.random() < 0.08:
                return dice.choice(_NATIONAL[kind]) + f"({length})"
            return f"{kind.upper()}({length})" + _charset(dice)
        case "text":
            return dice.choice(("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")) + _charset(dice)
        case "binary" | "varbinary":
            return f"{kind.upper()}({dice.choice((1, 4, 10, 20, 40))})"
        case "blob":
            return dice.choice(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"))
        case "datetime" | "timestamp" | "time":
            return kind.upper() + fsp
        case "enum" | "set":
            names = ",".join(f"'{each}'" for each in dice.choice(NAMES))
            charset = dice.choice(("", "", "", " CHARACTER SET latin1", " CHARACTER SET utf8mb3"))
            return f"{kind.upper()}({names}){charset}"
        case _:
            return kind.upper()


def _charset(dice: random.Random) -> str:
    roll = dice.random()
    if roll < 0.45:
        return ""
    if roll < 0.55:
        collation = dice.choice(_COLLATIONS)
        return f" CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}"
    if roll < 0.6:
        return dice.choice((" ASCII", " UNICODE", " BYTE"))
    return f" CHARACTER SET {dice.choice(_CHARSETS)}"


def kind_of(column_type: str) -> str:
    """The kind of a type as a server shows it."""
    name = re.split(r"[ (]", column_type.lower(), maxsplit=1)[0]
    if name in _INTEGERS:
        return "integer"
    if name.endswith("text"):
        return "text"
    return "blob" if name.endswith("blob") else name


def quoted(text: str) -> str:
    """As a literal that means the same with and without backslash escapes."""
    return "'" + text.replace("'", "''") + "'"


_WORDS = (
    *("", " ", "a", "b", "x  ", " lead", "it's", "Zoë é", "ÿ€", "NULL", "naïve 😀", "Ã©", "привет"),
    *("true", "abc", "-", ".", "1a", "{}", '{"k": 1}', "[]", "a,b", "é", "A", "中文", "x\ty"),
)
_NUMBERS = (
    *("0", "1", "-1", "7", "12", "1.5", "-1.5", "2.5", "0.5", "-0.5", " 42", "42 ", "+3", "1e2"),
    *(
        "99",
        "100",
        "127",
        "128",
        "255",
        "256",
        "-128",
        "32767",
        "65536",
        "1999",
        "2155",
        "70",
        "69",
    ),
    *("0.05", "1.005", "2.675", "-2.345", "123.456", "1e-7", "00012", ".5", "5.", "-0", "-0.0"),
)
_WIDE_NUMBERS = (
    *("2147483647", "-2147483648", "4294967295", "9223372036854775807", "-9223372036854775808"),
    *("18446744073709551615", "1e15", "1e20", "123456789012345678", "1e-20", "3.4e38", "1.7e308"),
    *("99999.995", "9999999999.9999", "16777217", "0.1", "1e5", "12345678.9", "1234567890123.5"),
)
_DATES = (
    *("2020-01-02", "2000-02-29", "1000-01-01", "9999-12-31", "1970-01-01", "2037-06-30"),
    *("2026-07-01", "1999-12-31", "2155-01-01"),
)
_TIMES = (
    *("12:30:00", "00:00:00", "23:59:59.999999", "10:00:00.5", "10:00:00.6", "01:02:03.125"),
    *("10:00:00.123456", "10:00:00.4999", "23:59:59.5", "00:00:00.000001", "05:06:07.05"),
)
_LONG_TIMES = (
    *("-00:00:01.5", "-838:59:59", "838:59:59", "-12:30:00.25", "100:00:00.6", "-00:00:00.5"),
    *("24:00:00", "-01:02:03.456789", "838:59:58.999999"),
)
_NO_DATES = ("0000-00-00", "2020-00-10", "2020-02-00", "2021-02-31", "0001-01-01", "0000-01-01")


def random_literal(dice: random.Random, column_type: str, flavour: str) -> str:
    """In SQL. ``column_type``: as a server shows it. ``flavour``: what texts mean."""
    if dice.random() < 0.08:
        return "NULL"
    return _LITERALS.get(kind_of(column_type), _text)(dice, column_type.lower(), flavour)


def _number_text(dice: random.Random, flavour: str) -> str:
    return dice.choice(_WIDE_NUMBERS if flavour == "extremes" and dice.random() < 0.5 else _NUMBERS)


def _moment_text(dice: random.Random, flavour: str) -> str:
    if flavour == "extremes" and dice.random() < 0.3:
        return dice.choice(_NO_DATES)
    date = dice.choice(_DATES)
    return date if dice.random() < 0.3 else f"{date} {dice.choice(_TIMES)}"


def _integer(dice: random.Random, column_type: str, flavour: str) -> str:
    bits = _INTEGERS[re.split(r"[ (]", column_type, maxsplit=1)[0]]
    is_unsigned = "unsigned" in column_type
    low, high = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if flavour == "extremes":
        return str(dice.choice((low, high, 0, 1, high - 1, dice.randint(low, high))))
    if flavour == "moments":
        return dice.choice(("20200102", "123000", "2020", "99", "101", "20200102123000", "0", "70"))
    return str(dice.choice((0, 1, 2, 3, 7, 12, 69, 70, 99, 100, 127, -1, -7, -128, 1999)))


def _bit(dice: random.Random, column_type: str, _flavour: str) -> str:
    bits = int(column_type[4:-1])
    return str(dice.choice((0, 1, 2**bits - 1, dice.randrange(2**bits), 65, 48)))


def _year(dice: random.Random, _column_type: str, _flavour: str) -> str:
    return dice.choice(("1901", "2155", "2020", "1999", "1970", "'0'", "0", "69", "70", "'5'"))


def _float(dice: random.Random, column_type: str, flavour: str) -> str:
    if flavour == "extremes" and "(" not in column_type:
        return dice.choice(("1e30", "-1e-30", "3.4e38", "1e15", "1e14", "123456.789", "16777217"))
    found = dice.choice((*_NUMBERS, "0.1", "3.14159", "1234.5678", "1e10", "0.0001", "33.335"))
    return f"-{found}" if found[0] in "0123456789." and dice.random() < 0.2 else found


def _decimal(dice: random.Random, column_type: str, flavour: str) -> str:
    digits = re.search(r"\((\d+),(\d+)\)", column_type)
    length, scale = (int(digits[1]), int(digits[2])) if digits else (10, 0)
    if flavour == "extremes" and dice.random() < 0.5:
        nines = "9" * (length - scale) or "0"
        return dice.choice(("", "-")) + nines + ("." + "9" * scale if scale else "")
    return _number_text(dice, "numbers")


def _text(dice: random.Random, column_type: str, flavour: str) -> str:
    match flavour:
        case "numbers":
            text = _number_text(dice, dice.choice(("numbers", "extremes")))
        case "moments" if column_type != "date" and dice.random() < 0.4:
            text = dice.choice((*_TIMES, *_LONG_TIMES))
        case "moments":
            text = _moment_text(dice, "extremes" if dice.random() < 0.1 else "moments")
        case _:
            text = dice.choice(_WORDS)
    return quoted(text)


def _date(dice: random.Random, _column_type: str, flavour: str) -> str:
    return quoted(dice.choice(_NO_DATES if flavour == "extremes" else _DATES))


def _moment(dice: random.Random, column_type: str, flavour: str) -> str:
    text = _moment_text(dice, flavour)
    if column_type.startswith("timestamp") and text[:4] not in ("2020", "2000", "2026", "2037"):
        text = "2026-03-04 05:06:07.654321" if flavour != "extremes" else text
    return quoted(text)


def _time(dice: random.Random, _column_type: str, flavour: str) -> str:
    return quoted(dice.choice(_TIMES if flavour == "moments" else (*_LONG_TIMES, *_TIMES)))


def names_of(column_type: str) -> Sequence[str]:
    """The names of an ENUM or SET, as literals' insides."""
    return re.findall(r"'((?:[^']|'')*)'", column_type)


def _enum(dice: random.Random, column_type: str, flavour: str) -> str:
    names = names_of(column_type)
    if flavour == "extremes" and dice.random() < 0.3:
        return "'no such name'"
    return dice.choice([f"'{each}'" for each in names] + ["1"])


def _set(dice: random.Random, column_type: str, _flavour: str) -> str:
    names = names_of(column_type)
    chosen = [each for each in names if dice.random() < 0.5]
    return f"'{','.join(chosen)}'"


def _bytes(dice: random.Random, column_type: str, flavour: str) -> str:
    if flavour == "extremes":
        return dice.choice(("x''", "x'00'", "x'ff00'", "x'c3a9'", "x'e9'", "x'20'", "x'f09f9880'"))
    return _text(dice, column_type, flavour)


def _json(dice: random.Random, _column_type: str, flavour: str) -> str:
    of_numbers = ("1", "-1", "1.5", "12", "1e2", "0")
    others = ('"abc"', "{}", '{"k": [1, "é", null]}', "null", "true", "[]", '"12"', '"2020-01-02"')
    return quoted(dice.choice(of_numbers if flavour == "numbers" else others))


def _uuid(dice: random.Random, _column_type: str, _flavour: str) -> str:
    return quoted(dice.choice(("8b0fff12-e99e-11f1-b2c5-02fc00000000", "0" * 32)))


def _inet6(dice: random.Random, _column_type: str, _flavour: str) -> str:
    return quoted(dice.choice(("::", "1::2:0:3:0:4:0", "::ffff:10.0.0.1", "fe80::1")))


def _inet4(dice: random.Random, _column_type: str, _flavour: str) -> str:
    return quoted(dice.choice(("0.0.0.0", "10.0.0.1", "255.255.255.255", "1.2.3.4")))


def _geometry(dice: random.Random, column_type: str, _flavour: str) -> str:
    texts = ["POINT(1 2)", "POINT(0 0)", "POINT(-1.5 1e300)"]
    if column_type != "point":
        texts += ["LINESTRING(0 0,1 1)", "POLYGON((0 0,0 1,1 1,0 0))", "GEOMETRYCOLLECTION EMPTY"]
    srid = dice.choice(("", "", ", 4326"))
    return f"ST_GeomFromText('{dice.choice(texts)}'{srid})"


def _vector(dice: random.Random, column_type: str, _flavour: str) -> str:
    floats = ("0000803f", "00000000", "000020c1", "cdcccc3d")
    return f"x'{''.join(dice.choice(floats) for _ in range(int(column_type[7:-1])))}'"


_LITERALS: dict[str, Callable[[random.Random, str, str], str]] = {
    "integer": _integer,
    "bit": _bit,
    "year": _year,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "date": _date,
    "datetime": _moment,
    "timestamp": _moment,
    "time": _time,
    "enum": _enum,
    "set": _set,
    "binary": _bytes,
    "varbinary": _bytes,
    "blob": _bytes,
    "json": _json,
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
    "geometry": _geometry,
    "point": _geometry,
    "vector": _vector,
}
