"""Reads the definitions of columns, indexes and tables from their words, as TiDB reads them.

Only columns, their types and defaults, and keys are read; the rest is skipped. A definition that
cannot be read raises ValueError, whose text is a reason for operators.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sinks.ddl.defaults import literal, read_default, shown_expression
from sinks.ddl.effects import FIRST
from sinks.ddl.handle_key import keyed, named
from sinks.ddl.partition_clauses import read_partitioning
from sinks.ddl.text.tokens import (
    Word,
    Words,
    named_charset,
    names_binary_charset,
    split_by_comma,
)
from sinks.types.mysql_type import (
    BINARY_FORM,
    KNOWN_TYPES,
    NATIONAL_SET,
    SYNONYMS,
    TEXT_TYPES,
    MySQLType,
)
from sinks.types.table_schema import Column, Generated, Index, IndexKind, TableSchema

_DEFAULT_DECIMAL = (10, 0)
_LENGTH_ONE = ("bit", "char", "binary")  # types whose length is 1 where a definition has none
_INDEX_WORDS = ("INDEX", "KEY")
AUTO_INCREMENT = "AUTO_INCREMENT"  # or AUTO_RANDOM: an expression, as a default
_BARE_KEY = re.compile("(?<! PRIMARY)(?<! UNIQUE) KEY ")  # ``id INT KEY`` is a primary key


_SHORT = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}  # an attribute names a set
_NATIONAL = ("nchar", "nvarchar", "national")  # how such types begin


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column, and what its definition says beside."""

    column: Column
    index: Index | None  # PRIMARY KEY or UNIQUE
    has_charset: bool


def read_table(body: Sequence[Word], options: Sequence[Word]) -> TableSchema:
    """The schema of a CREATE TABLE, from the words within its parentheses and those behind them."""
    columns: list[Column] = []
    of_table: list[Index] = []
    of_columns: list[Index] = []
    binary = bool(names_binary_charset(options))
    charset = named_charset(options)
    periods: dict[str, tuple[str, ...]] = {}
    for part in split_by_comma(body):
        periods |= _period(part)
        index = read_index(part)
        if index is not None:
            of_table.append(index)
        elif not is_constraint(part):
            definition = read_column(part, binary, charset)
            columns.append(definition.column)
            of_columns += [definition.index] if definition.index else []
    if not columns:
        raise ValueError("the CREATE TABLE has no columns")
    bounds = {name for period in periods.values() for name in period}
    columns = [replace(c, nullable=c.nullable and c.name.lower() not in bounds) for c in columns]
    of_table = [_of_columns(index, columns, periods) for index in of_table]
    schema = keyed(columns, named([*of_table, *of_columns]), binary)  # in TiDB's order
    return replace(
        schema,
        charset=charset,
        partitioning=read_partitioning(options),
        follows_indexes=True,
        is_nonclustered=any(word.upper == "NONCLUSTERED" for word in body),
    )


def _period(part: Sequence[Word]) -> dict[str, tuple[str, ...]]:
    """MariaDB's ``PERIOD FOR p (begins, ends)``: by its name the columns, all in lower case."""
    words = Words(part)
    if not words.accept("PERIOD", "FOR"):
        return {}
    name = words.name().lower()
    bounds = split_by_comma(words.take().inner)
    return {name: tuple(Words(bound).column_name().lower() for bound in bounds)}


def _of_columns(
    index: Index, columns: Sequence[Column], periods: Mapping[str, tuple[str, ...]]
) -> Index:
    """With a period (WITHOUT OVERLAPS) as the columns that the server has in its place: the end,
    then the beginning. They tell rows apart, since equal periods overlap."""
    spelled = {column.name.lower(): column.name for column in columns}
    names = [
        spelled.get(bound, bound)
        for name in index.columns
        for bound in reversed(periods.get(name.lower(), (name.lower(),)))
    ]
    is_known = any(name.lower() in periods for name in index.columns)
    return replace(index, columns=tuple(names)) if is_known else index


def read_index(part: Sequence[Word]) -> Index | None:
    """An index or key definition, in a CREATE TABLE or behind ADD. None for a column or another
    constraint."""
    words = Words(part)
    name = _constraint_name(words)
    if words.peek().upper == "FOREIGN":
        return None
    kind: IndexKind = "plain"
    if words.accept("PRIMARY", "KEY"):
        return _index(words, "", "primary")
    if words.accept("UNIQUE"):
        kind = "unique"
    elif words.peek(1).upper in _INDEX_WORDS or words.peek().upper in ("FULLTEXT", "SPATIAL"):
        words.take()
    elif words.peek().upper not in _INDEX_WORDS:
        return None
    words.accept_any(*_INDEX_WORDS)
    return _index(words, name, kind)


def _constraint_name(words: Words) -> str:
    if words.accept("CONSTRAINT") and words.peek().kind in ("name", "word"):
        is_named = words.peek().upper not in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
        return words.name() if is_named else ""
    return ""


def _index(words: Words, name: str, kind: IndexKind) -> Index:
    while words.peek().kind != "group":
        word = words.take()
        if word.kind == "end":
            raise ValueError(f"a {kind} key names no columns")
        if word.upper in ("USING", "TYPE"):
            words.take()
        elif word.upper not in ("IF", "NOT", "EXISTS"):
            name = word.text
    parts = split_by_comma(words.take().inner)
    if any(word.upper == "WHERE" for word in words.rest()):
        parts = []  # a partial index
    columns = tuple(Words(part).column_name() for part in parts if part[0].kind in ("name", "word"))
    return Index(
        "" if kind == "primary" else name, columns if len(columns) == len(parts) else (), kind
    )


def is_constraint(part: Sequence[Word]) -> bool:
    """Whether it is a CHECK or FOREIGN KEY, with or without a name. (A column with such a name is
    in quotes.)"""
    is_period = Words(part).accept("PERIOD", "FOR")
    return is_period or part[0].upper in ("CONSTRAINT", "CHECK", "FOREIGN")


def read_column(part: Sequence[Word], binary: bool, charset: str = "") -> ColumnDefinition:
    """Reads a column's definition. ``binary``: a column that names no character set has CHARACTER
    SET binary. ``charset``: the table's."""
    words = Words(part)
    name = words.column_name()
    type_name, arguments = _read_type(words)
    attributes = words.rest()
    named_set = _named_set(attributes)
    in_bytes = named_set == "binary" if named_set else binary
    mysql_type = _type(name, type_name, arguments, attributes, in_bytes)
    text = _keywords(attributes)
    serial = type_name == "serial" or " SERIAL DEFAULT VALUE " in text
    primary = " PRIMARY KEY " in text or _BARE_KEY.search(text) is not None
    generated: Generated = ""
    if " AS () " in text:
        generated = "stored" if " STORED " in text or " PERSISTENT " in text else "virtual"
    default, is_expression = read_default(attributes, mysql_type)
    if default is None and (serial or " AUTO_INCREMENT " in text or " AUTO_RANDOM " in text):
        default, is_expression = AUTO_INCREMENT, True
    column = Column(
        name=name,
        type=mysql_type,
        nullable=not (" NOT NULL " in text or primary or serial),
        generated=generated,
        default=default,
        default_is_expression=is_expression,
        charset=_charset(mysql_type, named_set, type_name, charset),
        zerofill=any(word.upper == "ZEROFILL" for word in attributes),
        expression=_expression(attributes) if generated else "",
    )
    index = Index("", (name,), "primary" if primary else "unique")
    return ColumnDefinition(
        column=column,
        index=index if primary or serial or " UNIQUE " in text else None,
        has_charset=bool(named_set),
    )


def _named_set(attributes: Sequence[Word]) -> str:
    """The character set that a column names; empty where it names none."""
    if (is_binary := names_binary_charset(attributes)) is not None:
        return "binary" if is_binary else named_charset(attributes)
    return next((found for word in attributes if (found := _SHORT.get(word.upper))), "")


def _charset(mysql_type: MySQLType, named_set: str, type_name: str, charset: str) -> str:
    """The character set of a column of texts. A national one of a table of bytes keeps it: only
    TiDB takes it for bytes (``sinks.ddl.text.logged``)."""
    is_national = type_name.startswith(_NATIONAL)
    if mysql_type.name not in (*TEXT_TYPES, "enum", "set") and not (is_national and not named_set):
        return ""
    return named_set or (NATIONAL_SET if is_national else charset)


def _expression(attributes: Sequence[Word]) -> str:
    words = Words(attributes)
    while words.peek().kind != "end":
        if words.take().upper == "AS" and words.peek().kind == "group":
            return shown_expression(words.take())
    return ""


def place_of(definition: Sequence[Word]) -> str | None:
    """The place that FIRST or AFTER in a column's definition gives; None without them."""
    words = Words(definition[1:])
    while words.peek().kind != "end":
        if words.peek().upper == "FIRST":
            return FIRST
        if words.accept("AFTER"):
            return words.column_name()
        words.take()
    return None


def _read_type(words: Words) -> tuple[str, tuple[Word, ...] | None]:
    """The type's name in lower case, and its arguments."""
    name = words.name().lower()
    while words.peek().kind == "word":
        longer = f"{name} {words.peek().text.lower()}"
        if not any(known == longer or known.startswith(longer + " ") for known in SYNONYMS):
            break
        name = longer
        words.take()
    if words.peek().upper == "<":  # VECTOR<FLOAT>
        while words.take().upper not in (">", ""):
            pass
    return name, words.take().inner if words.peek().kind == "group" else None


def _type(
    column: str,
    name: str,
    arguments: tuple[Word, ...] | None,
    attributes: Sequence[Word],
    in_bytes: bool,
) -> MySQLType:
    text = name
    if arguments is not None:
        text += "(" + ",".join(_argument(column, part) for part in split_by_comma(arguments)) + ")"
    if any(word.upper in ("UNSIGNED", "ZEROFILL") for word in attributes):
        text += " unsigned"
    mysql_type = MySQLType.parse(text)
    if in_bytes:
        mysql_type = in_binary(mysql_type)
    if mysql_type.name not in KNOWN_TYPES:
        raise ValueError(f"column {column} has the type {name}, which is not supported")
    return _completed(mysql_type)


def in_binary(mysql_type: MySQLType) -> MySQLType:
    """The type under CHARACTER SET binary: a text type becomes one of bytes."""
    return replace(mysql_type, name=BINARY_FORM.get(mysql_type.name, mysql_type.name))


def _argument(column: str, part: Sequence[Word]) -> str:
    word = part[-1]  # the last word: an introducer such as _utf8mb4 may come before it
    if word.kind in ("text", "hex", "bits"):
        is_text = word.kind == "text"  # an element's name is no expression
        name = word.text if is_text else literal(word, MySQLType(name="enum"))
        return "'" + name.rstrip(" ").replace("'", "''") + "'"
    if word.kind == "number":
        return word.text
    raise ValueError(f"the type of column {column} cannot be read")


def _completed(mysql_type: MySQLType) -> MySQLType:
    """The type with the length that a definition without one means. (In a row's ``mysqlType`` a
    missing length is just not known.)"""
    if mysql_type.length is not None:
        return mysql_type
    if mysql_type.name == "decimal":
        precision, scale = _DEFAULT_DECIMAL
        return replace(mysql_type, length=precision, scale=scale)
    if mysql_type.name in _LENGTH_ONE:
        return replace(mysql_type, length=1)
    return mysql_type


def _keywords(words: Sequence[Word]) -> str:
    """The words with blanks around each, to search for keywords in: a group is ``()``, and a word
    that cannot be a keyword ``?``."""
    texts = ("()" if word.kind == "group" else word.upper or "?" for word in words)
    return f" {' '.join(texts)} "
