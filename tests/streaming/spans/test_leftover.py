"""What a try of a copy that failed has left, and what may be deleted of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conf.route_rules import Extract, RouteRule
from conf.settings import Changefeed, DeltaSink, FilterSettings
from conf.sources.tidb_uri import TidbSettings
from coordination import failpoint
from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import inspect, table_uri
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.source.dump.copy_tables import CopiedTable
from streaming.source.dump.source_table import SourceColumn, SourceTable
from streaming.spans.copies.leftover import delete_leftover, was_never_followed
from streaming.spans.copies.moments import Moment
from streaming.spans.copies.settled_copy import (
    BEGINS,
    SETTLED,
    CopiedFrom,
    SettledCopy,
    chosen_by,
    end_copy,
    only_one,
)
from streaming.spans.copies.tidb_copy import TidbCopy
from tests.services.delta_rows import read_rows

NAME = TableName("shop", "new")
FEED = ChangefeedRow(changefeed_id="a", start_ts=1, checkpoint_ts=100, resolved_ts=100)
LOADED = ProgressRow(
    changefeed_id="a",
    incarnation=1,
    schema_name="shop",
    table_name="new",
    generation=1,
    state="replicating",
    checkpoint_ts=50,
    resolved_ts=50,
    delta_version=1,
    identity_ts=50,
    capture_id="c",
    epoch="e",
    fence=1,
)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, True),
        ({"delta_version": 2}, False),  # it has been written
        ({"checkpoint_ts": 60}, False),  # it has gone on without changes
        ({"identity_ts": 100, "checkpoint_ts": 100}, False),  # nothing has passed
        ({"state": DROPPED}, False),
    ],
)
def test_a_table_that_nobody_has_followed(change: dict[str, object], wanted: bool) -> None:
    assert was_never_followed(replace(LOADED, **change), FEED) is wanted  # type: ignore[arg-type]


def made(folder: Path, owner: str) -> str:
    uri = table_uri(str(folder), NAME)
    columns = (Column(name="id", type=MySQLType.parse("int"), nullable=False),)
    schema = TableSchema(columns=columns, key=("id",))
    target = Target(name=NAME, uri=uri, schema=schema, app_id=app_id(owner, 1, NAME))
    ddl = DdlIdentity(commit_ts=Ts(0), order=0, query="")
    create(target, properties=ownership(changefeed_id=owner, incarnation=1, ddl=ddl))
    return uri


@pytest.mark.parametrize("incarnation", [1, 2])
def test_a_table_of_another_changefeed_stays(tmp_path: Path, incarnation: int) -> None:
    for owner in ("b", "a"):
        uri = made(tmp_path / owner, owner)
        feed = replace(FEED, incarnation=incarnation)
        delete_leftover(uri, NAME, feed, Ts(70), loads="", options={})
        assert (inspect(uri, {}) is None) is (owner == "a")


# A copy of which a first try was killed, and which is begun once more with other settings.

TSO = Ts(452654700134990849)


def feed_of(folder: Path, *rules: str) -> Changefeed:
    extract = Extract(regexp="(.*)", target_column="of")
    shards = RouteRule(
        matcher=("shop.s*",), target_schema="shop", target_table="all", extract_table=extract
    )
    return Changefeed(
        id="c",
        source=TidbSettings(host="h", user="u", password=None),
        sink=DeltaSink(warehouse=str(folder / "lake"), routes=(shards,)),
        filter=FilterSettings(rules=rules),
    )


def settled_copy(changefeed: Changefeed, folder: Path, **rows: list[str]) -> SettledCopy:
    """Tables of shop, with one row for each value."""
    copies, at = [], Moment(0, TSO)
    for name, values in rows.items():
        file = folder / f"{name}.parquet"
        pq.write_table(pa.table({"id": pa.array(range(len(values))), "v": pa.array(values)}), file)
        number, text = MySQLType.parse("bigint"), MySQLType.parse("varchar(9)")
        table = SourceTable(
            name=TableName("shop", name),
            columns=(
                SourceColumn(name="id", type=number, nullable=False),
                SourceColumn(name="v", type=text, nullable=True, charset="utf8mb4"),
            ),
            key=("id",),
            index="PRIMARY",
            rows=len(values),
            bytes=1,
        )
        copied = CopiedTable(table=table, files=(file,), rows=len(values), bytes=1, position=None)
        copies.append(CopiedFrom(copied=copied, begin=at))
    defined = "(id bigint NOT NULL PRIMARY KEY, v varchar(9))"
    return SettledCopy(
        server="",
        chosen=chosen_by(changefeed),
        begin=at,
        end=at,
        pins=(),
        definitions="".join(f"USE shop;\nCREATE TABLE {name} {defined};\n" for name in rows),
        tables=tuple(copies),
    )


Tried = Callable[..., list[str]]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    def run(rules: list[str], dies_at: str = "", **rows: list[str]) -> list[str]:
        changefeed = feed_of(tmp_path, *rules)
        settled = settled_copy(changefeed, tmp_path, **rows)
        monkeypatch.setattr(TidbCopy, "_settled", lambda _: settled)
        failpoint.configure(f"{dies_at}=raise:1" if dies_at else "")
        try:
            TidbCopy(changefeed, tmp_path / "staging").run()
        except failpoint.FailpointHit:
            assert dies_at
        finally:
            failpoint.configure("")
        return sorted(row["of"] + row["v"] for row in read_rows(tmp_path / "lake/shop/all"))

    return run


KILLS = pytest.mark.parametrize("dies_at", ["before-first-rows", "after-first-progress"])


@KILLS
def test_a_wider_filter_brings_its_shard_though_the_moment_is_the_same(
    tried: Tried, dies_at: str
) -> None:
    assert tried(["shop.s1"], dies_at, s1=["a", "b"]) == ["s1a", "s1b"]
    assert tried(["shop.s*"], s1=["a", "b"], s2=["c"]) == ["s1a", "s1b", "s2c"]


@KILLS
def test_a_narrower_filter_leaves_no_row_of_a_shard(tried: Tried, dies_at: str) -> None:
    assert tried(["shop.s*"], dies_at, s1=["a"], s2=["c"]) == ["s1a", "s2c"]
    assert tried(["shop.s1"], s1=["a"]) == ["s1a"]


def test_what_is_loaded_already_stays(tried: Tried, tmp_path: Path) -> None:
    tried(["shop.s1"], "before-first-rows", s1=["a"])
    (before,) = (tmp_path / "lake/shop/all").glob("*.parquet")
    assert tried(["shop.s1"], s1=["a"]) == ["s1a"]
    (after,) = (tmp_path / "lake/shop/all").glob("*.parquet")
    assert after == before


def dies_after(steps: int, patched: pytest.MonkeyPatch) -> None:
    """Where so many files and folders are deleted."""
    left = itertools.count(steps, -1)

    def counted(delete: Callable[..., None]) -> Callable[..., None]:
        def run(*given: Any, **more: Any) -> None:
            if next(left) <= 0:
                raise KeyboardInterrupt
            delete(*given, **more)

        return run

    for name in ("unlink", "rmdir"):
        patched.setattr(os, name, counted(getattr(os, name)))


def test_a_copy_that_was_killed_while_it_cleans_up_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(12):
        folder = tmp_path / str(steps)
        table = folder / "shop.s1"
        table.mkdir(parents=True)
        files = [table / "manifest.jsonl", table / "000001-0.parquet"]
        for each in (*files, folder / "lock", folder / BEGINS, folder / SETTLED):
            each.touch()
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            dies_after(steps, patched)
            end_copy(folder)
        assert steps < 11 or not folder.exists()
        with only_one(folder):
            assert all(each.exists() for each in files) or not (folder / SETTLED).exists()
