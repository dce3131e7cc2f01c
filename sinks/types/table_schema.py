"""A table's MySQL definition: its columns, their types and the handle key (docs/types.md).

It comes from a CREATE TABLE (``sinks/ddl``), at a later start from the target's properties
(``TableSchema.from_json``), or, where the stream starts after the CREATE TABLE, from a row's
``mysqlType`` (``schema_from_mysql_types``), which tells less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sinks.types.partitioning import Partitioning

Generated = Literal["", "virtual", "stored"]
IndexKind = Literal["primary", "unique", "plain"]
CURRENT_TIMESTAMP = "CURRENT_TIMESTAMP"  # a default that is an expression, in any spelling of it

SYNONYMS = {
    "bool": "tinyint",
    "boolean": "tinyint",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "integer": "int",
    "int8": "bigint",
    "serial": "bigint",  # BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
    "float4": "float",
    "float8": "double",
    "real": "double",
    "double precision": "double",
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
    "character": "char",
    "nchar": "char",
    "national char": "char",
    "national character": "char",
    "char byte": "binary",
    "char varying": "varchar",
    "character varying": "varchar",
    "varcharacter": "varchar",
    "nvarchar": "varchar",
    "nchar varchar": "varchar",
    "nchar varying": "varchar",
    "nchar varcharacter": "varchar",
    "national varchar": "varchar",
    "national varcharacter": "varchar",
    "national char varying": "varchar",
    "national character varying": "varchar",
    "varchar byte": "varbinary",
    "long": "mediumtext",
    "long varchar": "mediumtext",
    "long char varying": "mediumtext",
    "long character varying": "mediumtext",
    "long varbinary": "mediumblob",
    "tinytext byte": "tinyblob",
    "text byte": "blob",
    "mediumtext byte": "mediumblob",
    "longtext byte": "longblob",
}
BINARY_FORM = {  # what a character type becomes under CHARACTER SET binary
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
MOMENTS = ("date", "datetime", "timestamp")
INTEGER_TYPES = ("tinyint", "smallint", "mediumint", "int", "bigint")
BINARY_TYPES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
TEXT_TYPES = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
KNOWN_TYPES = frozenset(
    (
        *INTEGER_TYPES,
        *BINARY_TYPES,
        *TEXT_TYPES,
        *("float", "double", "decimal", "bit", "year", "date", "datetime", "timestamp", "time"),
        *("enum", "set", "json", "vector"),
    )
)
TIMED_TYPES = ("datetime", "timestamp", "time")  # their length: digits of a fraction of a second
_OF_UNTOLD_DIGITS = (*TIMED_TYPES, "float", "double")
_UNTOLD = "?"
_FLOAT_MAX_PRECISION = 24  # FLOAT(25) … FLOAT(53) is a DOUBLE

_NAME_WORD = re.compile(r"\s*([A-Za-z_]\w*)")
_MOST_NAME_WORDS = 3  # national character varying
_ARGUMENTS = re.compile(r"\s*(?:\(((?:'(?:[^']|'')*'|[^')])*)\)|<[^>]*>)")
_ELEMENT = re.compile(r"'((?:[^']|'')*)'")
_BINARY_CHARSET = re.compile(r"\b(?:character\s+set|charset|collate)\s*=?\s*'?binary\b|^\s*byte\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLType:
    """A type such as ``decimal(20,4) unsigned`` in parts; None for a part that is not known, or
    that a definition leaves out (the digits of ``datetime``, a float's M and D).

    ``is_untold``: it was not left out of a definition, but of a row's ``mysqlType``, which never
    has it. Then no rule may take None for MySQL's default. As text it is ``datetime(?)``. With
    ``elements``: their names are known meanwhile, and values are kept as numbers still."""

    name: str  # lower case, canonical: tinyint … bigint, decimal, varchar, enum, …
    unsigned: bool = False
    length: int | None = None  # (n) of bit, char, time…; precision of decimal
    scale: int | None = None
    elements: tuple[str, ...] = ()  # of enum and set
    is_untold: bool = False

    @classmethod
    def parse(cls, text: str) -> MySQLType:
        """Read a type as ``mysqlType``, SHOW COLUMNS or a column definition writes it.

        A backslash in an enum's element stands for itself, as TiDB writes it. An unknown name is
        kept as it is. Raises ValueError where the text is no type at all.
        """
        name, rest = _read_name(text)
        arguments = _ARGUMENTS.match(rest)
        inner = (arguments.group(1) or "") if arguments else ""
        attributes = (rest[arguments.end() :] if arguments else rest).lower()
        raw_name, name = name, SYNONYMS.get(name, name)
        if _BINARY_CHARSET.search(attributes):
            name = BINARY_FORM.get(name, name)
        unsigned = raw_name == "serial" or bool(re.search(r"\b(?:unsigned|zerofill)\b", attributes))
        if name in ("enum", "set"):
            elements = (element.replace("''", "'") for element in _ELEMENT.findall(inner))
            return cls(name=name, elements=tuple(elements))
        numbers = [int(number) for number in re.findall(r"\d+", inner)]
        length = numbers[0] if numbers else None
        scale = numbers[1] if len(numbers) > 1 else None
        if name == "decimal" and length is not None and scale is None:
            scale = 0
        if name == "float" and scale is None and (length or 0) > _FLOAT_MAX_PRECISION:
            name, length = "double", None
        if raw_name in ("bool", "boolean"):
            length = 1
        if name in TIMED_TYPES:
            length = length or None
        is_untold = inner == _UNTOLD
        return cls(name=name, unsigned=unsigned, length=length, scale=scale, is_untold=is_untold)

    def as_untold(self) -> MySQLType:
        """The type as a row's ``mysqlType`` tells it that has no digits."""
        return replace(self, is_untold=self.length is None and self.name in _OF_UNTOLD_DIGITS)

    @property
    def digits(self) -> int | None:
        """Of a fraction of a second, in TIMED_TYPES; None: it is not known how many."""
        return None if self.is_untold else self.length or 0

    def __str__(self) -> str:
        """The text that ``parse`` reads back."""
        if self.elements:
            inner = ",".join("'" + element.replace("'", "''") + "'" for element in self.elements)
        else:
            inner = ",".join(str(n) for n in (self.length, self.scale) if n is not None)
            inner = _UNTOLD if self.is_untold else inner
        return self.name + (f"({inner})" if inner else "") + (" unsigned" if self.unsigned else "")


def _read_name(text: str) -> tuple[str, str]:
    """Split off a type's name (its longest form), in lower case, from what follows it."""
    first = _NAME_WORD.match(text)
    if first is None:
        raise ValueError(f"{text!r} is not a MySQL type")
    word: re.Match[str] | None = first
    longest = first
    words: list[str] = []
    while word is not None and len(words) < _MOST_NAME_WORDS:
        words.append(word.group(1).lower())
        if " ".join(words) in SYNONYMS:
            longest = word
        word = _NAME_WORD.match(text, word.end())
    name = " ".join(text[: longest.end()].lower().split())
    return name, text[longest.end() :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: MySQLType
    nullable: bool = True
    generated: Generated = ""
    default: str | None = None  # as the DDL writes the value; None: NULL, or none at all
    default_is_expression: bool = False  # CURRENT_TIMESTAMP, uuid(), …: ``default`` is no value


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table. ``columns`` is empty for one with an expression as a part, or one that
    does not hold all rows."""

    name: str
    columns: tuple[str, ...]
    kind: IndexKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Columns in table order and the handle key (empty: a table without one, rule 8).

    ``key_is_row``: the table has no key, and the user wants its rows told apart by all columns,
    which are ``key`` then. So NULL is a value in it, and equal rows are one.

    ``indexes`` is empty, without even the key's, in a schema that an earlier release stored and in
    one that comes from a row's ``mysqlType``.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_index: str | None = None  # the unique index that is the handle key; None: the PRIMARY KEY
    key_is_row: bool = False
    indexes: tuple[Index, ...] = ()  # all of them, in the order of TiDB's index IDs
    binary_charset: bool = False  # the table's CHARACTER SET is binary: text columns hold bytes
    partitioning: Partitioning | None = None  # None: it has no partitions, or they are not known
    # ``indexes`` has every DDL of unique ones since the CREATE TABLE: one may become the key
    follows_indexes: bool = field(default=False, compare=False)

    @property
    def delivered(self) -> tuple[Column, ...]:
        """The columns that TiCDC sends: all but virtual generated ones."""
        return tuple(column for column in self.columns if column.generated != "virtual")

    def by_all_columns(self) -> TableSchema:
        """With all columns as the key."""
        key = tuple(column.name for column in self.delivered)
        return replace(self, key=key, key_index=None, key_is_row=True)

    def completed(self, by: TableSchema) -> TableSchema:
        """With the digits, and the names of ENUMs and SETs, that ``by``, a definition of the table,
        tells beyond it. A column of another type there is another."""
        told = {column.name.lower(): column.type for column in by.columns}
        columns = (
            replace(column, type=_completed(column.type, told.get(column.name.lower())))
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def column(self, name: str) -> Column:
        """The column of that name, in any case, as in MySQL. Raises KeyError."""
        wanted = name.lower()
        for column in self.columns:
            if column.name.lower() == wanted:
                return column
        raise KeyError(name)

    def to_json(self) -> str:
        """The schema for the Delta table's properties: a later start can read it nowhere else."""
        columns = [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                **({"generated": column.generated} if column.generated else {}),
                **({"default": column.default} if column.default is not None else {}),
                **({"default_is_expression": True} if column.default_is_expression else {}),
            }
            for column in self.columns
        ]
        fields = {
            "columns": columns,
            "key": list(self.key),
            "key_index": self.key_index,
            **({"key_is_row": True} if self.key_is_row else {}),
            "indexes": [
                {"name": index.name, "columns": list(index.columns), "kind": index.kind}
                for index in self.indexes
            ],
            **({"binary_charset": True} if self.binary_charset else {}),
            **({"partitioning": self.partitioning.to_json()} if self.partitioning else {}),
            **({"follows_indexes": True} if self.follows_indexes else {}),
        }
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """Read what ``to_json`` wrote. Raises ValueError or KeyError on anything else."""
        fields = json.loads(text)
        partitioning = fields.get("partitioning")
        columns = tuple(
            Column(
                name=column["name"],
                type=MySQLType.parse(column["type"]),
                nullable=column["nullable"],
                generated=column.get("generated", ""),
                default=column.get("default"),
                default_is_expression=column.get("default_is_expression", False),
            )
            for column in fields["columns"]
        )
        return cls(
            columns=columns,
            key=tuple(fields["key"]),
            key_index=fields.get("key_index"),
            key_is_row=fields.get("key_is_row", False),
            indexes=tuple(
                Index(index["name"], tuple(index["columns"]), index["kind"])
                for index in fields.get("indexes", ())
            ),
            binary_charset=fields.get("binary_charset", False),
            partitioning=None if partitioning is None else Partitioning.from_json(partitioning),
            follows_indexes=fields.get("follows_indexes", False),
        )


def _completed(mysql_type: MySQLType, by: MySQLType | None) -> MySQLType:
    if by is None or (by.name, by.unsigned) != (mysql_type.name, mysql_type.unsigned):
        return mysql_type
    if by.elements and not mysql_type.elements:
        return replace(by, is_untold=True)
    return by if mysql_type.is_untold else mysql_type


def schema_from_mysql_types(
    types: Mapping[str, str], pk_names: Sequence[str]
) -> tuple[TableSchema, list[str]]:
    """The schema that a row's ``mysqlType`` and ``pkNames`` tell, and warnings about what they do
    not tell, as sentences.

    The columns are in the order of ``types``. TiCDC shuffles ``mysqlType``, so pass them in the
    order of ``data``. Never pass those of a handle-key-only or claim-check message, which has the
    key's types alone. Raises ValueError where ``pk_names`` are not among ``types``, or a type is
    none.
    """
    in_key = {name.lower() for name in pk_names}
    columns = []
    warnings = []
    found = {name: MySQLType.parse(text) for name, text in types.items()}
    # With content-compatible=true a type without digits has none.
    are_full = any("(" in types[name] and found[name].name not in TIMED_TYPES for name in types)
    for name, text in types.items():
        mysql_type = found[name] if are_full or "(" in text else found[name].as_untold()
        warnings += _what_is_missing(name, mysql_type)
        columns.append(Column(name=name, type=mysql_type, nullable=name.lower() not in in_key))
    if not pk_names:
        warnings.append(
            "the rows name no primary key and do not tell whether there is a NOT NULL unique key:"
            " start the changefeed before the table's CREATE TABLE to have it known"
        )
    return _keyed(TableSchema(columns=tuple(columns), key=()), pk_names), warnings


def _keyed(schema: TableSchema, pk_names: Sequence[str]) -> TableSchema:
    """The schema with this key, in the spelling of its columns. Raises ValueError where a name of
    the key is no column."""
    try:
        return replace(schema, key=tuple(schema.column(name).name for name in pk_names))
    except KeyError as missing:
        raise ValueError(f"pkNames has {missing.args[0]}, which mysqlType has not") from None


def _what_is_missing(name: str, mysql_type: MySQLType) -> list[str]:
    bare = mysql_type.length is None and not mysql_type.elements
    if mysql_type.name == "decimal" and bare:
        return [f"column {name}: the rows do not tell the precision of its decimal: kept as string"]
    if mysql_type.name in ("enum", "set") and bare:
        what = "index" if mysql_type.name == "enum" else "bitmask"
        return [
            f"column {name}: the rows do not tell the elements of its {mysql_type.name}:"
            f" the {what} is kept as text"
        ]
    if mysql_type.name == "bit" and bare:
        return [f"column {name}: the rows do not tell the width of its bit: kept as decimal(20,0)"]
    if mysql_type.name not in KNOWN_TYPES:
        return [f"column {name}: unknown type {mysql_type.name}: kept as string"]
    return []
