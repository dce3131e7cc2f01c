"""Which columns the rows of a schema file's version have, and in which order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conf.load import load_settings
from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from streaming.changefeed.schema_file import told_columns
from streaming.protocols.csv.table_head import TableHead
from streaming.source.storage.schema_files import SchemaText
from streaming.source.storage.table_heads import NOTHING_TOLD, TableHeads, ToldColumns

NAME = TableName("d", "t")
ID, A, B = ("id", "int"), ("a", "varchar(20)"), ("b", "varchar(20)")
V = ("v", "int")
PLAIN = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20),`b` VARCHAR(20)"
VIRTUAL = "`v` INT GENERATED ALWAYS AS (`id` + 1) VIRTUAL"


def of(version: int, query: str, *columns: tuple[str, str], name: TableName = NAME) -> SchemaText:
    return SchemaText(
        name=name,
        version=version,
        query=query,
        kind=3,
        columns=columns,
        key=("id",),
        checksum=0,
    )


def head(
    *texts: SchemaText, told: ToldColumns = NOTHING_TOLD, csv: CsvFormat | None = None
) -> TableHead:
    """Of the last one."""
    heads = TableHeads(
        csv or CsvFormat(), lambda name: [each for each in texts if each.name == name], told
    )
    return heads.of(texts[-1])


def names(found: TableHead) -> str:
    return " ".join(name for name, _ in found.columns)


def test_the_order_and_the_types_are_the_schema_files() -> None:
    """TiCDC's event filter may have ignored a DDL: it writes no file of it, and the next one shows
    what it did."""
    wide = ("b", "varchar(30)")
    found = head(of(1, f"{PLAIN})", ID, A, B), of(3, "", ID, wide, A))
    assert found.columns == (ID, wide, A)
    found = head(
        of(1, f"{PLAIN},{VIRTUAL})", ID, A, B, V),
        of(3, "ALTER TABLE `t` DROP COLUMN `b`", V, ID, A, ("unseen", "int")),
    )
    assert names(found) == "id a unseen"


def test_files_in_the_order_of_ids_are_known_by_a_ddl_that_puts_a_column_elsewhere() -> None:
    """As the recorded folders have them. Then the DDLs tell the order of rows."""
    c = ("c", "int")
    made, put = of(1, f"{PLAIN})", ID, A, B), "ALTER TABLE `t` ADD COLUMN `c` INT AFTER `id`"
    assert names(head(made, of(2, put, ID, A, B, c))) == "id c a b"
    assert names(head(made, of(2, put, ID, c, A, B))) == "id c a b"
    later = of(3, "ALTER TABLE `t` RENAME COLUMN `c` TO `d`", ID, A, B, ("d", "int"))
    assert names(head(made, of(2, put, ID, A, B, c), later)) == "id d a b"
    wide = of(3, "ALTER TABLE `t` MODIFY COLUMN `a` BIGINT", ID, B, c, ("a", "bigint"))
    assert names(head(made, of(2, put, ID, A, B, c), wide)) == "id c a b"  # `a` has another ID
    again = of(4, "", ID, A, B, c, name=TableName("d", "u"))
    renamed = of(3, "RENAME TABLE `d`.`t` TO `d`.`u`", ID, A, B, c, name=TableName("d", "u"))
    assert names(head(made, of(2, put, ID, A, B, c), renamed, again)) == "id c a b"
    back = of(3, "", ID, A, B, c)  # TiCDC has ignored a DDL that moved `c` to the end
    assert names(head(made, of(2, put, ID, c, A, B), back)) == "id a b c"


def test_what_looks_like_the_order_of_ids_may_be_a_ddl_that_ticdc_has_ignored() -> None:
    """Here one that moved `c` to the end. Nothing but a file's own DDL tells its order."""
    c, e = ("c", "int"), ("e", "int")
    made = of(1, f"{PLAIN})", ID, A, B)
    put = of(2, "ALTER TABLE `t` ADD COLUMN `c` INT AFTER `id`", ID, c, A, B)

    def then(query: str, *columns: tuple[str, str]) -> str:
        return names(head(made, put, of(4, f"ALTER TABLE `t` {query}", *columns)))

    assert then("ADD COLUMN `e` INT", ID, A, B, c, e) == "id a b c e"
    assert then("ADD COLUMN `e` INT AFTER `c`", ID, A, B, c, e) == "id a b c e"
    assert then("ADD INDEX (`a`)", ID, A, B, c) == "id a b c"
    wide = ("a", "varchar(30)")
    assert then("MODIFY COLUMN `a` VARCHAR(30)", ID, wide, B, c) == "id a b c"
    # the same order of IDs, in a folder whose next file has that
    assert then("ADD COLUMN `e` INT AFTER `id`", ID, A, B, c, e) == "id e c a b"


def test_several_columns_that_one_ddl_adds_tell_the_order_too() -> None:
    c, e = ("c", "int"), ("e", "int")
    made = of(1, f"{PLAIN})", ID, A, B)
    two = "ALTER TABLE `t` ADD COLUMN `c` INT FIRST, ADD COLUMN `e` INT AFTER `c`"
    drop = of(3, "ALTER TABLE `t` DROP COLUMN `b`", ID, A, c, e)
    assert names(head(made, of(2, two, ID, A, B, c, e), drop)) == "c e id a"
    assert names(head(made, of(2, two, c, e, ID, A, B), drop)) == "id a c e"


@pytest.mark.parametrize(
    ("query", "columns", "wanted"),
    [
        ("ADD COLUMN `w` INT AS (`id`) VIRTUAL FIRST", (("w", "int"), ID, A, V), "id a"),
        ("ADD COLUMN `w` INT AS (`id`) STORED", (ID, A, V, ("w", "int")), "id a w"),
        ("RENAME COLUMN `v` TO `a`, RENAME COLUMN `a` TO `v`", (ID, ("v", "int"), ("a", "int")),
         "id v"),
        ("CHANGE COLUMN `v` `x` INT AS (`id` + 2) VIRTUAL", (ID, A, ("x", "int")), "id a"),
        ("DROP COLUMN `v`, ADD COLUMN `v2` INT", (ID, A, ("v2", "int")), "id a v2"),
    ],
)  # fmt: skip
def test_ddls_tell_which_columns_are_virtual(
    query: str, columns: tuple[tuple[str, str], ...], wanted: str
) -> None:
    made = f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` VARCHAR(20),{VIRTUAL})"
    found = head(of(1, made, ID, A, V), of(2, f"ALTER TABLE `t` {query}", *columns))
    assert names(found) == wanted
    without = of(1, "", ID, A, V)  # the table was there before the changefeed
    told = settings_of(f"USE d; {made};")
    later = of(2, f"ALTER TABLE `t` {query}", *columns)
    assert names(head(without, later, told=told)) == wanted


def test_the_users_schema_file_tells_of_a_table_that_was_there_before() -> None:
    columns = (ID, A, B, V)
    assert names(head(of(1, "", *columns))) == "id a b v"
    told = settings_of(f"CREATE DATABASE d; USE d; {PLAIN},{VIRTUAL});")
    assert names(head(of(1, "", *columns), told=told)) == "id a b"
    renamed = TableName("d", "u")
    texts = (
        of(1, "", *columns),
        of(2, "RENAME TABLE `d`.`t` TO `d`.`u`", *columns, name=renamed),
    )
    assert names(head(*texts, told=told)) == "id a b"


SELECTOR = """
[[sink.column-selectors]]
matcher = ["d.*"]
columns = ["*", "!b"]
"""


def test_rows_may_lack_what_a_column_selector_leaves_out() -> None:
    """Whether TiCDC has it too, or this changefeed alone, tells the number of their fields."""
    found = head(of(1, f"{PLAIN})", ID, A, B), told=settings_of("", SELECTOR))
    assert [names(each) for each in (found, *found.others)] == ["id a b", "id a"]
    assert [each.fields for each in (found, *found.others)] == [7, 6]
    assert not head(
        of(1, f"{PLAIN})", ID, A, B), told=settings_of("", SELECTOR.replace("d.*", "x.*"))
    ).others


def test_the_handle_key_may_be_there_or_not() -> None:
    """TiCDC after 8.5 takes the option and writes no such column."""
    csv = CsvFormat(has_handle_key=True)
    found = head(of(1, f"{PLAIN})", ID, A, B), csv=csv)
    assert [each.fields for each in (found, *found.others)] == [8, 7]
    assert [each.csv.has_handle_key for each in (found, *found.others)] == [True, False]
    both = head(of(1, f"{PLAIN})", ID, A, B), csv=csv, told=settings_of("", SELECTOR))
    assert [each.fields for each in (both, *both.others)] == [8, 6]  # 7 would mean two things


def settings_of(schema: str, config: str = "") -> ToldColumns:
    """What the user's files tell."""
    with TemporaryDirectory() as folder:
        files = Path(folder) / "changefeed.toml", Path(folder) / "schema.sql"
        for file, text in zip(files, (config, schema), strict=True):
            file.write_text(text)
        given = {
            "source-uri": "s3://b/shop?protocol=csv&include-commit-ts=true",
            "sink-uri": "delta:///lake",
            "schema-file": str(files[1]) if schema else None,
        }
        return told_columns(
            load_settings(config=files[0], environment={}, arguments=given).changefeed
        )
