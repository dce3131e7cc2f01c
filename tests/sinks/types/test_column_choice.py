"""Which columns a target has: of its definition, and through DDLs."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.errors import ConfigError
from sinks.ddl.effects import AlterTable
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.types.column_choice import ColumnChoice
from sinks.types.partitioning import Partitioning
from sinks.types.table_schema import TableSchema

MASKS: dict[str, Any] = {"name": "sha256", "mail": "sha256", "phone": "null"}
CHOICE = ColumnChoice(
    takes=lambda name: not name.lower().startswith("x"),
    mask_of=lambda name: MASKS.get(name.lower(), ""),
    is_all=False,
    salt_check="ab12",
)
CREATE = (
    "CREATE TABLE `s`.`t` (`id` INT PRIMARY KEY, `xa` INT, `name` VARCHAR(20), `phone` INT,"
    " `n` INT)"
)


def made(query: str = CREATE) -> TableSchema:
    (effect,) = read_ddl(query, "CREATE", "s", "t").effects
    return CHOICE.chosen(effect.schema)  # type: ignore[union-attr]


def after(clauses: str, schema: TableSchema | None = None) -> SchemaChange:
    (effect,) = read_ddl(f"ALTER TABLE `s`.`t` {clauses}", "ALTER", "s", "t").effects
    assert isinstance(effect, AlterTable), effect
    return evolved(made() if schema is None else schema, effect.changes, CHOICE)


def shown(schema: TableSchema) -> list[str]:
    return [f"{each.name} {each.stored}" for each in schema.delivered]


def test_a_target_has_what_is_selected_and_hashes_as_text() -> None:
    schema = made()
    assert shown(schema) == ["id int", "name char(64)", "phone int", "n int"]
    assert [each.name for each in schema.columns] == ["id", "xa", "name", "phone", "n"]
    again = TableSchema.from_json(schema.to_json())
    assert again == schema
    assert again.mask_check == "ab12"
    assert CHOICE.chosen(schema) == schema
    assert CHOICE.difference(schema) == ""


@pytest.mark.parametrize(
    ("clauses", "columns"),
    [
        ("ADD COLUMN `xb` INT DEFAULT 3", ["id", "name", "phone", "n"]),
        ("ADD COLUMN `b` INT AFTER `xa`", ["id", "b", "name", "phone", "n"]),
        ("DROP COLUMN `xa`", ["id", "name", "phone", "n"]),
        ("DROP COLUMN `n`", ["id", "name", "phone"]),
        ("RENAME COLUMN `xa` TO `xz`", ["id", "name", "phone", "n"]),
        ("MODIFY COLUMN `xa` VARCHAR(9) FIRST", ["id", "name", "phone", "n"]),
        ("RENAME COLUMN `name` TO `mail`", ["id", "mail", "phone", "n"]),
        ("MODIFY COLUMN `name` TEXT", ["id", "name", "phone", "n"]),
        ("MODIFY COLUMN `phone` VARCHAR(30)", ["id", "name", "phone", "n"]),
        ("DROP COLUMN `xa`, ADD COLUMN `xa` TEXT", ["id", "name", "phone", "n"]),
        ("ADD INDEX `i` (`xa`)", ["id", "name", "phone", "n"]),
    ],
)
def test_ddls_of_columns_that_the_target_has_and_has_not(clauses: str, columns: list[str]) -> None:
    change = after(clauses)
    assert [each.name for each in change.after.delivered] == columns
    assert list(change.sources) == columns
    assert change.fills == {}


@pytest.mark.parametrize(
    "clauses",
    [
        *("DROP COLUMN `xq`", "MODIFY COLUMN `xq` INT", "RENAME COLUMN `xq` TO `xr`"),
        *(
            "ADD COLUMN `b` INT AFTER `xq`",
            "ADD INDEX `i` (`xq`)",
            "ALTER COLUMN `xq` SET DEFAULT 1",
        ),
    ],
)
def test_a_left_out_column_need_not_be_known(clauses: str) -> None:
    """Where rows have told the schema, and TiCDC leaves it out of them."""
    names = [each.name for each in after(clauses).after.delivered]
    assert names[:1] + names[-3:] == [
        "id",
        *(["phone", "n", "b"] if "ADD COL" in clauses else names[-3:]),
    ]


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        ("RENAME COLUMN `xa` TO `a`", "it renames column xa to a, of which"),
        ("RENAME COLUMN `n` TO `xn`", "let them say of xn what they say of n, and start again"),
        ("RENAME COLUMN `n` TO `mail`", "it renames column n to mail"),
        ("RENAME COLUMN `name` TO `clear`", "it renames column name to clear"),
        ("MODIFY COLUMN `name` INT", "which is masked with sha256: the hashes of old rows"),
        ("MODIFY COLUMN `name` CHAR(20)", "which is masked with sha256: the hashes of old rows"),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (`id`, `xa`)",
            "leave out column xa, which is of the key",
        ),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (`phone`)",
            "column phone is of the key, and cannot be",
        ),
        ("DROP COLUMN `q`", "the table has no column q"),
        ("RENAME COLUMN `xq` TO `q`", "the table has no column xq"),
        ("CHANGE COLUMN `xq` `q` INT", "the table has no column xq"),
    ],
)
def test_what_would_mix_values_is_held(clauses: str, told: str) -> None:
    with pytest.raises(ValueError, match="column") as refused:
        after(clauses)
    assert told in str(refused.value)


def test_the_default_of_an_added_column_is_masked() -> None:
    change = after("DROP COLUMN `name`, ADD COLUMN `mail` VARCHAR(9) NOT NULL DEFAULT 'x'")
    assert change.fills == {"mail": "x"}
    assert change.after.column("mail").mask == "sha256"


def test_a_key_is_never_left_out() -> None:
    for query, told in (
        ("CREATE TABLE `s`.`t` (`xid` INT PRIMARY KEY, `n` INT)", "leave out column xid"),
        ("CREATE TABLE `s`.`t` (`phone` INT PRIMARY KEY)", "mask it with sha256"),
        ("CREATE TABLE `s`.`t` (`xa` INT)", "every column"),
    ):
        with pytest.raises(ConfigError, match=told):
            made(query)
    assert shown(made("CREATE TABLE `s`.`t` (`name` INT PRIMARY KEY)")) == ["name char(64)"]
    schema = made("CREATE TABLE `s`.`t` (`a` INT, `xa` INT)")
    with pytest.raises(ConfigError, match="all columns tell its rows apart"):
        CHOICE.refuse_by_all_columns(schema)


def test_other_rules_than_those_that_made_the_table_are_told() -> None:
    schema = made()
    every = ColumnChoice(is_all=False, salt_check="ab12")
    assert every.difference(schema) == "it lacks column xa, and sink.column-selectors select it"
    masked = ColumnChoice(takes=CHOICE.takes, is_all=False)
    assert "its column name is sha256, and by sink.column-masks it would be as it is" in (
        masked.difference(schema)
    )
    salted = ColumnChoice(CHOICE.takes, CHOICE.mask_of, is_all=False, salt_check="cd34")
    assert salted.difference(schema) == "its hashes are of another sink.mask-salt"
    assert "has column n" in ColumnChoice(lambda name: name != "n", is_all=False).difference(
        ColumnChoice().chosen(TableSchema(columns=schema.columns[-1:], key=()))
    )


def test_rows_of_partitions_are_not_found_by_hashes() -> None:
    query = (
        "CREATE TABLE `s`.`t` (`name` INT PRIMARY KEY) PARTITION BY RANGE (`name`) "
        "(PARTITION `p0` VALUES LESS THAN (10))"
    )
    (effect,) = read_ddl(query, "CREATE", "s", "t").effects
    schema = effect.schema  # type: ignore[union-attr]
    assert isinstance(schema.partitioning, Partitioning)
    assert CHOICE.chosen(schema).partitioning is None
