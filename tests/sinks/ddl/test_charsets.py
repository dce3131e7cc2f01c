"""CONVERT TO CHARACTER SET of a MySQL or MariaDB."""

from __future__ import annotations

import pytest

from sinks.ddl.effects import AlterTable, CreateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.schema_change import SchemaChange
from sinks.ddl.statements import read_ddl
from sinks.ddl.text.logged import Session
from sinks.types.mysql_type import TEXT_TYPES
from sinks.types.server_rules.session import ServerSession
from sinks.types.table_schema import TableSchema

MYSQL = ServerSession(is_mariadb=False)


def made(body: str, told: Session | None = None, options: str = "") -> TableSchema:
    text = f"CREATE TABLE t ({body}) {options}"
    text = told.logged(text) if told else text
    (effect,) = read_ddl(text, "CREATE", "shop", "t").effects
    assert isinstance(effect, CreateTable), effect
    return effect.schema


def altered(schema: TableSchema, specification: str, told: Session | None = None) -> SchemaChange:
    text = f"ALTER TABLE t {specification}"
    text = told.logged(text) if told else text
    (effect,) = read_ddl(text, "ALTER", "shop", "t").effects
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


@pytest.mark.parametrize("told", [Session(), Session(is_mariadb=True), None])
def test_a_type_or_a_word_names_a_set_in_a_table_of_bytes(told: Session | None) -> None:
    """NCHAR is of utf8mb3 but in TiDB, which takes the table's; MariaDB's JSON of utf8mb4."""
    body = (
        "a INT, b NCHAR(5), c NATIONAL VARCHAR(5), d TEXT ASCII, e TEXT UNICODE, f TEXT BYTE, "
        "g VARCHAR(5) COLLATE latin1_bin, h TEXT, i JSON"
    )
    sets = {"b": "utf8mb3", "c": "utf8mb3", "d": "latin1", "e": "ucs2", "g": "latin1"}
    names = ("binary", "varbinary") if told is None else ("char", "varchar")
    names += ("text", "text", "blob", "varchar", "blob")
    names += ("longtext" if told and told.is_mariadb else "json",)
    types = dict(zip("bcdefghi", names, strict=True))
    if told and told.is_mariadb:
        sets["i"] = "utf8mb4"
    added = ", ".join(f"ADD COLUMN {each}" for each in body.split(", ")[1:])
    empty = made("a INT", told, "CHARACTER SET binary")
    for schema in (made(body, told, "CHARACTER SET binary"), altered(empty, added, told).after):
        assert {column.name: column.type.name for column in schema.columns[1:]} == types
        texts = [column for column in schema.columns if column.type.name in (*TEXT_TYPES, "json")]
        assert {column.name: column.charset for column in texts if column.charset} == {
            name: each for name, each in sets.items() if "binary" not in types[name]
        }


def test_a_set_that_a_statement_names_is_that_of_its_own_columns() -> None:
    """Wherever it stands; TiDB takes one change after the other."""
    for was, now, expected in (("binary", "latin1", "text"), ("latin1", "binary", "blob")):
        schema = made("a INT", Session(), f"CHARACTER SET {was}")
        for changes in (
            f"ADD COLUMN b TEXT, DEFAULT CHARACTER SET {now}",
            f"DEFAULT CHARACTER SET {now}, ADD COLUMN b TEXT",
        ):
            after = altered(schema, changes, Session()).after
            assert after.column("b").type.name == expected
            later = altered(after, "ADD COLUMN c TEXT", Session()).after
            assert later.column("c").type.name == expected
        of_tidb = altered(schema, f"ADD COLUMN b TEXT, DEFAULT CHARACTER SET {now}").after
        assert of_tidb.column("b").type.name != expected
