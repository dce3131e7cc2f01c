"""DM's `routes`, and what they become: ``[[sink.routes]]``."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_changefeed
from conf.problems import SettingError
from conf.route_rules import Extract, RouteRule
from conf.task.file import read_task
from tests.conf.task.test_task_file import TASK, read

SHARDS = (
    TASK
    + """    route-rules: [tables, schemas]
shard-mode: pessimistic
routes:
  tables:
    schema-pattern: "shop_*"
    table-pattern: "orders_*"
    target-schema: shop
    target-table: orders
    extract-table: {table-regexp: 'orders_(.*)', target-column: t}
    extract-schema: {schema-regexp: 'shop_(.*)', target-column: s}
    extract-source: {source-regexp: '(.*)', target-column: c}
  schemas: {schema-pattern: "shop_*", target-schema: shop}
"""
)


def routes_of(tmp_path: Path, text: str) -> tuple[RouteRule, ...]:
    found = read(tmp_path, text)
    values = {"source-uri": found.source_uri, "sink-uri": "delta:///lake", "changefeed-id": "a"}
    return load_changefeed(found.document, {**found.document, **values}).sink.routes


def test_a_route_of_tables_counts_before_one_of_their_schema(tmp_path: Path) -> None:
    tables, schemas = routes_of(tmp_path, SHARDS)
    assert tables == RouteRule(
        matcher=("shop_*.orders_*",),
        target_schema="shop",
        target_table="orders",
        source_id="mysql-01",
        extract_table=Extract(regexp="orders_(.*)", target_column="t"),
        extract_schema=Extract(regexp="shop_(.*)", target_column="s"),
        extract_source=Extract(regexp="(.*)", target_column="c"),
    )
    assert schemas == RouteRule(
        matcher=("shop_*.*", "!shop_*.orders_*"), target_schema="shop", target_table=""
    )


def test_a_check_that_is_left_out_says_that_keys_are_disjoint(tmp_path: Path) -> None:
    found = routes_of(tmp_path, SHARDS + "ignore-checking-items: [auto_increment_ID]\n")
    assert all(each.disjoint_keys for each in found)
    other = routes_of(tmp_path, SHARDS + "ignore-checking-items: [replication_privilege]\n")
    assert not any(each.disjoint_keys for each in other)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("'orders_(.*)'", "'orders_.*'", "has no group"),
        ("'orders_(.*)'", "'orders_('", "is not a regular expression"),
        ("target-column: s", "target-column: t", "two of its columns have one name"),
        ("target-column: s", "target-column: ''", "extract-schema has no target-column"),
        ('"shop_*"\n', '""\n', "routes.tables.schema-pattern must not be empty"),
        ("    target-schema: shop\n", "", "routes.tables.target-schema is missing"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, was: str, now: str, says: str) -> None:
    with pytest.raises(SettingError) as raised:
        routes_of(tmp_path, SHARDS.replace(was, now, 1))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_several_servers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    other = "  - source-id: mysql-02\n    from: {host: db2, user: r}\n"
    file.write_text(TASK + other)
    with pytest.raises(SettingError, match=r"mysql-instances: 2 of them .* reads one server"):
        read_task(file)
