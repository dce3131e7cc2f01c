"""A column's values in its new definition, by the rules of the server that altered it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.delta_types import INTEGER_BITS, arrow_type, whole_range
from sinks.types.mysql_type import MARIADB_VECTOR, TEXT_TYPES, MySQLType
from sinks.types.server_rules import moments, numbers, texts
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import Column
from sinks.types.time_zones import zone_of
from sinks.types.type_changes import CannotConvert, each_converted, text_of

_FLOATS: Final = ("float", "double")
_NAMES: Final = ("enum", "set")
_MOMENTS: Final = ("date", "datetime", "timestamp")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_UNICODE: Final = ("utf8mb4", "utf16", "utf32")
_SAME_BYTES: Final = {"utf8mb4", "utf8mb3", "utf8"}  # of what both have
_BYTES_OF_CHARACTER: Final = 4
_LENGTHS: Final = {"tinytext": 255, "text": 65535, "mediumtext": 1 << 24, "longtext": 1 << 32}
_SIGNED: Final = 1 << 63
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChange:
    """One column that a DDL changes: its definitions before and after, and the session."""

    old: Column
    new: Column
    session: ServerSession

    @property
    def is_other(self) -> bool:
        """Whether a value may look different."""
        return self._may_fill or not self._keeps()

    @property
    def needs_zone(self) -> bool:
        types = self.old.type.name, self.new.type.name
        return types.count("timestamp") == 1

    @property
    def _may_fill(self) -> bool:
        """Whether a NULL becomes another value: a strict session refuses one."""
        is_lax = not self.session.is_strict or self.new.type.name == "timestamp"
        return self.old.nullable and not self.new.nullable and is_lax

    @property
    def makes_zero_dates(self) -> bool:
        """Whether its NULLs become dates of zeros, which are NULL in a target."""
        return self._may_fill and self.new.type.name in ("date", "datetime")

    def _keeps(self) -> bool:  # noqa: C901, PLR0911, PLR0912 - one per kind
        old, new = self.old.type, self.new.type
        was, now = kind_of(old), kind_of(new)
        if arrow_type(old) != arrow_type(new) or was != now or old.is_untold or new.is_untold:
            return False
        if MARIADB_VECTOR in (self.old.charset, self.new.charset):
            return self.old.charset == self.new.charset and old == new
        if (old.name == "year") != (new.name == "year") or (old.name == "bit") != (
            new.name == "bit"
        ):
            return False
        match now:
            case "integer":
                (low, high), (lowest, highest) = _range(old), _range(new)
                return lowest <= low and high <= highest
            case "float":
                return (old.name, old.unsigned, old.length, old.scale) == (
                    *(new.name, new.unsigned, new.length, new.scale),
                )
            case "decimal":
                return (old.unsigned, old.length, old.scale) == (
                    new.unsigned,
                    new.length,
                    new.scale,
                )
            case "text":
                return self._keeps_texts()
            case "bytes":
                return _most_bytes(old) <= _most_bytes(new) and (new.name != "binary" or old == new)
            case "enum" | "set":
                if not self._is_in_charset() and not "".join(old.elements).isascii():
                    return False
                if self._widens or self._loses_elements:
                    return False
                is_longer = new.elements[: len(old.elements)] == old.elements
                return bool(old.elements) and is_longer
            case "datetime" | "timestamp":
                return (old.digits or 0) <= (new.digits or 0)
            case "vector":
                return bool(old.length) and (old.length or 0) <= (new.length or 0)
            case _:
                return old == new

    def _keeps_texts(self) -> bool:
        old, new = self.old.type, self.new.type
        if not self._is_in_charset() or (new.name == "char" and old.name != "char"):
            return False
        if old.name == "char" and new.name != "char" and self.session.pads:
            return False
        if old.name in ("char", "varchar") and new.name not in ("char", "varchar"):
            return _BYTES_OF_CHARACTER * (old.length or 1) <= _most_bytes(new)
        is_same = self.old.charset == self.new.charset or new.name in ("varchar", "longtext")
        return is_same and _most_bytes(old) <= _most_bytes(new)

    def _is_in_charset(self) -> bool:
        """Whether the new set surely has each character."""
        was, now = self.old.charset, self.new.charset
        return bool(was) and (was == now or now in _UNICODE)

    @property
    def _widens(self) -> bool:
        """Whether one character set has wide characters alone, and the other has not: MySQL loses
        names of a SET there."""
        return (self.old.charset in texts.WIDE) != (self.new.charset in texts.WIDE)

    @property
    def _loses_elements(self) -> bool:
        """Whether CONVERT TO may lose an element whose bytes change: a MySQL one of a SET, a lax
        MariaDB one of an ENUM too."""
        old, new = self.old.charset, self.new.charset
        if old == new:
            return False
        is_ascii = "".join(self.old.type.elements).isascii()
        is_lax = self.session.is_mariadb and not self.session.is_strict
        has_other_bytes = not {old, new} <= _SAME_BYTES and (not is_ascii or new in texts.WIDE)
        return (is_lax and has_other_bytes) or (self.new.type.name == "set" and not is_ascii)

    @property
    def _is_wider(self) -> bool:
        """Whether Arrow's cast is exact and does what the servers do."""
        old, new = self.old.type, self.new.type
        if old.name in INTEGER_BITS and new.name in INTEGER_BITS:
            (low, high), (lowest, highest) = whole_range(old), whole_range(new)
            return lowest <= low and high <= highest
        is_double = (old.name, new.name) == ("float", "double") and new.scale is None
        return is_double and (old.unsigned or not new.unsigned)

    def values(self, values: pa.Array, time_zone: str, *, is_strict: bool = True) -> pa.Array:
        """In the new type. ``time_zone``: the session's, where TIMESTAMPs become others. Raises
        CannotConvert for the first value whose rule is not known; without ``is_strict`` it becomes
        null."""
        old, new = self.old.type, self.new.type
        kind = arrow_type(new)
        if self._is_wider and not self._may_fill:
            return values.cast(kind)
        zone = zone_of(time_zone)
        is_local = old.name == "timestamp" and new.name != "timestamp"

        def convert(value: Any) -> Any:
            return self._converted(
                value.astimezone(zone).replace(tzinfo=None) if is_local else value
            )

        made = each_converted(values, convert, (old, new), time_zone, is_strict=is_strict)
        if self._may_fill and made.null_count:
            made = self._filled(made, values, kind)
        return made

    def _filled(self, made: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
        is_in_place = self.session.is_mariadb and arrow_type(self.old.type) == kind
        if is_in_place and self.old.default is not None and values.null_count:
            raise CannotConvert(
                "NULL becomes NOT NULL: a MariaDB that alters in place takes the column's default "
                "of before, one that copies the table takes zero"
            )
        try:
            filling = implicit_zero(self.new)
        except ValueError as error:
            raise CannotConvert(f"NULL becomes NOT NULL: {error}") from error
        if filling is None:
            return made
        if self.old.type.name in _MOMENTS:
            raise CannotConvert("NULL becomes NOT NULL, and some NULLs may be dates here")
        was_null = values.is_null()
        return pc.if_else(was_null, pa.scalar(filling, kind), made)

    def _converted(self, value: Any) -> Any:
        was, now = kind_of(self.old.type), kind_of(self.new.type)
        for (befores, afters), convert in _WAYS.items():
            if was in befores.split() and now in afters.split():
                return convert(self, value)
        raise ValueError("the server's rule for it is not clear")


def same_values(old: Column, new: Column) -> bool:
    """Whether a DDL left all of a column that its values depend on as it was."""
    return (old.type, old.nullable, old.charset, old.zerofill) == (
        *(new.type, new.nullable, new.charset, new.zerofill),
    )


def implicit_zero(column: Column) -> Any:  # noqa: PLR0911 - one per kind
    """What a NULL becomes where it may not be one; None: a date of zeros, which is NULL here."""
    of = column.type
    if column.charset == MARIADB_VECTOR:
        return bytes(of.length or 0)
    match kind_of(of):
        case "integer":
            return 0
        case "float":
            return 0.0
        case "decimal":
            found = Decimal(0).scaleb(-(of.scale or 0))
            return f"{found:f}" if pa.types.is_string(arrow_type(of)) else found
        case "text":
            return ""
        case "bytes":
            return b"\0" * (of.length or 1) if of.name == "binary" else b""
        case "date" | "datetime":
            return None
        case "time" if of.digits is not None:
            return "00:00:00" + ("." + "0" * of.digits if of.digits else "")
        case "set":
            return ""
        case _:
            raise ValueError(f"what a NULL becomes in a {of} is not clear")


def kind_of(of: MySQLType) -> str:
    if of.name in INTEGER_BITS or of.name in ("bit", "year"):
        return "integer"
    if of.name in _FLOATS:
        return "float"
    if of.name in _BYTES:
        return "bytes"
    return "text" if of.name in TEXT_TYPES else of.name


def _range(of: MySQLType) -> tuple[int, int]:
    return (0, 2155) if of.name == "year" else whole_range(of)


def _most_bytes(of: MySQLType) -> int:
    """Or characters, where the type counts these."""
    most = {"tinyblob": 255, "blob": 65535, "mediumblob": 1 << 24, "longblob": 1 << 32, **_LENGTHS}
    return most.get(of.name, of.length or 1)


def _number(change: ServerChange, value: Any) -> Decimal:
    old, session = change.old.type, change.session
    if old.name == "enum":
        if "" in old.elements or not old.elements:
            raise ValueError("which of its names it is, is not clear")
        return Decimal(("", *old.elements).index(value))
    if old.name == "set":
        if "" in old.elements or not old.elements:
            raise ValueError("which of its names it is, is not clear")
        chosen = value.split(",") if value else []
        return Decimal(sum(1 << old.elements.index(name) for name in chosen))
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if isinstance(value, str):
        if kind_of(old) == "decimal":
            return Decimal(value)
        return numbers.read_number(value, session)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _to_integer(change: ServerChange, value: Any) -> int:
    old, new = change.old.type, change.new.type
    if new.name == "bit" and kind_of(old) != "integer":
        raise ValueError("the server's rule for it is not clear")
    number = _number(change, value)
    if new.name == "year":
        is_text = isinstance(value, str | bytes) and old.name not in (*_NAMES, "decimal")
        return numbers.as_year(number, is_text, change.session)
    if kind_of(old) == "text" and (number != int(number) or set(value) & {".", "e", "E"}):
        # MariaDB rounds it, or takes the digits before it, by what its statement counts.
        raise ValueError("whether the server rounds it, or cuts it, is not clear")
    return numbers.as_integer(number, old, new, change.session)


def _to_decimal(change: ServerChange, value: Any) -> Any:
    new = change.new.type
    found = numbers.as_decimal(_number(change, value), new, change.session)
    return f"{found:f}" if pa.types.is_string(arrow_type(new)) else found


def _to_float(change: ServerChange, value: Any) -> float:
    number = value if isinstance(value, float) else float(_number(change, value))
    if change.old.type.name == "bit" and number >= _SIGNED and change.session.is_mariadb:
        raise ValueError("whether its highest bit is a sign is not clear")
    if number in (float("inf"), float("-inf")):
        raise ValueError("it is out of range")
    found = numbers.as_float(number, change.new.type, change.session)
    if change.old.type.name == change.new.type.name and found != number:
        raise ValueError("whether the server rounds it, or keeps its bytes, is not clear")
    return found


def _text(change: ServerChange, value: Any) -> str:
    """As the server writes it, before it is put into another column."""
    old = change.old
    match kind_of(old.type):
        case "integer" if old.type.name == "bit":
            raise ValueError("the server's rule for it is not clear")
        case "integer":
            return numbers.text_of_integer(int(value), old.type, old.zerofill)
        case "decimal":
            return numbers.text_of_decimal(Decimal(value), old.type, old.zerofill)
        case "float":
            return numbers.text_of_float(value, old.type, old.zerofill, change.session)
        case "set" if "" in old.type.elements:
            raise ValueError("the server's rule for a name without a character is not clear")
        case "text" if old.type.name == "char" and change.session.pads:
            return str(value).ljust(old.type.length or 1)
        case "text" | "enum" | "set" | "uuid" | "inet4" | "inet6" | "time":
            return str(value)
        case _ if isinstance(value, date | datetime):
            return text_of(value, old.type)
    raise ValueError("the server's rule for it is not clear")


def _to_text(change: ServerChange, value: Any) -> str:
    new, session = change.new, change.session
    if isinstance(value, bytes):
        text = texts.decoded(value, new.charset)
    elif change.old.charset == "binary":  # of an ENUM or SET: the server reads its bytes anew
        text = texts.decoded(_text(change, value).encode("ascii"), new.charset)
    else:
        text = texts.as_charset(_text(change, value), new.charset, session)
    return texts.fitted(text, new.type, new.charset, session)


def _to_bytes(change: ServerChange, value: Any) -> bytes:
    old, session = change.old, change.session
    if change.new.charset == MARIADB_VECTOR:
        return _to_vector(change, value)
    if isinstance(value, bytes):
        raw = value
    elif kind_of(old.type) in ("text", "enum", "set"):
        raw = texts.encoded(_text(change, value), old.charset)
    else:
        raw = _text(change, value).encode()
    return texts.fitted_bytes(raw, change.new.type, session)


def _to_vector(change: ServerChange, value: Any) -> bytes:
    """MariaDB's: bytes of another length are none."""
    length = change.new.type.length or 0
    if change.old.charset != MARIADB_VECTOR or len(value) > length:
        raise ValueError("what the server makes of it in a VECTOR is not clear")
    return bytes(value).ljust(length, b"\0")


def _to_names(change: ServerChange, value: Any) -> str:
    new, session = change.new.type, change.session
    is_wide = change._widens or (change.new.charset in texts.WIDE and change._loses_elements)
    if not new.elements or "" in new.elements or is_wide:
        raise ValueError("its names are not clear")
    if isinstance(value, bytes):
        value = value.decode("ascii")
    text = _text(change, value).rstrip(" ")
    if not text.isascii() and change.old.charset != change.new.charset:
        raise ValueError("its names in another character set are not clear")
    if new.name == "enum":
        return _element(text, new.elements) if text else ""
    chosen = {_element(name, new.elements) for name in text.split(",")} if text else set()
    if session.is_mariadb and any("," in name for name in new.elements):
        raise ValueError("its names are not clear")
    return ",".join(name for name in new.elements if name in chosen)


def _element(text: str, elements: Sequence[str]) -> str:
    if text in elements:
        return text
    folded = {name.casefold(): name for name in reversed(elements)}
    if not text.isascii() or text.casefold() not in folded:
        raise ValueError(f"{text!r} is not among its names")
    raise ValueError(f"whether it is {folded[text.casefold()]!r} depends on the collation")


def _to_moment(change: ServerChange, value: Any) -> Any:
    new = change.new.type
    if kind_of(change.old.type) == "text":
        value = moments.read_moment(value)
    found = moments.as_moment(value, new, change.session)
    if new.name == "timestamp" and not 1971 <= found.year <= 2037:
        raise ValueError("it may be out of range")
    return found


def _to_time(change: ServerChange, value: Any) -> str:
    if isinstance(value, datetime):
        return moments.time_of(value, change.new.type, change.session)
    return moments.as_time(value, change.new.type, change.session)


_NUMERIC: Final = "integer decimal float"
_WAYS: Final[dict[tuple[str, str], Callable[[ServerChange, Any], Any]]] = {
    (f"{_NUMERIC} text enum set", "integer"): _to_integer,
    (f"{_NUMERIC} text enum set", "decimal"): _to_decimal,
    (f"{_NUMERIC} text enum set", "float"): _to_float,
    (
        f"{_NUMERIC} text bytes enum set time date datetime timestamp uuid inet4 inet6",
        "text",
    ): _to_text,
    (f"{_NUMERIC} text bytes enum set time date datetime timestamp", "bytes"): _to_bytes,
    ("text enum set", "enum set"): _to_names,
    ("date datetime timestamp text", "date datetime timestamp"): _to_moment,
    ("time text datetime timestamp", "time"): _to_time,
}
