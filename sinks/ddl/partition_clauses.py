"""The partition clauses of CREATE and ALTER TABLE, read from their words.

It reads what ``sinks.types.partitioning`` can hold: RANGE and LIST by columns or by one function of
a column, HASH by a column. Every other clause is None: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from sinks.ddl.text.tokens import Word, Words, split_by_comma
from sinks.types.partitioning import Method, Partition, Partitioning, numbered

FUNCTIONS = ("YEAR", "TO_DAYS", "UNIX_TIMESTAMP")
_DAYS_BEFORE_YEAR_ONE = 365  # MySQL counts days from the year 0


def read_partitioning(options: Sequence[Word]) -> Partitioning | None:
    """The clause behind ``PARTITION BY``, somewhere in these words; None: there is none, or it is
    unknown."""
    words = Words(options)
    while words.peek().kind != "end":
        if words.accept("PARTITION", "BY"):
            try:
                return _partitioning(words)
            except ValueError:
                return None
        words.take()
    return None


def read_partitions(words: Words) -> tuple[Partition, ...]:
    """The definitions in one pair of parentheses. Raises ValueError."""
    group = words.take()
    if group.kind != "group":
        raise ValueError("the partitions are not in parentheses")
    return tuple(_partition(Words(part)) for part in split_by_comma(group.inner))


def read_count(words: Words) -> int:
    """``PARTITIONS 4``, or the number alone. Raises ValueError."""
    words.accept("PARTITIONS")
    number = words.take()
    if number.kind != "number":
        raise ValueError("the number of partitions is missing")
    return int(number.text)


def _partitioning(words: Words) -> Partitioning:
    method = _method(words)
    words.accept("COLUMNS")
    group = words.take()
    if group.kind != "group":
        raise ValueError("it does not say by which columns")
    function, columns = _columns(group.inner)
    count = 0
    while words.peek().kind not in ("group", "end"):
        if words.peek().upper in ("INTERVAL", "SUBPARTITION"):
            raise ValueError("partitions by an interval, or in two levels")
        if words.peek().upper == "PARTITIONS":
            count = read_count(words)
        elif method == "hash":
            break
        else:
            words.take()
    if words.peek().kind == "group":
        partitions = read_partitions(words)
    else:
        partitions = numbered(0, count or 1) if method == "hash" else ()
    if method == "hash" and (function or len(columns) > 1):
        raise ValueError("HASH of an expression")
    width = {len(each.less_than) for each in partitions if method == "range"}
    width |= {len(each) for one in partitions for each in one.values if method == "list"}
    if not partitions or width - {len(columns)}:
        raise ValueError("the partitions do not fit their columns")
    return Partitioning(method=method, columns=columns, function=function, partitions=partitions)


def _method(words: Words) -> Method:
    match words.take().upper:
        case "RANGE":
            return "range"
        case "LIST":
            return "list"
        case "HASH":
            return "hash"
    raise ValueError("partitions by LINEAR HASH, KEY or SYSTEM_TIME")


def _columns(inner: Sequence[Word]) -> tuple[str, tuple[str, ...]]:
    """The function, or none, and the columns."""
    if len(inner) == 2 and inner[0].upper in FUNCTIONS and inner[1].kind == "group":
        return inner[0].upper, (_name(inner[1].inner),)
    return "", tuple(_name(part) for part in split_by_comma(inner))


def _name(part: Sequence[Word]) -> str:
    words = Words(part)
    name = words.column_name()
    words.end()
    return name


def _partition(words: Words) -> Partition:
    if not words.accept("PARTITION"):
        raise ValueError("a definition that is no partition's")
    name = words.name()
    if words.accept("DEFAULT"):
        return Partition(name=name, is_default=True)
    if words.accept("VALUES", "LESS", "THAN"):
        bound = words.take()
        parts = split_by_comma(bound.inner) if bound.kind == "group" else [(bound,)]
        return Partition(name=name, less_than=tuple(_bound(part) for part in parts))
    if words.accept("VALUES", "IN"):
        listed = split_by_comma(words.take().inner)
        is_default = any(part[0].upper == "DEFAULT" for part in listed)
        values = tuple(_values(part) for part in listed if part[0].upper != "DEFAULT")
        return Partition(name=name, values=values, is_default=is_default)
    return Partition(name=name)


def _bound(part: Sequence[Word]) -> str | None:
    if len(part) == 1 and part[0].upper == "MAXVALUE":
        return None
    value = _value(part)
    if value is None:
        raise ValueError("NULL is no bound")
    return value


def _values(part: Sequence[Word]) -> tuple[str | None, ...]:
    if len(part) == 1 and part[0].kind == "group":
        return tuple(_value(each) for each in split_by_comma(part[0].inner))
    return (_value(part),)


def _value(part: Sequence[Word]) -> str | None:
    """A literal as text, a date's number of days, or None for NULL. Raises ValueError."""
    if len(part) == 2 and part[0].upper in ("+", "-") and part[1].kind == "number":
        return part[0].upper.strip("+") + part[1].text
    if len(part) == 2 and part[1].kind == "text" and part[0].text.startswith("_"):
        part = part[1:]  # behind an introducer such as _utf8mb4
    if len(part) == 2 and part[0].upper in ("TO_DAYS", "YEAR") and part[1].kind == "group":
        day = date.fromisoformat((_value(part[1].inner) or "")[:10])
        return str(to_days(day) if part[0].upper == "TO_DAYS" else day.year)
    if len(part) == 1 and part[0].kind == "number":
        return part[0].text
    if len(part) == 1 and part[0].kind == "text":
        return part[0].value
    if len(part) == 1 and part[0].upper == "NULL":
        return None
    raise ValueError("a bound that is no literal")


def to_days(day: date) -> int:
    """MySQL's TO_DAYS."""
    return day.toordinal() + _DAYS_BEFORE_YEAR_ONE
