"""Routes on a real binlog: each target is the union of its shards, cell by cell."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conf.route_rules import Extract, RouteRule
from conf.settings import TableRule
from sinks.control.blocked_ddls import BlockedDdls
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.followed_database import CHANGEFEED, FollowedDatabase
from tests.acceptance.processes import Life, await_, environment
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.second_editions import second

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

SHARDS = RouteRule(
    matcher=("shop_*.orders_*",),
    target_schema="shop",
    target_table="orders",
    extract_table=Extract(regexp="orders_(.*)", target_column="t"),
    extract_schema=Extract(regexp="shop_(.*)", target_column="s"),
)
RENAMED = RouteRule(matcher=("shop_*.customers",), target_schema="lake", target_table="people")
TARGET = "shop.orders"
CREATE = "CREATE TABLE shop_{}.orders_{} (id INT PRIMARY KEY, v VARCHAR(20))"
FILE = """
[[sink.routes]]
matcher = ["shop_*.orders_*"]
target-schema = "shop"
target-table = "orders"
extract-table = { table-regexp = "orders_(.*)", target-column = "t" }
extract-schema = { schema-regexp = "shop_(.*)", target-column = "s" }
"""
ALL = [("1", "1"), ("1", "2"), ("2", "1")]


def union(database: FollowedDatabase, shards: list[tuple[str, str]], columns: str) -> bool:
    """Whether the target is the union of these shards."""
    each = (
        f"SELECT {columns}, '{table}' AS t, '{schema}' AS s FROM shop_{schema}.orders_{table}"
        for schema, table in shards
    )
    names = [name.strip() for name in columns.split(",")] + ["t", "s"]
    found = [{name: row.get(name, "none") for name in names} for row in database.delta_rows(TARGET)]
    wanted = database.database_rows(f"({' UNION ALL '.join(each)}) AS u")
    return sorted(map(repr, found)) == sorted(map(repr, wanted))


def is_union(
    database: FollowedDatabase, columns: str, shards: list[tuple[str, str]] | None = None
) -> Callable[[], bool]:
    return lambda: union(database, shards or ALL, columns)


def test_shards_become_one_table_and_their_ddls_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with DatabaseServer() as server:
        database = FollowedDatabase(server, tmp_path, routes=[SHARDS, RENAMED])
        server.execute(
            "CREATE DATABASE shop_1",
            "CREATE DATABASE shop_2",
            *(CREATE.format(*each) for each in ALL),
            *(f"INSERT INTO shop_{s}.orders_{t} VALUES (1, '{s}{t}'), (2, 'b')" for s, t in ALL),
            "UPDATE shop_1.orders_2 SET id = 7, v = 'moved' WHERE id = 2",
            "DELETE FROM shop_2.orders_1 WHERE id = 2",
            "CREATE TABLE shop_1.customers (id INT PRIMARY KEY, n INT)",
            "INSERT INTO shop_1.customers VALUES (1, 1)",
        )
        with database.followed() as life:
            life.wait_until(is_union(database, "id, v"))
            rows = [{"id": 1, "n": 1}]
            life.wait_until(lambda: database.delta_rows("lake.people") == rows)
            server.execute(
                "ALTER TABLE shop_1.orders_1 ADD w INT NOT NULL DEFAULT 5",
                "INSERT INTO shop_1.orders_1 VALUES (11, 'new', 1)",
                "INSERT INTO shop_1.orders_2 VALUES (12, 'old')",
                "INSERT INTO shop_1.customers VALUES (2, 2)",
            )
            more = [*rows, {"id": 2, "n": 2}]
            life.wait_until(lambda: database.delta_rows("lake.people") == more)
            assert [each[0] for each in database.columns(TARGET)] == ["id", "v", "t", "s"]
        with database.followed() as life:  # the wait outlives the process
            server.execute(
                "ALTER TABLE shop_1.orders_2 ADD w INT NOT NULL DEFAULT 5",
                "INSERT INTO shop_1.orders_2 VALUES (13, 'new', 2)",
                "INSERT INTO shop_2.orders_1 VALUES (14, 'old')",
                "ALTER TABLE shop_2.orders_1 ADD w INT NOT NULL DEFAULT 5",
                "UPDATE shop_2.orders_1 SET w = 9 WHERE id = 14",
            )
            life.wait_until(is_union(database, "id, v, w"))
            server.execute(
                "TRUNCATE TABLE shop_1.orders_2",
                "INSERT INTO shop_1.orders_2 VALUES (1, 'again', 3)",
            )
            life.wait_until(is_union(database, "id, v, w"))
            before = len(database.delta_rows(TARGET))
            server.execute(
                "DROP TABLE shop_2.orders_1",
                "CREATE TABLE shop_2.orders_3 (id INT PRIMARY KEY, v VARCHAR(20), w INT)",
                "INSERT INTO shop_2.orders_3 VALUES (1, 'late', 4)",
            )
            life.wait_until(lambda: len(database.delta_rows(TARGET)) == before + 1)
        assert database.progress()[TARGET].dead_letters == 0


@pytest.mark.parametrize("edition", [MARIADB_10_11, *second(MYSQL_9_7)], ids=lambda each: each.name)
def test_shards_that_are_copied_while_they_change_become_one_table(
    edition: Edition, tmp_path: Path
) -> None:
    """By the real program, which is killed amid the load."""
    with DatabaseServer(edition) as server:
        server.execute(
            "CREATE DATABASE shop_1",
            "CREATE DATABASE shop_2",
            *(CREATE.format(*each) for each in ALL),
        )
        for schema, table in ALL:
            rows = [(id_, f"{schema}{table}") for id_ in range(300)]
            server.insert(f"shop_{schema}.orders_{table}", rows)
        with BinlogStage(server, tmp_path, rules=FILE, mode="all") as stage:
            slow = "&chunk-rows=100&connections=1"
            frozen = {"TIDELAKE_FAILPOINTS": "after-chunk=stop:5"}
            life = stage.start("frozen", parameters=slow, given=frozen)
            await_("the copy stands still", lambda: life.is_frozen or life.is_over)
            server.execute(
                "UPDATE shop_1.orders_1 SET v = 'later' WHERE id < 10",
                "DELETE FROM shop_1.orders_2 WHERE id >= 290",
                "INSERT INTO shop_2.orders_1 VALUES (1000, 'new')",
                *(f"ALTER TABLE shop_{s}.orders_{t} ADD w INT DEFAULT 5" for s, t in ALL),
                "INSERT INTO shop_1.orders_1 VALUES (1000, 'new', 1)",
            )
            life.signal(signal.SIGKILL)
            killed = {"TIDELAKE_FAILPOINTS": "after-load-one=kill:1"}
            life = stage.start("killed", parameters=slow, given=killed)
            assert life.await_exit() == -signal.SIGKILL
            life = stage.start("last", parameters=slow)
            stage.await_position(end_of_log(server), life)
            server.execute(
                "ALTER TABLE shop_2.orders_1 DROP COLUMN v",
                "INSERT INTO shop_2.orders_1 VALUES (2000, 7)",
                "INSERT INTO shop_1.orders_1 VALUES (2000, 'old', 8)",
                "ALTER TABLE shop_1.orders_1 DROP COLUMN v",
                "ALTER TABLE shop_1.orders_2 DROP COLUMN v",
            )
            stage.await_position(end_of_log(server), life)
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()
            found = read_rows(stage.warehouse / "shop" / "orders")
        wanted = [
            {"id": id_, "w": w, "t": table, "s": schema}
            for schema, table in ALL
            for id_, w in server.query(f"SELECT id, w FROM shop_{schema}.orders_{table}")
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_shards_whose_creation_was_not_read_join_by_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another shape holds the target, and an operator lets it go on."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with DatabaseServer() as server:
        server.execute(
            "CREATE DATABASE shop_1",
            "CREATE DATABASE shop_2",
            *(CREATE.format(*each) for each in ALL),
            "CREATE TABLE shop_2.orders_9 (id INT PRIMARY KEY, v VARCHAR(20), z INT)",
        )
        database = FollowedDatabase(server, tmp_path, routes=[SHARDS, RENAMED])
        server.execute("CREATE TABLE shop_1.customers (id INT PRIMARY KEY)")
        server.execute(*(f"INSERT INTO shop_{s}.orders_{t} VALUES (1, 'a')" for s, t in ALL))
        with database.followed() as life:
            life.wait_until(is_union(database, "id, v"))
            server.execute(
                "INSERT INTO shop_2.orders_9 VALUES (1, 'b', 2)",
                "INSERT INTO shop_1.orders_1 VALUES (2, 'behind it')",
            )
            blocked = BlockedDdls(str(database.warehouse))
            life.wait_until(lambda: blocked.read(CHANGEFEED))
            (held,) = blocked.read(CHANGEFEED).values()
            assert "shop_2.orders_9 goes into shop.orders with other tables" in held.reason
            assert "it has z" in held.reason
            assert len(database.delta_rows(TARGET)) == len(ALL)
            blocked.order(CHANGEFEED, held.place, "skip")
            life.wait_until(is_union(database, "id, v", ALL))
        letters = read_rows(database.warehouse / "_tidelake" / "dead_letters")
        assert ["table shop_2.orders_9: " in each["message"] for each in letters] == [True]


def test_a_task_file_of_dm_merges_shards(mariadb: DatabaseServer, tmp_path: Path) -> None:
    file, lake = tmp_path / "task.yaml", tmp_path / "lake"
    file.write_text(
        f"""
name: merge
task-mode: full
shard-mode: pessimistic
mysql-instances:
  - source-id: mysql-01
    from: {{host: {mariadb.host}, port: {mariadb.port}, user: root}}
    block-allow-list: a
    route-rules: [orders, rest]
block-allow-list: {{a: {{do-dbs: ["merge_*"]}}}}
routes:
  orders:
    schema-pattern: "merge_*"
    table-pattern: "orders_*"
    target-schema: merged
    target-table: orders
    extract-table: {{table-regexp: "orders_(.*)", target-column: t}}
    extract-schema: {{schema-regexp: "merge_(.*)", target-column: s}}
    extract-source: {{source-regexp: "(.*)", target-column: c}}
  rest: {{schema-pattern: "merge_a", target-schema: merged}}
"""
    )
    shards = [("a", "1"), ("a", "2"), ("b", "1")]
    with mariadb.database("merge_a"), mariadb.database("merge_b"):
        for schema, table in shards:
            mariadb.execute(f"CREATE TABLE merge_{schema}.orders_{table} (id INT PRIMARY KEY)")
            mariadb.insert(f"merge_{schema}.orders_{table}", [(id_,) for id_ in range(3)])
        mariadb.execute("CREATE TABLE merge_a.people (id INT PRIMARY KEY) SELECT 7 id")
        command = [*(sys.executable, "-m", "streaming.cli.main", "run", "--task", str(file))]
        life = Life(
            "run", tmp_path, [*command, "--sink-uri", f"delta://{lake}"], environment(tmp_path)
        )
        try:
            assert life.await_exit() == 0, life.tail()
        finally:
            life.end()
    found = [tuple(row.values()) for row in read_rows(lake / "merged" / "orders")]
    assert sorted(found) == sorted(
        (id_, table, schema, "mysql-01") for schema, table in shards for id_ in range(3)
    )
    assert read_rows(lake / "merged" / "people") == [{"id": 7}]


def test_change_logs_and_histories_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without a key and one with soft deletes too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kinds = {
        "log": TableRule(matcher=("shop.log",), write_mode="append"),
        "past": TableRule(matcher=("shop.past",), write_mode="history"),
        "soft": TableRule(matcher=("shop.soft",), soft_delete=True),
        "bag": TableRule(matcher=("shop.bag",), key="all-columns"),
    }
    routes = [
        RouteRule(
            matcher=(f"s*.{name}",),
            target_schema="shop",
            target_table=name,
            extract_schema=Extract(regexp="s(.*)", target_column="s"),
        )
        for name in kinds
    ]
    with DatabaseServer() as server:
        database = FollowedDatabase(server, tmp_path, routes=routes, tables=list(kinds.values()))
        for shard in ("s1", "s2"):
            server.execute(f"CREATE DATABASE {shard}")
            for name in kinds:
                key = "" if name == "bag" else " PRIMARY KEY"
                server.execute(
                    f"CREATE TABLE {shard}.{name} (id INT{key}, v INT)",
                    f"INSERT INTO {shard}.{name} VALUES (1, 1), (2, 2)",
                    f"UPDATE {shard}.{name} SET v = 9, id = 5 WHERE id = 1",
                    f"DELETE FROM {shard}.{name} WHERE id = 2",
                )

        def are_there() -> bool:
            found = {name: database.delta_rows(f"shop.{name}") for name in kinds}
            shown = {
                "log": [(r["id"], r["v"], r["s"], r["_op"]) for r in found["log"]],
                "past": [(r["id"], r["v"], r["s"], r["_is_current"]) for r in found["past"]],
                "soft": [(r["id"], r["v"], r["s"], r["_tidelake_deleted"]) for r in found["soft"]],
                "bag": [(r["id"], r["v"], r["s"]) for r in found["bag"]],
            }
            return {name: sorted(rows) for name, rows in shown.items()} == {
                name: sorted(row for s in "12" for row in wanted(s)[name]) for name in kinds
            }

        def wanted(s: str) -> dict[str, list[tuple[object, ...]]]:
            changed = [(1, 1, s, "update_preimage"), (5, 9, s, "update_postimage")]
            added = [(1, 1, s, "insert"), (2, 2, s, "insert")]
            return {
                "log": [*added, *changed, (2, 2, s, "delete")],
                "past": [(1, 1, s, False), (2, 2, s, False), (5, 9, s, True)],
                "soft": [(1, 1, s, True), (2, 2, s, True), (5, 9, s, False)],
                "bag": [(5, 9, s)],
            }

        with database.followed() as life:
            life.wait_until(are_there)
        assert not any(row.dead_letters or row.error for row in database.progress().values())
