"""Texts: the bytes of one in its column's character set, and what another set or length leaves."""

from __future__ import annotations

from typing import Final

from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.session import ServerSession

# By the server's name; of others only ASCII is known here. None has another character than Python.
_CODECS: Final = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "latin1": "cp1252",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf32": "utf-32-be",
    "cp1251": "cp1251",
    "latin2": "iso8859-2",
    "gbk": "gbk",
}
WIDE: Final = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
_TEXT_BYTES: Final = {"tinytext": 255, "tinyblob": 255, "text": 65535, "blob": 65535}
_BMP: Final = ("utf8mb3", "utf8", "ucs2")  # four bytes are no character of these
_SURE: Final = frozenset(range(0xA0, 0x100))  # of latin1, the same in every reading of it


def encoded(text: str, charset: str) -> bytes:
    """Raises ValueError where the bytes are not known."""
    if charset in WIDE and charset not in _CODECS:
        raise ValueError(f"its bytes in {charset} are not known here")
    if text.isascii() and charset not in WIDE:
        if not charset:
            raise_unknown_wide()
        return text.encode()
    codec = _CODECS.get(charset)
    if codec is None:
        raise ValueError(
            "its bytes depend on the character set, which is not known"
            if not charset
            else f"its bytes in {charset} are not known here"
        )
    return text.encode(codec)


def raise_unknown_wide() -> None:
    raise ValueError("its bytes depend on the character set, which is not known")


def decoded(raw: bytes, charset: str) -> str:
    """Raises ValueError (as UnicodeDecodeError) where they are no text."""
    if charset in WIDE or not charset:
        raise ValueError("what text its bytes are is not clear")
    if raw.isascii():
        return raw.decode()
    if charset in ("utf8mb4", "utf8mb3", "utf8"):
        text = raw.decode()
        return as_charset(text, charset, None)
    if charset != "latin1" or not all(each in _SURE or each < 0x80 for each in raw):
        raise ValueError(f"what text its bytes are in {charset} is not known here")
    return raw.decode("latin-1")


def as_charset(text: str, charset: str, session: ServerSession | None) -> str:
    """With ``?`` for each character that the set lacks, where the session lets them go."""
    if text.isascii():
        return text
    if not charset:
        raise ValueError("whether its character set has all characters is not known")
    codec = _CODECS.get(charset)
    if codec is None:
        raise ValueError(f"whether {charset} has all characters is not known here")
    kept = []
    for each in text:
        is_there = not (charset in _BMP and ord(each) > 0xFFFF) and _has(codec, each)
        if not is_there and (session is None or session.is_strict):
            raise ValueError(f"{charset} lacks {each!r}")
        kept.append(each if is_there else "?")
    return "".join(kept)


def _has(codec: str, character: str) -> bool:
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def fitted(text: str, new: MySQLType, charset: str, session: ServerSession) -> str:
    """Cut to the new type's length, as a session that is not strict has it; blanks at the end go in
    any."""
    if new.name == "char":
        return _cut(text, new.length or 1, session).rstrip(" ")
    if new.name == "varchar":
        return text if new.length is None else _cut(text, new.length, session)
    most = _TEXT_BYTES.get(new.name)
    width = 4 if not text.isascii() or charset in WIDE or not charset else 1
    if most is not None and len(text) * width > most:
        raise ValueError("whether it is too long is not clear")
    return text


def _cut(text: str, length: int, session: ServerSession) -> str:
    if len(text) > length and text[length:].strip(" ") and session.is_strict:
        raise ValueError("it is too long")
    return text[:length]


def fitted_bytes(raw: bytes, new: MySQLType, session: ServerSession) -> bytes:
    most = _TEXT_BYTES.get(new.name, new.length)
    if most is not None and len(raw) > most:
        if session.is_strict:
            raise ValueError("it is too long")
        raw = raw[:most]
    return raw.ljust(new.length or 1, b"\0") if new.name == "binary" else raw
