"""The character sets of MySQL and MariaDB, as Python decodes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

UTF_8: Final = "utf-8"
BINARY: Final = "binary"


@dataclass(frozen=True, slots=True)
class Charset:
    """``codec``: the name of Python's codec, or ``binary``: then a text is bytes. ``width``: the
    most bytes that a character takes (``MAXLEN`` of information_schema.CHARACTER_SETS); it tells
    the length of ``varchar(30)``, which an event has in bytes."""

    codec: str
    width: int = 1


Charsets = Mapping[int, Charset]  # by the ID of a collation, as the server lists them

# By the name of the character set. Python has no codec for armscii8, dec8, geostd8, keybcs2, swe7
# and eucjpms: a text in one of these is an error of its row.
CODECS: Final[Mapping[str, str]] = {
    "ascii": UTF_8,
    "big5": "big5",
    "binary": BINARY,
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "hp8": "hp-roman8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "sjis": "shift_jis",
    "tis620": "tis-620",
    "ucs2": "utf-16-be",
    "ujis": "euc_jp",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8": UTF_8,
    "utf8mb3": UTF_8,
    "utf8mb4": UTF_8,
}


def charsets_of(listed: Iterable[tuple[int, str, int]]) -> dict[int, Charset]:
    """From what the server lists: the ID of a collation, the name of its character set, and that
    set's MAXLEN. A character set that Python cannot decode is left out."""
    return {
        number: Charset(CODECS[name], width) for number, name, width in listed if name in CODECS
    }
