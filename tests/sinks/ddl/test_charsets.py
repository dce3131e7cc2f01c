"""CONVERT TO CHARACTER SET of a MySQL or MariaDB."""

from __future__ import annotations

import pytest

from sinks.ddl.effects import AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import TableSchema

MYSQL = ServerSession(is_mariadb=False)


def made(body: str) -> TableSchema:
    (effect,) = read_ddl(f"CREATE TABLE t ({body})", "CREATE", "shop", "t").effects
    assert isinstance(effect, CreateTable), effect
    return effect.schema


def altered(schema: TableSchema, specification: str) -> SchemaChange:
    (effect,) = read_ddl(f"ALTER TABLE t {specification}", "ALTER", "shop", "t").effects
    assert isinstance(effect, AlterTable), effect
    return evolved(schema, effect.changes, session=MYSQL)


def test_a_column_that_is_converted_to_another_set_than_its_own_is_refused() -> None:
    """MySQL read the bytes of the first in ucs2, though it is to have utf8mb4."""
    schema = made("a INT, b VARBINARY(9), c TEXT")
    for column in ("b", "c"):
        text = f"CONVERT TO CHARACTER SET ucs2, MODIFY {column} TEXT CHARACTER SET utf8mb4"
        with pytest.raises(ValueError, match=f"column {column} is to have another"):
            altered(schema, text)
    same = "MODIFY c TEXT CHARACTER SET utf8mb4, CONVERT TO CHARACTER SET utf8mb4"
    assert altered(schema, same).after.column("c").charset == "utf8mb4"


def test_names_under_a_binary_character_set_are_bytes_for_the_server() -> None:
    """It stays an ENUM, which comes to another set as its bytes are read there."""
    schema = made("a INT, b VARCHAR(9), c TEXT, e ENUM('x')")
    after = altered(schema, "CONVERT TO CHARACTER SET BINARY").after
    assert [column.charset for column in after.columns] == ["", "", "", "binary"]
