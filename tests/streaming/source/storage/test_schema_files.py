"""What schema files tell: their checksum as Go spells it, and the columns of csv's rows."""

from __future__ import annotations

import zlib

import pytest

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from streaming.source.storage.layout import SchemaFile
from streaming.source.storage.schema_files import SchemaText, mysql_type
from streaming.source.storage.slices_task import Damaged, checked
from streaming.source.storage.table_heads import TableHeads

VERSION = 470_000_000_000_000_001
NAME = TableName("shop", "t")


def text(default: str, *, version: str) -> bytes:
    """``default``: as it stands between quotes; ``version``: the lines that tell it."""
    return (
        f"""{{
    "Table": "t",
    "Schema": "shop",
    {version},
    "TableColumns": [
        {{
            "ColumnName": "f",
            "ColumnType": "BIT",
            "ColumnDefault": "{default}",
            "ColumnPrecision": "8"
        }}
    ],
    "TableColumnsTotal": 1
}}"""
    ).encode()


@pytest.mark.parametrize(
    "default",
    [
        "a",
        "\\u0001",
        "\\u003c",
        "\x7f",
        "\\ufffd",  # a byte that is no UTF-8
        "\ufffd",  # the character itself
        "\ufffd\\ufffd",
        "\\\\ufffd",  # a backslash, and five letters
        "\\u0008\\u000c",  # Go before 1.22
        "\\b\\f",
        "\\\\u0008\\u0008\\b",
    ],
)
def test_a_checksum_is_of_the_spelling_of_go(default: str) -> None:
    told = f'"Version": 1,\n    "TableVersion": {VERSION},\n    "Query": "",\n    "Type": 0'
    checksum = zlib.crc32(text(default, version='"Version": 0'))
    file = SchemaFile(f"{NAME.schema}/{NAME.table}", VERSION, checksum)
    assert checked(file, "a path", text(default, version=told)).columns == (("f", "bit(8)"),)
    with pytest.raises(Damaged, match="does not say what its name does"):
        checked(file, "a path", text(f"{default}.", version=told))


def test_the_hidden_column_of_an_expression_index_is_in_no_row() -> None:
    """TiDB makes it for the index; it is virtual, and TiCDC's schema file names it."""
    query = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(20),`w` INT AS (`id` + 1)"
    told = SchemaText(
        name=NAME,
        version=VERSION,
        query=f"{query}, INDEX `i` ((LOWER(`v`))))",
        kind=3,
        columns=(("id", "int"), ("v", "varchar(20)"), ("w", "int"), ("_V$_i_0", "varchar(20)")),
        key=("id",),
        checksum=0,
    )
    head = TableHeads(CsvFormat(), lambda _: [told]).of(told)
    assert [name for name, _ in head.columns] == ["id", "v"]


def test_names_that_are_not_told_are_texts_until_a_ddl_tells_them():
    column = {"ColumnName": "e", "ColumnType": "ENUM"}
    assert mysql_type(column) == "longtext"
    assert mysql_type({**column, "ColumnElems": ["a", "it's"]}) == "enum('a','it''s')"
