"""`tidelake diff` of tables that follow a database: what it calls equal is equal, cell by cell, and
what it calls different was changed behind the binlog's back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conf.route_rules import Extract, RouteRule
from streaming.cli.main import main
from tests.acceptance.followed_database import CHANGEFEED, FollowedDatabase
from tests.acceptance.processes import await_
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import MARIADB_FIRST
from tests.streaming.source.dump.test_types import NO_DATES, TYPES

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]
ORDERS = "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(20), n INT)"


@pytest.fixture(params=MARIADB_FIRST, ids=lambda edition: edition.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        running.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield running


def diff(feed: FollowedDatabase, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and the tables by their names."""
    capsys.readouterr()
    code = 0
    try:
        main(
            [
                *("diff", "--source-uri", f"mysql://root@127.0.0.1:{feed.server.port}/"),
                *("--sink-uri", f"delta://{feed.warehouse}", "-c", CHANGEFEED),
                *("--wait", "60s", "--format", "json"),
            ]
        )
    except SystemExit as ended:
        code = int(ended.code or 0)
    said = capsys.readouterr()
    assert said.out, said.err
    return code, {each["table"]: each for each in json.loads(said.out)["tables"]}


IDENTIFIERS = {
    "UUID": "8b0fff12-e99e-11f1-b2c5-02fc00000000",
    "INET4": "10.0.0.0",
    "INET6": "1::2:0:3:0:4:0",
}


def fill_types(server: DatabaseServer) -> None:
    """A table with a column of each type, whose rows have its values from the first on."""
    types = [*TYPES.items(), *NO_DATES.items()]
    if server.edition.is_mariadb:
        types += [(name, [(f"'{text}'", text)]) for name, text in IDENTIFIERS.items()]
    columns = ", ".join(f"c{at} {name} NULL" for at, (name, _) in enumerate(types))
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+02:00'")
        cursor.execute(f"CREATE TABLE shop.types (id INT PRIMARY KEY, {columns})")
        for row in range(1 + max(len(values) for _, values in types)):
            literals = (values[row][0] if row < len(values) else "NULL" for _, values in types)
            cursor.execute(f"INSERT INTO shop.types VALUES ({row}, {', '.join(literals)})")


def test_tables_of_every_type_are_equal_and_what_was_not_logged_differs(
    server: DatabaseServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    feed = FollowedDatabase(server, tmp_path, rules=("shop.*",))
    rows = ", ".join(f"({number}, 'v{number}', 0)" for number in range(1, 2001))
    server.execute(ORDERS, f"INSERT INTO shop.orders VALUES {rows}")
    fill_types(server)
    with feed.followed():
        await_("both tables", lambda: len(feed.progress()) == 2)
        await_("the rows", feed.is_same("shop.orders"))
        with busy(server):
            code, tables = diff(feed, capsys)
            assert {name: each["result"] for name, each in tables.items()} == {
                "shop.orders": "equal",
                "shop.types": "equal",
            }
            assert (code, tables["shop.types"]["lake_rows"]) == (0, 5)
            server.execute(
                "SET SESSION sql_log_bin = 0",
                "UPDATE shop.orders SET v = 'unseen' WHERE id = 1001",
                "DELETE FROM shop.orders WHERE id = 1002",
                "INSERT INTO shop.orders VALUES (9001, 'unseen', 0)",
                "UPDATE shop.types SET c0 = 7 WHERE id = 0",
            )
            code, tables = diff(feed, capsys)
    assert code == 1
    assert sorted(
        (row["kind"], row["key"]["id"], row["is_settled"]) for row in tables["shop.orders"]["rows"]
    ) == [("changed", "1001", True), ("extra", "1002", True), ("missing", "9001", True)]
    (row,) = tables["shop.types"]["rows"]
    assert (row["key"], row["cells"]) == ({"id": "0"}, {"c0": {"table": "-128", "database": "7"}})


@contextmanager
def busy(server: DatabaseServer) -> Iterator[None]:
    """Rows of `orders` up to 501 are written, while it lasts."""
    over = threading.Event()

    def write() -> None:
        count = 0
        while not over.wait(0.05):
            count += 1
            row = 1 + count * 7 % 500
            server.execute(
                f"UPDATE shop.orders SET n = n + 1 WHERE id = {row}",
                f"DELETE FROM shop.orders WHERE id = {row + 1}",
                f"INSERT INTO shop.orders VALUES ({row + 1}, 'again', {count})",
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


ROUTES = (
    RouteRule(
        matcher=("shop_*.orders_*",),
        target_schema="lake",
        target_table="orders",
        extract_table=Extract(regexp="orders_(.*)", target_column="t"),
        extract_schema=Extract(regexp="shop_(.*)", target_column="s"),
    ),
    RouteRule(
        matcher=("shop_*.users",), target_schema="lake", target_table="users", disjoint_keys=True
    ),
    RouteRule(matcher=("shop_1.notes",), target_schema="lake"),
)
SHARDS = ("shop_1.orders_1", "shop_1.orders_2", "shop_2.orders_1")


def test_merged_tables_are_compared_with_all_of_their_upstream_tables(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of a dropped one stay, as in DM, and are not compared."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with DatabaseServer() as server:
        feed = FollowedDatabase(server, tmp_path, routes=ROUTES)
        shards = (*SHARDS, "shop_2.orders_9")
        server.execute("CREATE DATABASE shop_1", "CREATE DATABASE shop_2")
        columns = "(id INT, v VARCHAR(20), at INT, PRIMARY KEY (id, at))"
        for shard in shards:
            server.execute(
                f"CREATE TABLE {shard} {columns}",
                f"INSERT INTO {shard} SELECT seq, CONCAT('{shard}', seq), 1 FROM seq_1_to_300",
                database="shop_1",
            )
        for number in (1, 2):
            first = 1000 * number
            server.execute(
                f"CREATE TABLE shop_{number}.users (id INT PRIMARY KEY, n INT)",
                f"INSERT INTO shop_{number}.users SELECT seq, 1 FROM seq_{first}_to_{first + 9}",
                database="shop_1",
            )
        server.execute(
            "CREATE TABLE shop_1.notes (id INT PRIMARY KEY, v TEXT)",
            "INSERT INTO shop_1.notes VALUES (1, 'a')",
            "DROP TABLE shop_2.orders_9",
        )
        with feed.followed() as life:
            life.wait_until(lambda: len(feed.delta_rows("lake.orders")) == 1200)
            life.wait_until(lambda: len(feed.delta_rows("lake.notes")) == 1)
            code, tables = diff(feed, capsys)
            found = {name: (each["result"], each["lake_rows"]) for name, each in tables.items()}
            wanted = {"lake.orders": 900, "lake.users": 20, "lake.notes": 1}
            assert found == {name: ("equal", rows) for name, rows in wanted.items()}
            assert (code, tables["lake.orders"]["rows_of_dropped_tables"]) == (0, 300)
            server.execute(
                "SET SESSION sql_log_bin = 0",
                "UPDATE shop_1.orders_2 SET v = 'unseen' WHERE id = 7",
                "DELETE FROM shop_2.orders_1 WHERE id = 7",
                "INSERT INTO shop_1.orders_1 VALUES (9001, 'unseen', 1)",
                "INSERT INTO shop_1.users VALUES (2003, 2)",
                "UPDATE shop_1.notes SET v = 'unseen'",
            )
            code, tables = diff(feed, capsys)
    rows = tables["lake.orders"]["rows"]
    assert sorted((each["kind"], *each["key"].values()) for each in rows) == [
        ("changed", "7", "1", "2", "1"),
        ("extra", "7", "1", "1", "2"),
        ("missing", "9001", "1", "1", "1"),
    ]
    (row,) = tables["lake.users"]["rows"]
    assert (row["kind"], row["key"]["id"]) == ("several", "2003")
    assert [each["key"]["id"] for each in tables["lake.notes"]["rows"]] == ["1"]
    assert (code, tables["lake.orders"]["differing"]) == (1, 3)
