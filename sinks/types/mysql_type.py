"""The type of a column in MySQL's words: read from a DDL or a message, written as text
(docs/types.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
    "geomcollection": "geometrycollection",
}
BINARY_FORM = {  # what a character type becomes under CHARACTER SET binary
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
NATIONAL_SET = "utf8mb3"  # of NCHAR and the like
MARIADB_VECTOR = "vector"  # in the place of a character set: bytes that are a VECTOR of MariaDB
INTEGER_TYPES = ("tinyint", "smallint", "mediumint", "int", "bigint")
SPATIAL_TYPES = (
    *("geometry", "point", "linestring", "polygon"),
    *("multipoint", "multilinestring", "multipolygon", "geometrycollection"),
)
BINARY_TYPES = (
    *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    *SPATIAL_TYPES,  # the SRID in four bytes, then WKB
)
IDENTIFIER_TYPES = {"uuid": 16, "inet4": 4, "inet6": 16}  # MariaDB's, with the bytes of a value
TEXT_TYPES = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
KNOWN_TYPES = frozenset(
    (
        *INTEGER_TYPES,
        *BINARY_TYPES,
        *TEXT_TYPES,
        *("float", "double", "decimal", "bit", "year", "date", "datetime", "timestamp", "time"),
        *("enum", "set", "json", "vector"),
        *IDENTIFIER_TYPES,
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

    ``is_untold``: the type comes from a row's ``mysqlType``, which never has these parts, not from
    a definition that left them out. Then no rule may take None for MySQL's default. As text it is
    ``datetime(?)``. With ``elements``: their names are known meanwhile, but values are kept as
    numbers still.
    """

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
        kept as it is. Raises ValueError if the text is no type at all.
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
        """The digits of a fraction of a second, in TIMED_TYPES; None: their number is not known."""
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
