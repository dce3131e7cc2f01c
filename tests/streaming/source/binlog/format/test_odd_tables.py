"""What real servers write for odd tables and settings: what is read, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordination.model import TableName
from streaming.protocols.contract import DATA, Kind, key_names, wire_types
from streaming.source.binlog.format.faults import Refused
from tests.services.database_editions import (
    EDITIONS,
    MARIADB_10_11,
    MARIADB_11_8,
)
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog.binlogs import blocks_of, on, recorded, table_of, written

pytestmark = pytest.mark.mariadb

MARIADBS = (MARIADB_10_11, MARIADB_11_8)


def rows_of(server: DatabaseServer, created: str, *statements: str) -> tuple[list[Any], Any]:
    """The new rows of d.t, and the schema of its block."""
    server.execute("SET sql_mode = ''", created)
    table = table_of(written(server, "SET sql_mode = ''", *statements), "d.t")
    return table[DATA].to_pylist(), table.schema


@on(*EDITIONS)
def test_generated_and_invisible_columns_are_columns(server: DatabaseServer):
    created = """CREATE TABLE d.t (id INT PRIMARY KEY, g INT AS (id + 1) STORED,
        v INT AS (id + 2) VIRTUAL, i INT INVISIBLE DEFAULT 9)"""
    rows, schema = rows_of(server, created, "INSERT INTO d.t (id) VALUES (1)")
    assert rows == [{"id": 1, "g": 2, "v": 3, "i": 9}]
    assert key_names(schema) == ("id",)


@on(MARIADB_10_11)
def test_the_hidden_column_of_a_unique_text_is_no_column(server: DatabaseServer):
    created = "CREATE TABLE d.t (id INT PRIMARY KEY, b TEXT, c BLOB, UNIQUE KEY (b), UNIQUE (c))"
    insert = "INSERT INTO d.t VALUES (1, 'x', 'y'), (2, NULL, NULL)"
    rows, schema = rows_of(server, created, insert, "UPDATE d.t SET b = 'z' WHERE id = 1")
    first = {"id": 1, "b": "x", "c": b"y"}
    assert rows == [first, {"id": 2, "b": None, "c": None}, {**first, "b": "z"}]
    assert [*wire_types(schema)] == ["id", "b", "c"]


@on(*EDITIONS)
def test_a_column_that_only_has_such_a_name_is_one(server: DatabaseServer):
    of_users = "DB_ROW_HASH_1 BIGINT UNSIGNED"
    created = f"CREATE TABLE d.t (id INT PRIMARY KEY, {of_users}, v INT)"
    rows, _ = rows_of(server, created, "INSERT INTO d.t VALUES (1, 2, 3)")
    assert rows == [{"id": 1, "DB_ROW_HASH_1": 2, "v": 3}]


@on(*EDITIONS)
@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("n VARCHAR(99), m INT, PRIMARY KEY (m, n(10))", ("m", "n")),
        ("n INT NOT NULL UNIQUE, m INT", ("n",)),  # the servers tell such a key, too
        ("n INT UNIQUE, m INT", None),
    ],
)
def test_the_key_that_a_table_has(
    server: DatabaseServer, columns: str, key: tuple[str, ...] | None
):
    _, schema = rows_of(server, f"CREATE TABLE d.t ({columns})", "INSERT INTO d.t VALUES (1, 2)")
    assert key_names(schema) == key


@on(*EDITIONS)
def test_a_table_of_300_columns(server: DatabaseServer):
    """Their count takes three bytes in a row event."""
    columns = ", ".join(f"c{n} {'INT' if n % 3 else 'VARCHAR(9)'}" for n in range(300))
    values = ", ".join("NULL" if n % 7 == 0 else str(n) for n in range(300))
    statements = (f"INSERT INTO d.t VALUES ({values})", "UPDATE d.t SET c299 = 'x', c1 = 5")
    rows, _ = rows_of(server, f"CREATE TABLE d.t ({columns})", *statements)
    assert [row["c298"] for row in rows] == [298, 298]
    assert rows[1]["c1"] == 5
    expected = {f"c{n}": None if n % 7 == 0 else n if n % 3 else str(n) for n in range(300)}
    assert rows[0] == expected


@on(*MARIADBS)
def test_compressed_columns(server: DatabaseServer):
    created = """CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(300) COMPRESSED, b BLOB COMPRESSED,
        c TEXT COMPRESSED CHARACTER SET latin1, x INT) CHARACTER SET utf8mb4"""
    first = "1, REPEAT('ä', 300), REPEAT('x', 1000), REPEAT('ü', 500), 7"
    others = "(2, '', '', '', 8), (3, 'a', 'b', 'c', 9), (4, NULL, NULL, NULL, 10)"
    statement = f"INSERT INTO d.t VALUES ({first}), {others}"
    for wrap in ("ON", "OFF"):
        server.execute("DROP TABLE IF EXISTS d.t")
        settings = f"SET column_compression_zlib_wrap = {wrap}"
        rows, schema = rows_of(server, created, settings, statement)
        assert rows == [
            {"id": 1, "a": "ä" * 300, "b": b"x" * 1000, "c": "ü" * 500, "x": 7},
            {"id": 2, "a": "", "b": b"", "c": "", "x": 8},
            {"id": 3, "a": "a", "b": b"b", "c": "c", "x": 9},
            {"id": 4, "a": None, "b": None, "c": None, "x": 10},
        ]
        types = {"id": "int", "a": "varchar(300)", "b": "blob", "c": "text", "x": "int"}
        assert wire_types(schema) == types


@on(*MARIADBS)
def test_types_of_mariadb_come_as_the_bytes_that_they_are(server: DatabaseServer):
    """The binlog does not tell an INET6 or a UUID from a BINARY."""
    created = "CREATE TABLE d.t (id INT PRIMARY KEY, a INET6, b UUID, c JSON)"
    uuid = "123e4567-e89b-12d3-a456-426655440000"
    rows, schema = rows_of(server, created, f"INSERT INTO d.t VALUES (1, '::1', '{uuid}', '[1,2]')")
    (row,) = rows
    assert row == {
        "id": 1,
        "a": b"\0" * 15 + b"\1",
        "b": bytes.fromhex(uuid.replace("-", "")),
        "c": "[1,2]",
    }
    assert wire_types(schema) == {
        "id": "int",
        "a": "binary(16)",
        "b": "binary(16)",
        "c": "longtext",
    }


@on(*EDITIONS)
def test_without_names_the_table_is_refused(server: DatabaseServer):
    default = "MINIMAL" if not server.edition.is_mariadb else "NO_LOG"
    server.execute(f"SET GLOBAL binlog_row_metadata = '{default}'", "CREATE TABLE d.t (id INT)")
    try:
        binlog = written(server, "INSERT INTO d.t VALUES (1)")
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    with pytest.raises(
        Refused, match=r"does not name the columns of d.t: SET GLOBAL binlog_row_metadata"
    ):
        blocks_of(binlog, "d.t")
    (block,) = blocks_of(binlog, "d.other")
    assert (block.kind, block.name, block.rows) == (Kind.ROW, TableName("d", "t"), 1)


def test_changes_of_json_alone_are_letters(mysql: DatabaseServer):
    with mysql.database("d"):
        mysql.execute("CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)")
        binlog = written(
            mysql,
            "SET binlog_row_value_options = 'PARTIAL_JSON'",
            """INSERT INTO d.t VALUES (1, '{"a": 1, "b": "bbbbbbbbbbbbbbbbbbbbbbbbbbbb"}')""",
            "UPDATE d.t SET j = JSON_SET(j, '$.a', 2)",
        )
    first, bad = blocks_of(binlog, "d.t")
    assert (first.rows, bad.kind, bad.rows, bad.has_only_rows) == (1, Kind.BAD, 1, True)
    (told,) = bad.table().to_pylist()
    assert told["error_class"] == "unreadable"
    assert "binlog_row_value_options = ''" in told["error_message"]
    assert len(blocks_of(binlog)) == 1


def test_rows_with_old_formats_of_moments_are_letters(mariadb: DatabaseServer):
    with mariadb.database("d"):
        try:
            mariadb.execute(
                "SET GLOBAL mysql56_temporal_format = 0",
                "CREATE TABLE d.t (id INT PRIMARY KEY, at_ DATETIME(3))",
            )
        finally:
            mariadb.execute("SET GLOBAL mysql56_temporal_format = 1")
        other = "CREATE TABLE d.o (id INT PRIMARY KEY)", "INSERT INTO d.o VALUES (1)"
        insert = "INSERT INTO d.t VALUES (1, '2024-01-01 00:00:00.123')"
        binlog = written(mariadb, insert, *other)
    bad, rows = blocks_of(binlog, "d.t", "d.o")
    (told,) = bad.table().to_pylist()
    assert told["error_message"].startswith(
        "table d.t: column at_ has the DATETIME format from before"
    )
    assert (bad.name.table, rows.name.table, rows.rows) == ("t", "o", 1)


def test_types_of_mysql(mysql: DatabaseServer):
    """A column that an index needs and that nobody made is no column; a key that nobody made is."""
    with mysql.database("d"):
        created = """CREATE TABLE d.t (id INT PRIMARY KEY, v VECTOR(3), f INT, j JSON,
            KEY ((f + 1)), KEY ((CAST(j->'$.a' AS UNSIGNED ARRAY))))"""
        values = "1, STRING_TO_VECTOR('[1,2.5,0.1]'), 4, '{\"a\": [1]}'"
        statement = f"INSERT INTO d.t VALUES ({values})"
        rows, schema = rows_of(mysql, created, statement)
        assert rows == [{"id": 1, "v": "[1.0, 2.5, 0.1]", "f": 4, "j": '{"a": [1]}'}]
        assert wire_types(schema)["v"] == "vector(3)"
        mysql.execute("SET sql_generate_invisible_primary_key = 1", "CREATE TABLE d.g (a INT)")
        table = table_of(written(mysql, "INSERT INTO d.g VALUES (7)"), "d.g")
        assert table[DATA].to_pylist() == [{"my_row_id": 1, "a": 7}]
        assert key_names(table.schema) == ("my_row_id",)


def test_which_columns_of_mysql_have_a_character_set(mysql: DatabaseServer):
    """VECTOR counts among them; JSON and GEOMETRY do not."""
    columns = {
        "v": "vector(3)",
        "a": "varchar(5)",
        "j": "json",
        "g": "geometry",
        "b": "blob",
        "w": "vector(2)",
        "c": "text",
        "d": "varbinary(4)",
        "e": "char(3)",
    }
    sets = {"a": "latin1", "c": "utf8mb4", "e": "gbk"}
    defined = [
        f"{name} {kind}" + (f" CHARACTER SET {sets[name]}" if name in sets else "")
        for name, kind in columns.items()
    ]
    with mysql.database("d"), mysql.connect(charset="utf8mb4") as one, recorded(mysql) as found:
        one.cursor().execute(f"CREATE TABLE d.t ({', '.join(defined)})")
        one.cursor().execute(
            """INSERT INTO d.t VALUES (STRING_TO_VECTOR('[1,2,3]'), 'é', '1', POINT(1, 2), x'ff',
            STRING_TO_VECTOR('[1,2]'), 'ß', x'fe', '中')"""
        )
    table = table_of(found[0], "d.t")
    assert wire_types(table.schema) == columns
    (row,) = table[DATA].to_pylist()
    assert (row["a"], row["b"], row["c"], row["d"], row["e"]) == ("é", b"\xff", "ß", b"\xfe", "中")
    assert (row["v"], row["w"], row["j"]) == ("[1.0, 2.0, 3.0]", "[1.0, 2.0]", "1")


@on(*EDITIONS)
def test_a_character_set_that_is_not_known_is_an_error_of_the_rows(server: DatabaseServer):
    server.execute("CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(9) CHARACTER SET armscii8)")
    binlog = written(server, "INSERT INTO d.t VALUES (1, 'a'), (2, NULL)")
    known = {number: each for number, each in binlog.charsets.items() if number != 32}
    table = table_of(replace(binlog, charsets=known), "d.t")  # of a later server, say
    first, second = table.to_pylist()
    assert first["error_class"] == "bad-cell"
    assert "collation with ID 32" in first["error_message"]
    assert (first["data"]["a"], second["error_class"]) == (None, None)


@on(*MARIADBS)
def test_the_steps_of_a_sequence_are_no_rows(server: DatabaseServer):
    made = "CREATE SEQUENCE d.s", "DO NEXTVAL(d.s)", "CREATE TABLE d.t (id INT PRIMARY KEY)"
    binlog = written(server, *made, "INSERT INTO d.t VALUES (NEXTVAL(d.s))")
    assert {(block.kind, block.name) for block in blocks_of(binlog)} == {
        (Kind.ROW, TableName("d", "t"))
    }


@on(*EDITIONS)
def test_a_partitioned_table(server: DatabaseServer):
    """MySQL writes an event for each partition, which names it."""
    created = """CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id)
        (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (100))"""
    rows, schema = rows_of(
        server,
        created,
        "INSERT INTO d.t VALUES (1, 'a'), (50, 'b'), (2, 'c')",
        "UPDATE d.t SET id = id + 9 WHERE id = 1",  # into the other partition
        "REPLACE INTO d.t VALUES (2, 'd')",
        "DELETE FROM d.t WHERE id = 50",
    )
    told = [(row["id"], row["v"]) for row in rows]
    assert told == [(1, "a"), (50, "b"), (2, "c"), (10, "a"), (2, "d"), (50, "b")]
    assert key_names(schema) == ("id",)


@on(*EDITIONS)
def test_what_foreign_keys_change_is_not_in_the_binlog_of_every_server(server: DatabaseServer):
    """MySQL writes it from 9.6 on. MariaDB's InnoDB changes the rows by itself: they are in no
    binlog, so a table with such a key cannot be followed there."""
    rule = "FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE"
    server.execute(
        "CREATE TABLE d.p (id INT PRIMARY KEY)",
        f"CREATE TABLE d.t (id INT PRIMARY KEY, p INT, {rule})",
        "INSERT INTO d.p VALUES (1), (2)",
        "INSERT INTO d.t VALUES (10, 1), (20, 2)",
    )
    blocks = blocks_of(written(server, "DELETE FROM d.p WHERE id = 1"))
    assert server.query("SELECT id FROM d.t") == [(20,)]
    told = {block.name.table for block in blocks}
    assert told == ({"p"} if server.edition.is_mariadb else {"p", "t"})


@on(*MARIADBS)
def test_a_table_with_system_versioning(server: DatabaseServer):
    """Its past rows are rows of it, told apart by ``row_end``, which is part of the key."""
    created = "CREATE TABLE d.t (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING"
    statements = ("INSERT INTO d.t VALUES (1, 1)", "UPDATE d.t SET v = 2", "DELETE FROM d.t")
    rows, schema = rows_of(server, created, *statements)
    assert key_names(schema) == ("id", "row_end")
    inserted, updated, past, deleted = rows
    assert (inserted["v"], updated["v"], past["v"], deleted["v"]) == (1, 2, 1, 2)
    assert inserted["row_end"] == updated["row_end"] > past["row_end"]
    assert deleted["row_end"] < inserted["row_end"]
