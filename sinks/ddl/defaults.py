"""Reads the DEFAULT of a column from its definition, and tells the value that present rows show in
a column that is added with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from sinks.ddl.text.tokens import Word, Words
from sinks.types.delta_types import INTEGER_BITS, whole_range
from sinks.types.mysql_type import (
    BINARY_TYPES,
    INTEGER_TYPES,
    SPATIAL_TYPES,
    TEXT_TYPES,
    MySQLType,
)
from sinks.types.server_rules.numbers import as_float
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import CURRENT_TIMESTAMP, Column

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_TODAY = ("CURRENT_DATE", "CURDATE")  # without a time of the day
_FLOATS = ("float", "double")
_LONG_TYPES = (
    *("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"),
    *("json", "vector", *SPATIAL_TYPES),
)
_NUMBERS = (*INTEGER_TYPES, "decimal", "float", "double", "bit", "year")
_LITERALS = ("text", "hex", "bits")
_MOMENTS = ("date", "datetime", "timestamp", "time")
_MOMENT_LITERALS = ("DATE", "TIME", "TIMESTAMP")
_CODECS = {"latin1": "cp1252", "gbk": "gbk", "gb18030": "gb18030", "ascii": "ascii"}  # else UTF-8
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_LOST = "\ufffd"  # for each byte that is no UTF-8, which JSON cannot hold
_NO_DEFAULT = ("COLUMN_FORMAT", "STORAGE", "SET")  # a DEFAULT behind these is not the column's

Default = tuple[str | None, bool]
"""``Column.default`` and ``Column.default_is_expression``."""


def read_default(attributes: Sequence[Word], mysql_type: MySQLType) -> Default:
    """The default in the words behind a column's type; (None, False) if there is none."""
    words = Words(attributes)
    before = ""
    while words.peek().kind != "end":
        word = words.take().upper
        if word == "DEFAULT" and before not in _NO_DEFAULT and words.peek().upper != "VALUE":
            return default_value(words.rest(), mysql_type)
        before = word
    return None, False


def default_value(following: Sequence[Word], mysql_type: MySQLType | None) -> Default:
    """The default in the words behind DEFAULT. Without a type (SET DEFAULT) bytes are read as
    UTF-8. Raises ValueError where no value follows."""
    return _value(Words(following), mysql_type)


def _value(words: Words, mysql_type: MySQLType | None) -> Default:
    sign = words.accept_any("-", "+").strip("+")
    point = "0." if words.accept(".") else ""
    first = words.take()
    if first.kind == "number":
        number = sign + point + first.text
        is_text = mysql_type is not None and mysql_type.name in TEXT_TYPES
        return number, is_text and _PLAIN.fullmatch(number) is None  # 1e3 is 1000 in a text
    if sign or first.kind == "group":
        inner = Words(first.inner)
        found = _value(inner, mysql_type)
        is_value = not sign and inner.peek().kind == "end"
        return found if is_value else (sign + shown_expression(first), True)
    of_literal = _literal(words, first, mysql_type)
    if of_literal is not None:
        return of_literal
    if first.upper in ("NULL", "TRUE", "FALSE"):
        return {"NULL": None, "TRUE": "1", "FALSE": "0"}[first.upper], False
    if first.kind == "end":
        raise ValueError("a DEFAULT has no value")
    arguments = words.take() if words.peek().kind == "group" else None
    is_today = first.upper in _TODAY and mysql_type is not None and mysql_type.name == "date"
    if (first.upper in _NOW and _has_digits_of(mysql_type, arguments)) or is_today:
        return CURRENT_TIMESTAMP, True
    return shown_expression(first) + (shown_expression(arguments) if arguments else ""), True


def _has_digits_of(mysql_type: MySQLType | None, arguments: Word | None) -> bool:
    """Whether NOW(6) has as many digits of a second as the column: others are cut or rounded."""
    if mysql_type is None or mysql_type.name not in _MOMENTS:
        return True
    given = arguments.inner[0].text if arguments is not None and arguments.inner else "0"
    return given == str(mysql_type.length or 0)


def _literal(words: Words, first: Word, mysql_type: MySQLType | None) -> Default | None:
    """The value of a literal, with the kind or the character set that may stand before it."""
    following = words.peek()
    if first.upper in _MOMENT_LITERALS and (
        following.kind == "text" or following.upper.startswith("_")
    ):
        first = words.take()
    charset = ""
    if first.upper.startswith("_") and words.peek().kind in _LITERALS:
        charset, first = first.text[1:].lower(), words.take()
    if first.kind not in _LITERALS:
        return None
    try:
        return literal(first, mysql_type, charset), False
    except ValueError:
        return shown_expression(first), True


def literal(word: Word, mysql_type: MySQLType | None, charset: str = "") -> str:
    """The value of an expression's literal, as text. Bytes are read in the character set that
    stands before them, else as UTF-8; for a column of bytes each byte is one character. Numbers are
    decimal. Bits without a type are a BIT's. Raises ValueError if bytes are no text, or if bytes
    that are written as text have been lost on the way."""
    name = mysql_type.name if mysql_type else ""
    if word.kind in ("hex", "bits"):
        digits, radix = (word.text, 16) if word.kind == "hex" else (word.text, 2)
        number = int(digits or "0", radix)
        if name in _NUMBERS or (radix == 2 and mysql_type is None):
            return str(number)
        raw = number.to_bytes((len(digits) * (4 if radix == 16 else 1) + 7) // 8, "big")
    elif word.kind == "text" and name in ("bit", *BINARY_TYPES):
        if _LOST in word.value:
            raise ValueError("its bytes are not known")
        raw = word.value.encode()
        if name == "bit":
            return str(int.from_bytes(raw, "big"))
    elif word.kind == "text" and name == "year":
        is_zero = word.value.strip("0") == "" and len(word.value) not in (0, len("0000"))
        return "2000" if is_zero else word.value  # without quotes 0 is the year 0
    else:
        return word.value
    return raw.decode("latin-1" if name in BINARY_TYPES else _CODECS.get(charset, "utf-8"))


def shown_expression(word: Word) -> str:
    """An expression as text for people; it is never computed."""
    if word.kind == "group":
        return "(" + " ".join(shown_expression(each) for each in word.inner) + ")"
    quote = {"text": "'", "hex": "x'", "bits": "b'"}.get(word.kind)
    return word.text if quote is None else f"{quote}{word.value or word.text}'"


def as_bytes(text: str) -> str:
    """A default that was read as text, for a column that turns out to hold bytes: each byte as one
    character."""
    return text.encode().decode("latin-1")


def fill(column: Column, session: ServerSession | None = None) -> str | None:
    """The value that present rows show in an added column, as text that canal-json would send.

    None is NULL; CURRENT_TIMESTAMP stands for the time of the DDL. ``session``: of a MySQL or
    MariaDB; None: TiDB's rules hold. Raises ValueError if the value cannot be known.
    """
    if session is not None:
        _refuse_unclear(column, session)
    if column.default_is_expression:
        if column.default == CURRENT_TIMESTAMP:
            return CURRENT_TIMESTAMP
        raise ValueError(
            f"the default of column {column.name} is the expression {column.default}: the "
            "values that it gave to old rows are not known"
        )
    if column.default is None:
        return None if column.nullable else _zero(column.type)
    try:
        sent = _as_sent(column.default, column.type, session is None or session.rounds)
    except (ValueError, InvalidOperation):
        raise ValueError(
            f"the default {column.default!r} of column {column.name} is no {column.type}"
        ) from None
    if session is not None and column.type.name in _FLOATS and column.type.scale is not None:
        return repr(as_float(float(sent), column.type, session))
    return sent


def _refuse_unclear(column: Column, session: ServerSession) -> None:
    """Raises ValueError for a default whose value on this server is not known."""
    of, default, digits = column.type, column.default, column.type.digits
    is_now = column.default_is_expression and default == CURRENT_TIMESTAMP
    why = ""
    if of.name == "timestamp" and default is None and session.implicit_timestamps:
        why = "what explicit_defaults_for_timestamp = OFF gives old rows"
    elif is_now and of.name not in _MOMENTS:
        why = f"the text of its default in a {of}"
    elif is_now and of.name == "time" and digits:
        why = "the fraction of a second of its default"
    elif default and not default.isascii() and of.name in TEXT_TYPES and not column.charset:
        why = "whether its character set has its default"
    elif default and of.name in ("enum", "set") and _is_unclear_name(default, of):
        why = "which of its names its default is"
    elif default == "" and of.name in _LONG_TYPES and column.nullable and session.drops_empty:
        why = "whether its empty default stands in parentheses (without, MySQL drops it)"
    elif default and not column.default_is_expression and _is_out_of_range(default, of):
        why = "what the server makes of a default that does not fit"
    if why:
        raise ValueError(f"{why} is not known: column {column.name}")


def _is_unclear_name(default: str, of: MySQLType) -> bool:
    """A number is a place among the names, unless it stands in quotes, which nothing tells here."""
    return "" in of.elements or (default.isdecimal() and default in of.elements)


def _is_out_of_range(default: str, of: MySQLType) -> bool:
    """A session that is not strict has it cut, each type in its way."""
    if of.name in ("char", "varchar", "binary", "varbinary"):
        return of.length is not None and len(default) > of.length
    try:
        number = Decimal(default.strip())
    except InvalidOperation:
        return False  # it is refused elsewhere
    if of.name in INTEGER_BITS:
        low, high = whole_range(of)
        return not low <= number.quantize(Decimal(1), ROUND_HALF_UP) <= high
    if of.name not in ("decimal", "float", "double"):
        return False
    scale, whole = of.scale or 0, (of.length or 10) - (of.scale or 0)
    is_bound = of.name == "decimal" or of.scale is not None
    with localcontext(prec=400):
        is_cut = of.name != "decimal" and is_bound and number != round(number, scale)
        is_large = is_bound and abs(round(number, scale)) >= Decimal(10) ** whole
    return is_cut or is_large or (of.unsigned and number < 0)


def _zero(mysql_type: MySQLType) -> str:
    """The implicit default of MySQL for a NOT NULL column of this type."""
    name, length = mysql_type.name, mysql_type.length or 0
    if name in _NUMBERS:
        return _number("0", mysql_type)
    if name == "binary":
        return "\0" * length
    zeros = {
        "date": "0000-00-00",
        "datetime": "0000-00-00 00:00:00",
        "timestamp": "0000-00-00 00:00:00",
        "time": "00:00:00" + _fraction(0, length),
        "enum": "1",
        "set": "0",
        "json": "null",
        "vector": "[]",
        "uuid": "00000000-0000-0000-0000-000000000000",
        "inet4": "0.0.0.0",
        "inet6": "::",
    }
    return zeros.get(name, "")


def _as_sent(text: str, mysql_type: MySQLType, rounds: bool) -> str:
    match name := mysql_type.name:
        case "date" | "datetime" | "timestamp":
            text = _moment(text, mysql_type, rounds)
        case "time":
            text = _time(text, mysql_type.length or 0, rounds)
        case "enum":
            text = str(_position(text, mysql_type.elements) + 1)
        case "set" if text in mysql_type.elements or not text.isdecimal():
            chosen = {_position(each, mysql_type.elements) for each in text.split(",") if each}
            text = str(sum(1 << position for position in chosen))
        case "json":
            text = text or "null"
        case "char":
            text = text.rstrip(" ")
        case "binary":
            text = text.ljust(mysql_type.length or 0, "\0")
        case _ if name in _NUMBERS:
            text = _number(text, mysql_type)
    return text


def _position(text: str, elements: Sequence[str]) -> int:
    """The position (from 0) of an element, given by its name, in any case, or by its number. Raises
    ValueError."""
    known = [element.lower() for element in elements]
    if text.rstrip(" ").lower() in known:
        return known.index(text.rstrip(" ").lower())
    if 0 < int(text) <= len(elements):
        return int(text) - 1
    raise ValueError(text)


def _number(text: str, mysql_type: MySQLType) -> str:
    number = Decimal(text.strip())
    if mysql_type.name in ("float", "double") and mysql_type.scale is None:
        return text.strip()
    scale = 0 if mysql_type.name not in ("decimal", "float", "double") else mysql_type.scale or 0
    with localcontext(prec=100):  # a DECIMAL has up to 65 digits
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if mysql_type.name == "year" and 0 < rounded < 100:
        rounded += 2000 if rounded < 70 else 1900
    return f"{rounded:f}"


_DATE = r"(\d{4}|\d{2})[^\d\s](\d{1,2})[^\d\s](\d{1,2})"
_CLOCK = r"(?:[\sT]+(\d{1,2})\D(\d{1,2})(?:\D(\d{1,2})(?:\.(\d*))?)?)?"
_WRITTEN = re.compile(_DATE + _CLOCK)
_IN_DIGITS = re.compile(r"(\d{4}|\d{2})(\d{2})(\d{2})(?:(\d{2})(\d{2})(\d{2})(?:\.(\d*))?)?")
_OF_DAY = re.compile(r"(-?)(?:(\d+)\s+)?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?")
_OF_DAY_IN_DIGITS = re.compile(r"(-?)()(\d{0,3}?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?")


def _moment(text: str, mysql_type: MySQLType, rounds: bool) -> str:
    found = _WRITTEN.fullmatch(text.strip()) or _IN_DIGITS.fullmatch(text.strip())
    if found is None:
        if text.strip() == "0":
            return _zero(mysql_type)
        raise ValueError(text)
    year, month, day, *clock = (int(part or 0) for part in found.groups()[:6])
    if len(found[1]) == 2:
        year += 2000 if year < 70 else 1900
    if mysql_type.name == "date":
        if rounds and found[7]:
            raise ValueError(text)  # TiDB cuts it, MySQL rounds it to a day
        return f"{year:04}-{month:02}-{day:02}"
    hour, minute, second = clock
    digits = mysql_type.length or 0
    micros = _rounded(found[7], digits, rounds)
    if micros == 10**6:
        moment = datetime(year, month, day, hour, minute, second) + timedelta(seconds=1)  # noqa: DTZ001
        return f"{moment:%Y-%m-%d %H:%M:%S}" + _fraction(0, digits)
    text = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
    return text + _fraction(micros, digits)


def _time(text: str, digits: int, rounds: bool) -> str:
    found = _OF_DAY.fullmatch(text.strip()) or _OF_DAY_IN_DIGITS.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:5])
    micros = _rounded(found[6], digits, rounds)
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + micros // 10**6
    clock = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    sign = found[1] if whole or micros % 10**6 else ""  # TiDB has no -00:00:00
    return sign + clock + _fraction(micros % 10**6, digits)


def _rounded(fraction: str | None, digits: int, rounds: bool) -> int:
    """A fraction of a second, rounded or cut to so many digits, in microseconds; 10**6 where it
    rounds up to a whole second."""
    step, how = Decimal(1).scaleb(-digits), ROUND_HALF_UP if rounds else ROUND_DOWN
    return int(Decimal(f"0.{fraction or 0}").quantize(step, how) * 10**6)


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""
