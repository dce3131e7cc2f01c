"""What a column's ``t`` (MySQL's number of a type) and ``f`` (flags) tell, and the form of its
values."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

BINARY: Final = 1
HANDLE_KEY: Final = 2
PRIMARY_KEY: Final = 8
UNSIGNED: Final = 128


class Form(Enum):
    """How a value is written, where it is not NULL."""

    NUMBER = "number"  # a JSON number, of any size
    TEXT = "text"
    QUOTED = "quoted"  # bytes, as Go's strconv.Quote writes them, without the outer quotes
    BASE64 = "base64"  # bytes
    BASE64_TEXT = "base64-text"  # a text's UTF-8


class Told(NamedTuple):
    """``mysql_type``: as canal-json names it, without lengths; None: not known."""

    mysql_type: str | None
    form: Form

    @property
    def has_bytes(self) -> bool:
        return self.form in (Form.QUOTED, Form.BASE64)


_NUMBERS: Final = {
    1: "tinyint",
    2: "smallint",
    3: "int",
    4: "float",
    5: "double",
    8: "bigint",
    9: "mediumint",
    13: "year",
    16: "bit",
    247: "enum",
    248: "set",
}
_TEXTS: Final = {
    7: "timestamp",
    10: "date",
    11: "time",
    12: "datetime",
    14: "date",
    225: "vector",
    245: "json",
    246: "decimal",
}
# With a character set, and without one
_SHORT: Final = {
    15: ("varchar", "varbinary"),
    253: ("varchar", "varbinary"),
    254: ("char", "binary"),
}
_LONG: Final = {
    249: ("tinytext", "tinyblob"),
    250: ("mediumtext", "mediumblob"),
    251: ("longtext", "longblob"),
    252: ("text", "blob"),
}
_SIGNED: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_MAY_BE_UNSIGNED: Final = _SIGNED | {"float", "double", "decimal"}


@lru_cache(maxsize=1024)
def told(number: int, flags: int) -> Told:
    """Only types of texts and bytes have a binary flag with a meaning: numbers and dates have it
    always."""
    if number in _SHORT:
        is_binary = bool(flags & BINARY)
        return Told(_SHORT[number][is_binary], Form.QUOTED if is_binary else Form.TEXT)
    if number in _LONG:
        is_binary = bool(flags & BINARY)
        return Told(_LONG[number][is_binary], Form.BASE64 if is_binary else Form.BASE64_TEXT)
    name = _NUMBERS.get(number) or _TEXTS.get(number)
    form = Form.NUMBER if number in _NUMBERS else Form.TEXT
    if name in _MAY_BE_UNSIGNED and flags & UNSIGNED:
        name = f"{name} unsigned"
    return Told(name, form)
