"""The columns and the handle key of a CREATE TABLE, read from its words as TiDB reads them.

What is not a column, its type or a key is passed over; what cannot be read raises ValueError with a
sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sinks.ddl.words import Word, Words, names_binary_charset, split_by_comma
from sinks.schema import (
    BINARY_FORM,
    KNOWN_TYPES,
    SYNONYMS,
    Column,
    Generated,
    Index,
    IndexKind,
    MySQLType,
    TableSchema,
)

_DEFAULT_DECIMAL = (10, 0)
_LENGTH_ONE = ("bit", "char", "binary")  # what a bare one means in a definition
_INDEX_WORDS = ("INDEX", "KEY")
_BARE_KEY = re.compile("(?<! PRIMARY)(?<! UNIQUE) KEY ")  # ``id INT KEY`` is a primary key


def read_table(body: Sequence[Word], options: Sequence[Word]) -> TableSchema:
    """The schema from what stands in the parentheses of a CREATE TABLE, and behind them."""
    columns: list[Column] = []
    of_table: list[Index] = []
    of_columns: list[Index] = []
    binary = bool(names_binary_charset(options))
    for part in split_by_comma(body):
        index = read_index(part)
        if index is not None:
            of_table.append(index)
        elif not _is_constraint(part):
            column, index = _read_column(part, binary)
            columns.append(column)
            of_columns += [index] if index else []
    if not columns:
        raise ValueError("the CREATE TABLE has no columns")
    return _with_key(columns, _named([*of_table, *of_columns]))  # in TiDB's order


def read_added(specification: Sequence[Word]) -> tuple[Column, ...]:
    """The columns of an ALTER TABLE that adds columns and does nothing else; else none."""
    columns: list[Column] = []
    for part in split_by_comma(specification):
        words = Words(part)
        if not words.accept("ADD") or read_index(words.rest()) or _is_constraint(part[1:]):
            return ()
        words = Words(part[1:])
        words.accept("COLUMN")
        words.accept("IF", "NOT", "EXISTS")
        inner = words.peek().inner if words.peek().kind == "group" else words.rest()
        columns += [_read_column(each, binary=False)[0] for each in split_by_comma(inner)]
    return tuple(columns)


def read_index(part: Sequence[Word]) -> Index | None:
    """An index or key definition, also behind ADD; None for a column or another constraint."""
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
        named = words.peek().upper not in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
        return words.name() if named else ""
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
    columns = tuple(part[0].text for part in parts if part[0].kind in ("name", "word"))
    return Index(name, columns if len(columns) == len(parts) else (), kind)


def _is_constraint(part: Sequence[Word]) -> bool:
    """CHECK or FOREIGN KEY, with or without a name (the columns of those names are in quotes)."""
    return part[0].upper in ("CONSTRAINT", "CHECK", "FOREIGN", "PERIOD")


def _named(indexes: list[Index]) -> list[Index]:
    """Nameless indexes get their first column's name, as in MySQL; _2, _3 … where it is taken."""
    taken = {"primary", *(index.name.lower() for index in indexes)}
    named = []
    for index in indexes:
        if index.name or index.kind == "primary":
            named.append(index)
            continue
        base = index.columns[0] if index.columns else "expression_index"
        name, number = base, 1
        while name.lower() in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name.lower())
        named.append(replace(index, name=name))
    return named


def _with_key(columns: list[Column], indexes: list[Index]) -> TableSchema:
    """The handle key: the primary key, else the NOT NULL unique index with the fewest columns."""
    primary = next((index for index in indexes if index.kind == "primary"), None)
    if primary is not None:
        in_key = {name.lower() for name in primary.columns}
        columns = [
            replace(column, nullable=False) if column.name.lower() in in_key else column
            for column in columns
        ]
    schema = TableSchema(columns=tuple(columns), key=())
    candidates = [i for i in indexes if i.kind == "unique" and can_be_key(i.columns, schema)]
    chosen = primary or min(candidates, key=lambda index: len(index.columns), default=None)
    if chosen is None:
        return schema
    try:
        key = tuple(schema.column(name).name for name in chosen.columns)
    except KeyError as missing:
        raise ValueError(f"the key names {missing}, which is no column") from None
    return replace(schema, key=key, key_index=None if primary else chosen.name)


def can_be_key(names: Sequence[str], schema: TableSchema) -> bool:
    """Whether a unique index on these columns tells rows apart: NOT NULL, and sent by TiCDC."""
    columns = {column.name.lower(): column for column in schema.delivered}
    found = [columns.get(name.lower()) for name in names]
    return bool(found) and all(column is not None and not column.nullable for column in found)


def _read_column(part: Sequence[Word], binary: bool) -> tuple[Column, Index | None]:
    words = Words(part)
    name = words.name()
    type_name, arguments = _read_type(words)
    attributes = words.rest()
    said = names_binary_charset(attributes)
    in_bytes = said if said is not None else binary
    mysql_type = _type(name, type_name, arguments, attributes, in_bytes)
    text = _keywords(attributes)
    serial = type_name == "serial" or " SERIAL DEFAULT VALUE " in text
    primary = " PRIMARY KEY " in text or _BARE_KEY.search(text) is not None
    generated: Generated = ""
    if " AS () " in text:
        generated = "stored" if " STORED " in text or " PERSISTENT " in text else "virtual"
    column = Column(
        name=name,
        type=mysql_type,
        nullable=not (" NOT NULL " in text or primary or serial),
        generated=generated,
    )
    if primary:
        return column, Index("", (name,), "primary")
    if serial or " UNIQUE " in text:
        return column, Index("", (name,), "unique")
    return column, None


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
    if in_bytes or any(word.upper == "BYTE" for word in attributes):
        mysql_type = replace(mysql_type, name=BINARY_FORM.get(mysql_type.name, mysql_type.name))
    if mysql_type.name not in KNOWN_TYPES:
        raise ValueError(f"column {column} has the type {name}, which is not supported")
    return _completed(mysql_type)


def _argument(column: str, part: Sequence[Word]) -> str:
    word = part[-1]  # behind an introducer such as _utf8mb4
    if word.kind == "text":
        return "'" + word.text.rstrip(" ").replace("'", "''") + "'"
    if word.kind == "number":
        return word.text
    raise ValueError(f"the type of column {column} cannot be read")


def _completed(mysql_type: MySQLType) -> MySQLType:
    """What a definition leaves out has a fixed meaning, other than in a row's ``mysqlType``."""
    if mysql_type.length is not None:
        return mysql_type
    if mysql_type.name == "decimal":
        precision, scale = _DEFAULT_DECIMAL
        return replace(mysql_type, length=precision, scale=scale)
    if mysql_type.name in _LENGTH_ONE:
        return replace(mysql_type, length=1)
    return mysql_type


def _keywords(words: Sequence[Word]) -> str:
    """The words with a blank on both sides: a group as ``()``, what is no keyword as ``?``."""
    texts = ("()" if word.kind == "group" else word.upper or "?" for word in words)
    return f" {' '.join(texts)} "
