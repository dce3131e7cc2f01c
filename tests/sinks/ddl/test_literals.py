"""What a literal means depends on who wrote the statement, and on where in it it stands."""

from __future__ import annotations

from random import Random

import pytest

from sinks.ddl.effects import AddColumn, AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.plain_text import TYPED, Dialect
from sinks.types.partitioning import Partitioning
from sinks.types.table_schema import Column, TableSchema

PIECES = (
    "\\",
    "'",
    '"',
    "''",
    "\\'",
    "\\n",
    "\n",
    "\r",
    "\0",
    "\x1a",
    "\t",
    "%",
    "_",
    "\\%",
    "`",
    "ü",
    "😀",
)
PIECES += (",", "(", ")", ";", "/*", "*/", "--", "# ", "a", "Z", "0", " b", "\\\\", "x'41'", "NULL")
MYSQL = {"\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "'": "\\'"}


def restored(text: str) -> str:
    """A string that is no expression, as TiDB's parser writes it back."""
    return "'" + text.replace("'", "''") + "'"


def value(text: str) -> str:
    """An expression's value."""
    return "_UTF8MB4" + restored(text.replace("\\", "\\\\"))


def dumped(text: str) -> str:
    """As MySQL's SHOW CREATE TABLE writes it."""
    escaped = {each: code for each, code in MYSQL.items() if each != "'"}
    return "'" + "".join(escaped.get(each, each) for each in text).replace("'", "''") + "'"


def typed(text: str) -> str:
    return "'" + "".join(MYSQL.get(each, each) for each in text) + "'"


def typed_in_double_quotes(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def strings() -> list[str]:
    random = Random(28)
    return [
        "",
        *PIECES,
        *("".join(random.choices(PIECES, k=random.randrange(1, 9))) for _ in range(400)),
    ]


def added(query: str, dialect: Dialect | None = None) -> Column:
    (effect,) = read_ddl(query, "ALTER", "shop", "t", dialect).effects
    assert isinstance(effect, AlterTable), effect
    (change,) = effect.changes
    assert isinstance(change, AddColumn)
    return change.column


def filled(definition: str, dialect: Dialect | None = None) -> str | None:
    """What old rows show in an added column."""
    (effect,) = read_ddl(
        f"ALTER TABLE `t` ADD COLUMN `c` {definition}", "ALTER", "shop", "t", dialect
    ).effects
    assert isinstance(effect, AlterTable), effect
    schema = TableSchema(
        columns=(Column(name="id", type=added("ALTER TABLE t ADD a INT").type),), key=()
    )
    return evolved(schema, effect.changes).fills.get("c")


def partitioned(clause: str, dialect: Dialect | None = None) -> Partitioning:
    query = f"CREATE TABLE `t` (`a` VARCHAR(9) PRIMARY KEY) {clause}"
    (effect,) = read_ddl(query, "CREATE", "shop", "t", dialect).effects
    assert isinstance(effect, CreateTable), effect
    assert effect.schema.partitioning is not None
    return effect.schema.partitioning


def test_each_string_comes_back_from_each_place_as_tidb_writes_it() -> None:
    for text in strings():
        assert filled(f"VARCHAR(99) DEFAULT {value(text)} COMMENT {value(text)[8:]}") == text
        assert filled(f"VARCHAR(99) DEFAULT {value(text)[8:]}") == text  # no character set
        assert filled(f"BLOB DEFAULT ({value(text)})") == text.encode().decode("latin-1")
        column = added(
            f"ALTER TABLE `t` ADD COLUMN `c` SET({restored(text)},'z') DEFAULT {value('z')}"
        )
        assert column.type.elements == (text.rstrip(" "), "z")
        by = partitioned(
            f"COMMENT = {restored(text)} PARTITION BY LIST COLUMNS (`a`) (PARTITION `p` VALUES IN "
            f"({value(text)}, {value('z')}) COMMENT = {restored(text)},PARTITION `q` DEFAULT)"
        )
        assert by.partitions[0].values == ((text,), ("z",))
        by = partitioned(
            f"PARTITION BY RANGE COLUMNS (`a`) (PARTITION `p` VALUES LESS THAN ({value(text)}))"
        )
        assert by.partitions[0].less_than == (text,)


@pytest.mark.parametrize("write", [dumped, typed, typed_in_double_quotes])
def test_each_string_comes_back_from_each_place_by_mysqls_rules(write) -> None:  # type: ignore[no-untyped-def]
    for text in strings():
        written = write(text)
        assert filled(f"VARCHAR(99) DEFAULT {written} COMMENT {written}", Dialect.WRITTEN) == text
        query = f"ALTER TABLE t ADD c ENUM({written},'z') DEFAULT 'z'"
        assert added(query, Dialect.WRITTEN).type.elements == (text.rstrip(" "), "z")
        assert added(TYPED + query).type.elements == (text.rstrip(" "), "z")
        by = partitioned(
            f"COMMENT={written} PARTITION BY LIST COLUMNS (a) (PARTITION p VALUES IN ({written}))",
            Dialect.WRITTEN,
        )
        assert by.partitions[0].values == ((text,),)


def test_an_element_is_a_default_though_the_two_are_written_in_two_ways() -> None:
    for text in strings():
        if text.strip() and "," not in text:
            kind = f"({restored('other')},{restored(text)}) DEFAULT {value(text)}"
            assert filled("ENUM" + kind) == "2"
            assert filled("SET" + kind) == "2"


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (r"VARCHAR(40) DEFAULT _UTF8MB4'App\\Models\\User'", r"App\Models\User"),
        (r"VARCHAR(40) DEFAULT 'App\Models'", r"App\Models"),  # no version writes it so
        (r"VARCHAR(9) DEFAULT _UTF8MB4'\\n'", r"\n"),
        ("VARCHAR(9) DEFAULT _UTF8'n'", "n"),  # N'n'
        ("VARCHAR(9) DEFAULT _LATIN1'é'", "é"),
        ("VARCHAR(9) DEFAULT _LATIN1 x'e9'", "é"),
        ("VARCHAR(9) DEFAULT x'c3a9'", "é"),
        ("VARCHAR(9) DEFAULT (_GBK'中')", "中"),
        ("VARCHAR(9) DEFAULT b'1000001'", "A"),
        ("BLOB DEFAULT x'00ff5c'", "\x00\xff\\"),
        (r"VARBINARY(9) DEFAULT _BINARY'a\\b'", "a\\b"),
        (r"BIT(16) DEFAULT _UTF8MB4'\\'", "92"),
        (r"ENUM('/','\') DEFAULT _UTF8MB4'\\'", "2"),
        (r"ENUM('\','\\') DEFAULT _UTF8MB4'\\\\'", "2"),
        (r"ENUM('\','\\') DEFAULT 2", "2"),
        (r"SET('a\b','c''d') DEFAULT _UTF8MB4'a\\b,c''d'", "3"),
        (r"JSON DEFAULT (_UTF8MB4'{\"a\": \"\\n\"}')", r'{\"a\": \"\n\"}'),
        ("DOUBLE DEFAULT 1e+03", "1e+03"),
        ("DOUBLE DEFAULT -1.5e-07", "-1.5e-07"),
        ("DECIMAL(9,2) DEFAULT (-1.50)", "-1.50"),
        ("INT DEFAULT TRUE", "1"),
        ("TINYINT(1) DEFAULT FALSE", "0"),
        ("INT DEFAULT NULL", None),
        ("INT DEFAULT x'0a'", "10"),
        ("DATE DEFAULT DATE _UTF8MB4'2020-01-02'", "2020-01-02"),
        ("DATETIME DEFAULT TIMESTAMP '2020-01-02 03:04:05'", "2020-01-02 03:04:05"),
        ("DATETIME DEFAULT (TIMESTAMP'2020-01-02 03:04:05')", "2020-01-02 03:04:05"),
    ],
)  # fmt: skip
def test_a_default_as_tidb_writes_it(definition: str, text: str | None) -> None:
    assert filled(definition) == text


@pytest.mark.parametrize(
    "definition", ["BLOB DEFAULT (_BINARY'\ufffd')", "VARCHAR(9) DEFAULT x'ff'"]
)
def test_bytes_that_are_not_known_are_no_default(definition: str) -> None:
    with pytest.raises(ValueError, match="the values that it gave to old rows are not known"):
        filled(definition)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (r"VARCHAR(9) DEFAULT 'a\\b\%\_\q\''", r"a\b\%\_q'"),
        (r"VARCHAR(9) DEFAULT 'a' 'b\'' ", "ab'"),
        (r"""VARCHAR(9) DEFAULT "it''s \"x\"" """, "it''s \"x\""),
        (r"VARCHAR(9) /*!50000 DEFAULT 'a\'/* b' */", "a'/* b"),
        (r"ENUM('\\','/') DEFAULT '\\'", "1"),
        (r"VARCHAR(9) DEFAULT N'\\' -- '", "\\"),
    ],
)
def test_a_default_by_mysqls_rules(definition: str, text: str) -> None:
    assert filled(definition, Dialect.WRITTEN) == text
