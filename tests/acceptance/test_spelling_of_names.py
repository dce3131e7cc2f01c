"""A server with `lower_case_table_names` 1: rows have names in lower case, and DDLs as they were
typed. They are of one table; two tables that differ in case stay two."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from conf.route_rules import RouteRule
from conf.settings import DeltaSink
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.one_process import Lives
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.usefixtures("own_temporary_folder")]
MS = 1_795_711_873_000
COLUMNS = "(id BIGINT PRIMARY KEY, v VARCHAR(10))"


class Canal:
    """Canal's messages of database ``shop``, and the lives that play them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.at_ms = MS
        self.lives: Lives | None = None

    def ddl(self, sql: str, table: str = "", schema: str = "shop") -> None:
        of = {"database": schema, "table": table, "type": sql.split()[0], "sql": sql}
        self._add({**of, "isDdl": True, "data": None, "old": None, "mysqlType": None})

    def row(self, table: str, *ids: int, **more: str) -> None:
        data = [{"id": str(each), "v": "a", **more} for each in ids]
        types = {"id": "bigint", "v": "varchar(10)", **dict.fromkeys(more, "int")}
        of = {"database": "shop", "table": table, "type": "INSERT", "sql": "", "isDdl": False}
        self._add({**of, "data": data, "old": None, "mysqlType": types, "pkNames": ["id"]})

    def _add(self, told: dict[str, Any]) -> None:
        self.at_ms += 1000
        value = json.dumps({**told, "es": self.at_ms, "ts": self.at_ms + 400, "id": 1}).encode()
        line = {"topic": "c", "partition": 0, "offset": len(self.lines), "key_b64": None}
        line |= {"timestamp_ms": self.at_ms + 500, "value_b64": base64.b64encode(value).decode()}
        self.lines.append(json.dumps(line) + "\n")

    def play(
        self, parameters: str = "", *, target_ms: int = 0, **changes: Any
    ) -> BaseException | None:
        """One life, to the end of what there is or to that time."""
        path = self.folder / "sent.jsonl"
        path.write_text("".join(self.lines))
        uri = f"file://{path}?protocol=canal-json&at-least-once=true&partition-num=1{parameters}"
        settings = parse_source_uri(uri)
        if self.lives is None:
            self.lives = Lives(ThreadsOfProcess, None, self.folder, source=settings)
        target_ts = target_ms << TSO_LOGICAL_BITS or open_source(settings).end_ts()
        return self.lives.live(source=settings, target_ts=target_ts, **changes)

    @property
    def tables(self) -> dict[str, list[int]]:
        """The ids in each of the tables, by its path."""
        root = self.folder / "warehouse"
        logs = (each.parent for each in root.glob("*/*/_delta_log"))
        found = {str(each.relative_to(root)): each for each in logs}
        return {
            name.removeprefix("shop/"): sorted(row["id"] for row in read_rows(folder))
            for name, folder in found.items()
            if not name.startswith("_tidelake")
        }


@pytest.fixture
def canal(tmp_path: Path) -> Canal:
    return Canal(tmp_path)


def test_ddls_in_another_spelling_are_of_the_table_that_rows_name(canal: Canal) -> None:
    for name in ("orders", "items"):
        canal.ddl(f"create table {name} {COLUMNS}", name)
        canal.row(name, 1, 2)
    canal.ddl("TRUNCATE TABLE Orders", "Orders")
    canal.ddl("ALTER TABLE Items ADD COLUMN n INT DEFAULT 5", "Items")
    canal.row("orders", 3)
    canal.row("items", 3, n="7")
    assert canal.play() is None
    assert canal.tables == {"orders": [3], "items": [1, 2, 3]}
    rows = read_rows(canal.folder / "warehouse" / "shop" / "items")
    assert sorted(row["n"] for row in rows) == [5, 5, 7]
    assert canal.lives is not None
    assert canal.lives.dead_letters() == []


def test_a_create_table_in_capitals_makes_one_table(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE Orders {COLUMNS}", "Orders")
    canal.row("orders", 1)
    assert canal.play() is None
    assert canal.tables == {"orders": [1]}


def test_a_rename_is_to_the_name_that_rows_will_have(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE Orders {COLUMNS}", "Orders")
    canal.row("orders", 1)
    canal.ddl("RENAME TABLE Orders TO Old_Orders", "Old_Orders")
    canal.row("old_orders", 2)
    canal.ddl("CREATE TABLE Copies LIKE Old_Orders", "Copies")
    canal.row("copies", 3)
    canal.ddl("DROP TABLE `SHOP`.`Copies`", "Copies", "SHOP")
    assert canal.play() is None
    assert canal.tables["old_orders"] == [1, 2]
    assert {name.partition("~")[0] for name in canal.tables} <= {"old_orders", "orders", "copies"}


@pytest.mark.parametrize("parameters", ["", "&lower-case-names=false"])
def test_tables_that_differ_in_case_stay_two(canal: Canal, parameters: str) -> None:
    for name in ("orders", "Orders"):
        canal.ddl(f"CREATE TABLE {name} {COLUMNS}", name)
        canal.row(name, 1, 2)
    canal.ddl("TRUNCATE TABLE Orders", "Orders")
    canal.row("Orders", 3)
    assert canal.play(parameters) is None
    assert canal.tables == {"orders": [1, 2], "Orders": [3]}


def test_a_later_life_learns_it_anew(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE orders {COLUMNS}", "orders")
    canal.row("orders", 1)
    first_ms = canal.at_ms
    for _ in range(3):
        canal.ddl("TRUNCATE TABLE Orders", "Orders")
        canal.row("orders", 2)
    assert canal.play(target_ms=first_ms + 500, max_messages=1, first_messages=1) is None
    assert canal.tables == {"orders": [1]}
    assert canal.play(max_messages=1, first_messages=1) is None
    assert canal.tables == {"orders": [2]}


def test_capitals_in_rows_say_that_the_source_uri_is_wrong(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE Orders {COLUMNS}", "Orders")
    canal.row("Orders", 1)
    error = canal.play("&lower-case-names=true")
    assert isinstance(error, ConfigError)
    assert "rows of shop.Orders have come, and with lower-case-names=true" in str(error)


def test_a_database_in_another_spelling(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE orders {COLUMNS}", "orders")
    canal.row("orders", 1)
    canal.ddl("DROP DATABASE Shop", "", "Shop")
    assert canal.play() is None
    assert canal.lives is not None
    assert canal.lives.progress()["shop.orders"].state == "dropped"


def test_a_routed_table(canal: Canal) -> None:
    canal.ddl(f"CREATE TABLE orders {COLUMNS}", "orders")
    canal.row("orders", 1, 2)
    canal.ddl("TRUNCATE TABLE Orders", "Orders")
    canal.row("orders", 3)
    rule = RouteRule(matcher=("shop.*",), target_schema="lake")
    sink = DeltaSink(warehouse=str(canal.folder / "warehouse"), routes=(rule,))
    assert canal.play(sink=sink) is None
    assert canal.tables == {"lake/orders": [3]}
