"""Whatever a server sets for every session, the account that the docs ask for sees all of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pymysql.constants import COMMAND

from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.second_editions import MARIADB_FIRST

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

OF_ALL = (
    "sql_select_limit = 2",
    "sql_safe_updates = 1",
    "sql_auto_is_null = 1",
    "sql_big_selects = 0",
    "max_join_size = 1",
    "completion_type = 'CHAIN'",
    "autocommit = 0",
    "time_zone = '-07:00'",
    "init_connect = 'SET NAMES latin1, sql_quote_show_create = 0'",
)
OF = {
    MARIADB_10_11.name: (
        "sql_mode = 'ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
        "idle_transaction_timeout = 1",
        "tx_isolation = 'READ-UNCOMMITTED'",
    ),
    MYSQL_9_7.name: (
        "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION'",
        "max_execution_time = 1",
        "transaction_isolation = 'READ-UNCOMMITTED'",
        "show_create_table_verbosity = 1",
        "print_identified_with_as_hex = 1",
    ),
}
TABLES = [f"t{number}" for number in range(5)]


def send(server: DatabaseServer, statement: bytes) -> None:
    """A statement that need not be written in the character set of its session, UTF-8."""
    with server.connect() as link:
        link._execute_command(COMMAND.COM_QUERY, statement)  # type: ignore[attr-defined]
        link._read_query_result()  # type: ignore[attr-defined]


@pytest.mark.parametrize("edition", MARIADB_FIRST, ids=lambda edition: edition.name)
def test_each_table_is_copied_and_followed(tmp_path: Path, edition: Edition) -> None:
    with DatabaseServer(edition) as server:
        server.execute(
            "CREATE DATABASE shop",
            *(
                f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, c CHAR(9), t TIMESTAMP NULL, "
                "`say \"it\"` VARCHAR(20) DEFAULT 'a\\\\b', d DECIMAL(9, 2), e ENUM('é', 'b'))"
                for name in TABLES
            ),
        )
        rows = [(id_, "x", "2026-01-02 03:04:05", "ü\\", "1.50", "é") for id_ in range(6)]
        with (
            server.connect(init_command="SET time_zone = '+00:00'") as link,
            link.cursor() as cursor,
        ):
            for name in TABLES:
                insert = f"INSERT INTO shop.{name} VALUES (%s, %s, %s, %s, %s, %s)"
                cursor.executemany(insert, rows)
        rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
        server.execute("CREATE USER tidelake", f"GRANT {rights} ON *.* TO tidelake")
        kind = MYSQL_9_7 if edition is MYSQL_9_7 else MARIADB_10_11
        server.execute(*(f"SET GLOBAL {each}" for each in (*OF_ALL, *OF[kind.name])))
        with BinlogStage(server, tmp_path, mode="all") as stage:
            life = stage.start("followed", user="tidelake", parameters="&chunk-rows=2")
            life.await_line("copied and loaded")
            send(server, b"GRANT SELECT ON *.* TO tidelake /* caf\xe9 */")
            send(server, b"ALTER TABLE shop.t1 /* caf\xe9 */ ADD COLUMN n INT DEFAULT 3")
            server.execute(
                *(f"UPDATE shop.{name} SET c = 'y' WHERE id < 4" for name in TABLES),
                "ALTER TABLE shop.t0 ADD COLUMN n INT DEFAULT 3",
                'CREATE TABLE shop.later (id INT PRIMARY KEY, "c d" INT)',
                "COMMIT",
            )
            stage.await_position(end_of_log(server), life)
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()
        for name in TABLES:
            found = read_rows(stage.warehouse / "shop" / name)
            assert sorted((each["id"], each["c"]) for each in found) == [
                (id_, "y" if id_ < 4 else "x") for id_ in range(6)
            ]
            assert {each['say "it"'] for each in found} == {"ü\\"}
            assert {each["e"] for each in found} == {"é"}
            assert {f"{each['t']:%F %T}" for each in found} == {"2026-01-02 03:04:05"}
        for name in TABLES[:2]:
            assert {each["n"] for each in read_rows(stage.warehouse / "shop" / name)} == {3}
