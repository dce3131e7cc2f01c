"""Numbers: how they are read from texts, rounded, kept within a type's range, and written."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np

from sinks.types.delta_types import whole_range
from sinks.types.mysql_type import MySQLType
from sinks.types.server_rules.session import ServerSession

_NUMBER: Final = re.compile(
    r"[ \t]*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(.*)", re.S
)
_YEARS: Final = range(1901, 2156)
_WIDTHS: Final = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
_MOST_POINTS: Final = 15  # digits before the point, or zeros behind it, without an exponent
_LONG: Final = 1 << 63  # a MySQL takes the lowest number for some that are greater
_FLOAT_DIGITS: Final = 6
_FLOAT_WIDTHS: Final = {"float": 12, "double": 24}  # characters that a MySQL shows of one


def read_number(text: str, session: ServerSession) -> Decimal:
    """A text as a number. What stands behind a number counts only where the session is lax."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        if session.is_strict:
            raise ValueError("it is no number")
        if text.strip(" \t\r\n\v\f"):
            return _of_none(text)
        return Decimal(0)
    if found[2].strip(" ") and session.is_strict:
        raise ValueError("it is no number")
    with localcontext(prec=400):
        return Decimal(found[1])


def _of_none(text: str) -> Decimal:
    if text.lstrip(" \t\r\n\v\f")[:1] in "-+.0123456789":
        raise ValueError("it is no number")
    return Decimal(0)


def rounded(number: Decimal, scale: int) -> Decimal:
    """A half away from zero."""
    with localcontext(prec=500):
        found = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return found or abs(found)


def as_integer(number: Decimal, old: MySQLType, new: MySQLType, session: ServerSession) -> int:
    """A half goes away from zero; that of a FLOAT or DOUBLE goes to the even number."""
    if old.name in ("float", "double"):
        whole = int(np.rint(float(number)))
    else:
        whole = int(rounded(number, 0))
    low, high = whole_range(new)
    if low <= whole <= high:
        return whole
    if session.is_strict:
        raise ValueError("it is out of range")
    if old.name in ("float", "double") and abs(whole) >= _LONG and not session.is_mariadb:
        raise ValueError("what a MySQL makes of a number beyond BIGINT is not clear")
    if new.name == "bit":
        raise ValueError("it is out of the range of bits")
    return low if whole < low else high


def as_year(number: Decimal, is_text: bool, session: ServerSession) -> int:
    whole = int(number)
    if whole != number:
        raise ValueError("it is no whole number")
    if is_text and whole == 0:
        raise ValueError("a text of zeros may be 0 or 2000")
    if 1 <= whole <= 99:
        return whole + (2000 if whole < 70 else 1900)
    if whole in _YEARS or whole == 0:
        return whole
    if session.is_strict:
        raise ValueError("it is out of range")
    return 0


def as_decimal(number: Decimal, new: MySQLType, session: ServerSession) -> Decimal:
    if new.length is None:
        raise ValueError("the precision of the new type is not known")
    scale = new.scale or 0
    if new.unsigned and number < 0:
        return Decimal(0).scaleb(-scale) if not session.is_strict else _refused()
    found = rounded(number, scale)
    with localcontext(prec=100):  # a DECIMAL has up to 65 digits
        most = Decimal(10) ** (new.length - scale) - Decimal(1).scaleb(-scale)
    if abs(found) <= most:
        return found
    return most.copy_sign(found) if not session.is_strict else _refused()


def as_float(number: float, new: MySQLType, session: ServerSession) -> float:
    if new.unsigned and number < 0:
        return 0.0 if not session.is_strict else _refused()
    if new.scale is not None:
        most = 10.0 ** ((new.length or 0) - new.scale)
        most -= 10.0**-new.scale
        number = _shortened(number, new.scale)
        if abs(number) > most:
            number = float(np.copysign(most, number)) if not session.is_strict else _refused()
    if new.name == "float":
        with np.errstate(over="ignore"):
            narrow = float(np.float32(number))
        if not np.isfinite(narrow):
            raise ValueError("it is out of range")
        return narrow
    return number


def _shortened(number: float, scale: int) -> float:
    """As the servers' my_double_round: the whole part by itself, so that no digit is lost."""
    whole = float(np.floor(number))
    return whole + float(np.rint((number - whole) * 10.0**scale)) / 10.0**scale


def _refused() -> Any:
    raise ValueError("it is out of range")


def text_of_integer(number: int, old: MySQLType, zerofill: bool) -> str:
    if old.name == "year":
        return f"{number:04d}"
    width = (old.length or _WIDTHS[old.name]) if zerofill else 0
    return str(number).zfill(width)


def text_of_decimal(number: Decimal, old: MySQLType, zerofill: bool) -> str:
    text = f"{rounded(number, old.scale or 0):f}"
    if not zerofill:
        return text
    scale = old.scale or 0
    return text.zfill((old.length or 10) + (1 if scale else 0))


def text_of_float(number: float, old: MySQLType, zerofill: bool, session: ServerSession) -> str:
    """The digits that tell the number apart, of a FLOAT six at most; with (M,D) always D behind the
    point. MySQL has an exponent also where the text would be longer than the column shows."""
    if old.is_untold:
        raise ValueError("its text depends on M and D, which are not known")
    if zerofill:
        raise ValueError("its text has zeros before it, how many is not clear")
    if old.scale is not None:
        with localcontext(prec=400):
            return f"{Decimal(number).quantize(Decimal(1).scaleb(-old.scale)):f}"
    shortest = repr(number)
    if old.name == "float":
        shortest = f"{Decimal(number):.{_FLOAT_DIGITS - 1}e}"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent  # 0.digits times 10 to the power of point
    text = "".join(map(str, digits))
    minus = "-" if sign and text != "0" else ""
    if text == "0":
        return "-0" if sign and not session.is_mariadb else "0"
    if point >= 1 - _MOST_POINTS and (point <= _MOST_POINTS or len(text) > point):
        plain = minus + f"{Decimal(shortest).copy_abs().normalize():f}"
        if session.is_mariadb or len(plain) <= _FLOAT_WIDTHS[old.name]:
            return plain
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    found = f"{minus}{mantissa}e{point - 1}"
    if len(found) > _FLOAT_WIDTHS[old.name] and not session.is_mariadb:
        raise ValueError("which of its digits the server leaves out is not clear")
    return found
