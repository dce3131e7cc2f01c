"""A task file of DM: what becomes of it, and what is said of a wrong one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conf.load import load_changefeed
from conf.problems import SettingError
from conf.sources.binlog_uri import BinlogSettings
from conf.task.file import TaskDescription, read_task

TASK = """
name: shop
task-mode: all
mysql-instances:
  - source-id: mysql-01
    from: {host: db, user: 'r@t', password: '${env:PW}'}
"""
INCREMENTAL = TASK.replace("all", "incremental")
META = "    meta: {binlog-name: mysql-bin.000007, binlog-pos: 120}\n"


def read(tmp_path: Path, text: str) -> TaskDescription:
    file = tmp_path / "task.yaml"
    file.write_text(text)
    return read_task(file)


def source(found: TaskDescription) -> BinlogSettings:
    values = {"source-uri": found.source_uri, "sink-uri": "delta:///lake", "changefeed-id": "a"}
    settings = load_changefeed(found.document, {**found.document, **values}).source
    assert isinstance(settings, BinlogSettings)
    return settings


def test_a_whole_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
name: shop
task-mode: all
meta-schema: dm_meta
target-database: {host: tidb, port: 4000}
case-sensitive: true
mysql-instances:
  - source-id: mysql-01
    meta:
    from: {host: db, port: 3307, user: root, security: {ssl-ca: /ca.pem}}
    block-allow-list: mine
    filter-rules: [no-drops]
    mydumper-config-name: global
    syncer-config-name: global
block-allow-list:
  mine: {do-dbs: [shop], ignore-tables: [{db-name: shop, tbl-name: "tmp*"}]}
filters:
  no-drops: {schema-pattern: shop, events: [drop table, drop database], action: Ignore}
mydumpers:
  global: {threads: 8, rows: 1000, chunk-filesize: 64}
syncers:
  global: {worker-count: 16}
""",
    )
    assert found.document["filter"] == {
        "rules": ["shop.*", "!shop.tmp*"],
        "event-filters": [{"matcher": ["shop.*"], "ignore-event": ["drop table", "drop database"]}],
    }
    assert found.document["case-sensitive"] is True
    assert sorted(found.idle_keys) == [
        *("meta-schema", "mydumpers.global.chunk-filesize", "mysql-instances.syncer-config-name"),
        *("syncers", "target-database"),
    ]
    read_as = source(found)
    assert (read_as.host, read_as.port, read_as.user, read_as.ca) == ("db", 3307, "root", "/ca.pem")
    assert (read_as.connections, read_as.chunk_rows, read_as.task_mode) == (8, 1000, "all")


EXPRESSIONS = """
    expression-filters: [even, gone]
expression-filter:
  even: {schema: shop, table: 'a"b', insert-value-expr: c % 2 = 0}
  gone: {schema: shop, table: t, update-old-value-expr: "x = 1", update-new-value-expr: "x = 2"}
"""


def test_expressions_are_event_filters_whose_updates_need_both(tmp_path: Path) -> None:
    assert read(tmp_path, TASK + EXPRESSIONS).document["filter"]["event-filters"] == [
        {
            "matcher": ['"shop"."a""b"'],
            "ignore-insert-value-expr": "c % 2 = 0",
            "ignore-update-if": "both",
        },
        {
            "matcher": ['"shop"."t"'],
            "ignore-update-old-value-expr": "x = 1",
            "ignore-update-new-value-expr": "x = 2",
            "ignore-update-if": "both",
        },
    ]


def test_the_login_may_be_odd_and_a_reference(tmp_path: Path) -> None:
    found = source(read(tmp_path, TASK))
    assert (found.user, found.password, found.connections) == ("r@t", "${env:PW}", 4)


def test_an_incremental_task_begins_at_its_meta(tmp_path: Path) -> None:
    found = source(read(tmp_path, INCREMENTAL + META))
    assert (found.task_mode, found.binlog_name, found.binlog_pos) == (
        *("incremental", "mysql-bin.000007", 120),
    )
    copied = read(tmp_path, TASK + META)  # a copy says itself where it began
    assert source(copied).binlog_name is None
    assert copied.idle_keys == ("mysql-instances.meta",)


@pytest.mark.parametrize("mode", ["dump", "load&sync"])
def test_the_folder_of_a_dump_is_its_loaders(tmp_path: Path, mode: str) -> None:
    loader = "    loader-config-name: a\nloaders: {a: {dir: /data/dump, pool-size: 4}}\n"
    found = read(tmp_path, TASK.replace("all", mode) + loader)
    assert (source(found).task_mode, source(found).dump_dir) == (mode, "/data/dump")
    assert found.idle_keys == ("loaders.a.pool-size",)
    found = read(tmp_path, TASK.replace("all", "full") + loader)
    assert (source(found).task_mode, source(found).dump_dir) == ("full", None)
    assert found.idle_keys == ("loaders.a.pool-size", "loaders.a.dir")


WRONG: list[tuple[str, Any]] = [
    (TASK + "shard-mod: x\n", "unknown key 'shard-mod'; did you mean shard-mode?"),
    (TASK + "    rout-rules: []\n", "did you mean route-rules?"),
    (
        TASK + EXPRESSIONS.replace("x = 1", "f(x) = 1"),
        "expression-filter.gone.update-old-value-expr: at character 1 (f(x) = 1): the function f",
    ),
    (TASK + EXPRESSIONS.replace(", gone]", "]"), "no instance uses gone"),
    (TASK + "shard-mode: optimistic\n", "shard-mode: optimistic is not built"),
    (TASK + "routes: {a: {schema-pattern: x}}\n", "routes.a.target-schema is missing"),
    (
        TASK + "routes: {a: {schema-pattern: x, target-schema: y}}\n",
        "routes: no instance uses a: leave it out, or name it",
    ),
    (TASK.replace("all", "dump"), "loaders: a task of mode dump needs the folder of its dump"),
    (TASK.replace("all", "load&sync") + "    loader: {dir: ./here}\n", "dir, an absolute path"),
    (TASK + "loaders: {a: {dir: /here}}\n", "loaders: no instance uses a"),
    (TASK.replace("all", "al"), "unknown value 'al'"),
    (TASK.replace("task-mode: all", ""), "task-mode is missing"),
    (
        TASK + "  - source-id: b\n",
        "2 of them (mysql-01, b), and a task reads one server: write a task file for each",
    ),
    (TASK.replace("name: shop", "name: a_b"), "name 'a_b': letters and digits"),
    (TASK + "name: again\n", "name stands twice"),
    (TASK + "filters: {a: {schema-pattern: s, action: Ignore}}\n", "no instance uses a"),
    (TASK + "    filter-rules: [a]\n", "unknown name in filters 'a'"),
    (TASK + "filters: {a: {schema-patern: s}}\n", "did you mean schema-pattern?"),
    (INCREMENTAL, "an incremental task needs meta"),
    (INCREMENTAL + "    meta: {binlog-pos: 4}\n", "neither binlog-name nor binlog-gtid"),
    ("name: [", "not YAML"),
    ("- a", "a task file has keys"),
    (TASK + "mydumpers: 3\n", "mydumpers must be a mapping, not 3"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingError, match=re.escape(says)) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "task.yaml"))
    assert "\n" not in str(refused.value)
