"""Types of columns: values of each, defaults, and what becomes of a value in another type."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

ENUM, LONGER_ENUM = "enum('new','it''s')", "enum('new','it''s','last')"
_TEXTS = ("", "plain", "it's", "naïve 😀", "a\tb\\n", "NULL", " blank ", "2020-01-02")
_FIRST_MOMENT = datetime(1995, 1, 1)  # noqa: DTZ001

VALUES: dict[str, Callable[[random.Random], Any]] = {
    "smallint": lambda dice: dice.randrange(-(2**15), 2**15),
    "int": lambda dice: dice.randrange(-(2**31), 2**31),
    "bigint": lambda dice: dice.choice((1, dice.randrange(-(2**39), 2**39))),
    "int unsigned": lambda dice: dice.randrange(2**32),
    "decimal(12,2)": lambda dice: Decimal(dice.randrange(-(10**6), 10**6)).scaleb(-2),
    "decimal(16,4)": lambda dice: Decimal(dice.randrange(-(10**6), 10**6)).scaleb(-4),
    "double": lambda dice: dice.choice((0.5, -1e-7, 1e300, dice.random())),
    "varchar(40)": lambda dice: dice.choice(_TEXTS),
    "varchar(200)": lambda dice: dice.choice(_TEXTS) * 5,
    "text": lambda dice: dice.choice(_TEXTS) * 9,
    "varbinary(32)": lambda dice: dice.randbytes(dice.randrange(9)),
    "date": lambda dice: date(1900, 1, 1) + timedelta(days=dice.randrange(40_000)),
    "datetime": lambda dice: _FIRST_MOMENT + timedelta(seconds=dice.randrange(10**9)),
    "datetime(6)": lambda dice: _FIRST_MOMENT + timedelta(microseconds=dice.randrange(10**15)),
    ENUM: lambda dice: dice.choice(("new", "it's")),
    LONGER_ENUM: lambda dice: dice.choice(("new", "it's", "last")),
}
DEFAULTS: dict[str, tuple[str, Any]] = {  # in SQL, and what old rows then show
    "smallint": ("7", 7),
    "int": ("-8", -8),
    "bigint": ("9", 9),
    "decimal(12,2)": ("1.5", Decimal("1.50")),
    "double": ("0.25", 0.25),
    "varchar(40)": ("_UTF8MB4'it''s'", "it's"),
    "varbinary(32)": ("_UTF8MB4'abc'", b"abc"),
    "date": ("_UTF8MB4'2020-02-29'", date(2020, 2, 29)),
    "datetime": ("_UTF8MB4'2020-02-29 01:02:03'", datetime(2020, 2, 29, 1, 2, 3)),  # noqa: DTZ001
    ENUM: ("_UTF8MB4'it''s'", "it's"),
}
ZEROS: dict[str, Any] = {  # what old rows show in a NOT NULL column without a default
    "smallint": 0,
    "int": 0,
    "bigint": 0,
    "int unsigned": 0,
    "double": 0.0,
    "text": "",
    "decimal(12,2)": Decimal("0.00"),
    "varchar(40)": "",
    "varbinary(32)": b"",
    ENUM: "new",
}


def with_four_digits(value: int | Decimal) -> Decimal:
    """As a ``decimal(16,4)``."""
    return Decimal(value).quantize(Decimal("0.0001"))


CONVERSIONS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "smallint": {"int": int, "bigint": int, "varchar(40)": str},
    "int": {"bigint": int, "decimal(16,4)": with_four_digits, "varchar(40)": str},
    "bigint": {"int": int, "decimal(16,4)": with_four_digits, "varchar(40)": str},
    "int unsigned": {"bigint": int},
    "decimal(12,2)": {"decimal(16,4)": with_four_digits, "varchar(40)": lambda v: f"{v:f}"},
    "varchar(40)": {"varchar(200)": str, "text": str},
    "varchar(200)": {"text": str},
    "date": {
        "datetime": lambda v: datetime.combine(v, time()),
        "varchar(40)": lambda v: v.isoformat(),
    },
    "datetime": {
        "datetime(6)": lambda v: v,
        "varchar(40)": lambda v: v.isoformat(" ", "seconds"),
    },
    "datetime(6)": {"varchar(40)": lambda v: v.isoformat(" ", "microseconds")},
    ENUM: {LONGER_ENUM: str, "varchar(40)": str},
}
KEY_TYPES = frozenset(VALUES) - {"double", "text", "varchar(200)"}  # can be a part of a key
# Of a column of a key TiDB takes no type for which its rows would have to be written anew.
KEY_CONVERSIONS = {("smallint", "int"), ("smallint", "bigint"), ("int", "bigint")}
