"""``tidelake ddl``: what it shows, what it says, and what it refuses."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conf.settings import EtcdSettings
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import FeedState, RunningError
from coordination.model import ChangefeedID, Ownership, Ts
from coordination.orchestrator.commit_once import commit_once
from sinks.control.blocked_ddls import BlockedDdl, BlockedDdls
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.earlier_owner import ChangefeedState
from streaming.cli.main import main

SOURCE = "kafka://127.0.0.1:9/shop?protocol=canal-json&enable-tidb-extension=true"
QUERY = "ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE o"
AT = ("-c", "shop", "--table", "shop.orders", "--commit-ts", "40")
Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """The program in this process, on a warehouse of the test's own."""
    for name in [name for name in os.environ if name.startswith("TIDELAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIDELAKE_SINK_URI", f"delta://{tmp_path}")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capfd.readouterr()

    return run


def stopped_at(
    warehouse: Path, checkpoint_ts: int, *, scope: str = "", state: ChangefeedState = "failed"
) -> None:
    """A changefeed that stands there. ``scope``: of a `run`."""
    owner = Ownership(
        capture_id="c", epoch="e", etcd_cluster_id=f"etcd/uuid{scope}", election_revision=1
    )
    first = ChangefeedRow(changefeed_id="shop", start_ts=0, checkpoint_ts=0, resolved_ts=0)
    changefeeds = Changefeeds(str(warehouse))
    row = changefeeds.claim(first, owner, ttl_s=0.1, stop=threading.Event())
    changefeeds.save(replace(row, checkpoint_ts=checkpoint_ts, state=state))


def blocks(warehouse: Path, table: str = "orders", schema: str = "shop") -> None:
    row = BlockedDdl(
        changefeed_id="shop",
        schema_name=schema,
        table_name=table,
        commit_ts=40,
        query=QUERY,
        reason="it exchanges rows",
    )
    BlockedDdls(str(warehouse)).note(row)


def listed(program: Program) -> list[dict[str, Any]]:
    code, out, err = program("ddl", "list", "--format", "json")
    assert (code, err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(out)["rows"]
    return rows


def test_a_run_is_told_to_skip(program: Program, tmp_path: Path) -> None:
    assert listed(program) == []
    stopped_at(tmp_path, 39, scope="/run-shop")
    blocks(tmp_path)
    (row,) = listed(program)
    assert (row["changefeed"], row["table"], row["commit_ts"]) == ("shop", "shop.orders", 40)
    assert (row["state"], row["query"], row["reason"]) == ("blocks", QUERY, "it exchanges rows")
    code, out, err = program("ddl", "list", "-c", "shopp")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has no changefeed 'shopp', but shop" in err
    shown = program("ddl", "list", "-c", "shop")[1]
    assert QUERY in shown
    for _ in range(2):
        code, out, err = program("ddl", "skip", *AT)
        assert (code, err) == (0, "")
        assert out == (
            "shop.orders: the DDL at commit-ts 40 is passed over\n"
            "start `tidelake run` again: it goes on from there\n"
        )
    assert [row["state"] for row in listed(program)] == ["to be skipped"]
    stopped_at(tmp_path, 45, scope="/run-shop", state="running")
    assert [row["state"] for row in listed(program)] == ["skipped"]
    assert "that has been done already" in program("ddl", "skip", *AT)[1]
    code, _, err = program("ddl", "apply", *AT)
    assert (code, err.count("\n")) == (2, 1)
    assert "is beyond that DDL, at checkpoint-ts 45" in err


def test_a_database_whose_name_has_a_dot_is_found(program: Program, tmp_path: Path) -> None:
    stopped_at(tmp_path, 39, scope="/run-shop")
    blocks(tmp_path, schema="shop.eu")
    at = ("-c", "shop", "--table", listed(program)[0]["table"], "--commit-ts", "40")
    code, _, err = program("ddl", "skip", *at)
    assert (code, err) == (0, "")
    assert [row["state"] for row in listed(program)] == ["to be skipped"]


def test_another_statement_is_run_in_its_place(program: Program, tmp_path: Path) -> None:
    stopped_at(tmp_path, 39)
    blocks(tmp_path)
    sql = "ALTER TABLE Orders DROP COLUMN `c`"
    code, out, err = program("ddl", "apply", *AT, "--sql", sql)
    assert (code, err) == (0, "")
    assert f"is run as: {sql}\n`tidelake changefeed resume -c shop` goes on from there" in out
    (row,) = listed(program)
    assert (row["state"], row["sql"]) == ("to be applied", sql)
    assert f"is run as: {QUERY}\n" in program("ddl", "apply", *AT)[1]  # the last word counts
    (row,) = listed(program)
    assert (row["state"], row["sql"]) == ("to be applied", None)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("ALTER TABLE customers DROP COLUMN c", "is about shop.customers, not shop.orders"),
        ("ALTER TABLE other.orders DROP COLUMN c", "is about other.orders"),
        ("DROP DATABASE shop", "is about no single table"),
        ("ANALYZE TABLE orders", "`tidelake ddl skip` passes over the DDL"),
        ("DELETE FROM orders", "these are rows in statement format"),
    ],
)
def test_a_statement_that_cannot_be_meant_is_refused(
    program: Program, tmp_path: Path, sql: str, why: str
) -> None:
    stopped_at(tmp_path, 39)
    blocks(tmp_path)
    code, out, err = program("ddl", "apply", *AT, "--sql", sql)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err
    assert listed(program)[0]["state"] == "blocks"


def test_what_has_stopped_nobody_is_refused_and_leaves_nothing(
    program: Program, tmp_path: Path
) -> None:
    code, out, err = program("ddl", "skip", *AT)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no DDL of shop.orders at commit-ts 40 has blocked changefeed shop" in err
    assert list(tmp_path.iterdir()) == []
    blocks(tmp_path, table="")
    stopped_at(tmp_path, 39)
    of_the_schema = ("-c", "shop", "--table", "shop", "--commit-ts", "40")
    assert program("ddl", "skip", *of_the_schema)[0] == 0


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    try:
        yield client
    finally:
        client.close()


def test_a_changefeed_of_a_cluster_is_resumed_at_once(
    program: Program, tmp_path: Path, etcd: EmbeddedEtcd
) -> None:
    stopped_at(tmp_path, 39)
    blocks(tmp_path)
    cluster_id, name = f"c-{uuid4().hex[:8]}", ChangefeedName(ChangefeedID("shop"))
    where = ("--etcd", etcd.endpoint, "--cluster-id", cluster_id)
    code, _, err = program("ddl", "skip", *AT, *where)
    assert (code, err.count("\n")) == (1, 1), "the cluster has no such changefeed"
    made = ("changefeed", "create", "-c", "shop", "--source-uri", SOURCE, "--no-check")
    assert program(*made, *where)[0] == 0
    assert "the changefeed runs" in program("ddl", "skip", *AT, *where)[1]

    def state() -> FeedState:
        with client_of(etcd) as client:
            return read_changefeed(client, cluster_id, name).known_info.state

    with client_of(etcd) as client:
        error = RunningError(code="CDC:ErrExecDDLFailed", message="it cannot be run")
        fails = Decision(event=FeedEvent.UNRETRYABLE_ERROR, error=error)
        writes = read_changefeed(client, cluster_id, name).writes()
        commit_once(client, [writes.feed_event(fails)], keys.delete_counter_key(cluster_id))
    assert state() is FeedState.FAILED
    assert "the changefeed is resumed" in program("ddl", "skip", *AT, *where)[1]
    assert state() is FeedState.NORMAL
    assert program("changefeed", "pause", "-c", "shop", *where)[0] == 0
    out = program("ddl", "skip", *AT, *where)[1]
    assert "the changefeed is paused: `tidelake changefeed resume -c shop`" in out
    assert state() is FeedState.STOPPED
    (row,) = BlockedDdls(str(tmp_path)).read("shop").values()
    assert (row.action, row.place[1]) == ("skip", Ts(40))
