"""The character sets of MySQL and MariaDB, as Python decodes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from streaming.source.binlog.format.charset_tables import NEAREST, SINGLE_BYTES, decoded

UTF_8: Final = "utf-8"
BINARY: Final = "binary"


@dataclass(frozen=True, slots=True)
class Charset:
    """``codec``: the name of Python's codec, or of a character set of `charset_tables`, or
    ``binary``: then a text is bytes. ``width``: the
    most bytes that a character takes (``MAXLEN`` of information_schema.CHARACTER_SETS); it tells
    the length of ``varchar(30)``, which an event has in bytes."""

    codec: str
    width: int = 1


Charsets = Mapping[int, Charset]  # by the ID of a collation, as the server lists them

# By the name of the character set.
CODECS: Final[Mapping[str, str]] = {
    **{name: name for name in (*SINGLE_BYTES, *NEAREST)},
    "ascii": "ascii",
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

# By codec: where Python has another character than the servers have for the same bytes.
_OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "cp1256": dict.fromkeys("\u0679\u0688\u06a9\u0691\u06ba\u06be\u06c1\u06d2", "?"),
    "cp866": {"\u2116": "\u207f", "\u00a4": "\u00b2"},
    "gb18030": {"\ue7c7": "\u1e3f"},
    "iso8859-7": {
        "\u2018": "\u02bd",
        "\u2019": "\u02bc",
        "\u20ac": "?",
        "\u20af": "?",
        "\u037a": "?",
    },
    "iso8859-8": {"\u00af": "\u203e"},
    "koi8-u": {"\u2219": "\u2022"},
    "shift_jis": {"\uff3c": "\\"},
}
_NONE: Final[Mapping[str, str]] = {"tis-620": "\ufffd"}  # of a byte without a character; else ?


def text_of(value: bytes, codec: str) -> str:
    """The text as the servers take it. Raises UnicodeDecodeError."""
    single = characters(codec)
    if single is not None:
        return "".join([single[byte] for byte in value])
    return _replaced(decoded(value, codec), codec)


def text_replaced(value: bytes, codec: str) -> str:
    """The same, with a sign for what cannot be decoded."""
    try:
        return text_of(value, codec)
    except UnicodeDecodeError:
        return value.decode(NEAREST.get(codec, codec), "replace")


def _replaced(text: str, codec: str) -> str:
    others = _OTHERS.get(codec)
    return text.translate({ord(one): other for one, other in others.items()}) if others else text


@lru_cache(maxsize=64)
def characters(codec: str) -> tuple[str, ...] | None:
    """The character of each byte in a character set of single bytes; None for another one. In
    latin1 the bytes that cp1252 leaves out are control characters."""
    if codec in SINGLE_BYTES or codec in NEAREST:
        return SINGLE_BYTES.get(codec)
    every = bytes(range(256))
    if codec.startswith("utf") or len(every.decode(codec, "replace")) != len(every):
        return None
    found = []
    for byte in every:
        try:
            found.append(_replaced(bytes([byte]).decode(codec), codec))
        except UnicodeDecodeError:
            found.append(chr(byte) if codec == "cp1252" else _NONE.get(codec, "?"))
    return tuple(found)


def charsets_of(listed: Iterable[tuple[int, str, int]]) -> dict[int, Charset]:
    """From what the server lists: the ID of a collation, the name of its character set, and that
    set's MAXLEN. A character set that Python cannot decode is left out."""
    return {
        number: Charset(CODECS[name], width) for number, name, width in listed if name in CODECS
    }
