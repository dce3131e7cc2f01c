"""Whether anybody is there, for who reads the rows: by two looks, whatever the clocks say; and as a
probe asks it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordination.model import TSO_LOGICAL_BITS, Ownership
from sinks.control.changefeeds import FRESH_TTLS, ChangefeedRow, Changefeeds
from sinks.control.progress import BLOCKED, DROPPED, Progress, ProgressRow
from streaming.changefeed.freshness import Freshness
from streaming.cli.main import main

OWNER = Ownership(capture_id="c-1", epoch="e", etcd_cluster_id="etcd/uuid", election_revision=7)
KILLED_S, HOUR_S = 3 * 3600, 3600.0
TTL_S = 10.0


def row(age_s: float, **fields: Any) -> ChangefeedRow:
    """As its writer left it, by that one's clock."""
    base = ChangefeedRow(changefeed_id="shop", start_ts=0, checkpoint_ts=1, resolved_ts=1)
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    given = {"state": "running", "fresh_for_s": FRESH_TTLS * TTL_S, "updated_at": at, **fields}
    return replace(base, **given)


class Writer:
    """A clock that moves when it is waited on; a row that is refreshed meanwhile, or is not."""

    def __init__(self, off_s: float, *, is_alive: bool) -> None:
        self.off_s, self.is_alive, self.now_s = off_s, is_alive, 0.0
        self.row = row(off_s)

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, _event: threading.Event, timeout_s: float) -> bool:
        before, self.now_s = self.now_s, self.now_s + timeout_s
        if self.is_alive and self.now_s // (TTL_S / 3) > before // (TTL_S / 3):
            self.row = row(self.off_s)
        return False

    def read(self) -> list[ChangefeedRow]:
        return [self.row]


@pytest.mark.parametrize("off_s", [-HOUR_S, -5, 0, 5, 30, HOUR_S])
def test_a_living_one_is_never_taken_for_dead_whatever_its_clock(off_s: float) -> None:
    """Nor later: by then it was seen to write."""
    writer = Writer(off_s, is_alive=True)
    freshness = Freshness(writer)
    for _ in range(50):
        assert freshness.look(writer.read)[1] == frozenset()
        writer.wait(threading.Event(), 1.0)


@pytest.mark.parametrize("off_s", [-HOUR_S, 30, HOUR_S, 10 * 86_400])
def test_a_dead_one_is_found_by_a_second_look_and_then_at_once(off_s: float) -> None:
    writer = Writer(off_s, is_alive=False)
    freshness = Freshness(writer)
    assert freshness.look(writer.read)[1] == {"shop"}
    looked_s = writer.now_s
    assert looked_s <= TTL_S
    assert freshness.look(writer.read)[1] == {"shop"}
    assert writer.now_s == looked_s
    writer.is_alive = True  # started again
    writer.wait(threading.Event(), TTL_S)
    assert freshness.look(writer.read)[1] == frozenset()


def test_one_that_dies_while_it_is_watched_is_found_by_our_own_clock() -> None:
    writer = Writer(HOUR_S, is_alive=True)
    freshness = Freshness(writer)
    freshness.look(writer.read)
    writer.is_alive = False
    writer.wait(threading.Event(), FRESH_TTLS * TTL_S - 1)
    assert freshness.look(writer.read)[1] == frozenset()
    writer.wait(threading.Event(), TTL_S)
    assert freshness.look(writer.read)[1] == {"shop"}


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_who_has_ended_in_order_is_not_missed(state: str, tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    claimed = changefeeds.claim(row(0), OWNER, ttl_s=TTL_S, stop=threading.Event())
    assert claimed.fresh_for_s == FRESH_TTLS * TTL_S
    changefeeds.save(replace(claimed, state=state))  # type: ignore[arg-type]
    stored = changefeeds.read("shop")
    assert stored is not None
    assert stored.fresh_for_s is None
    old = replace(stored, updated_at=stored.updated_at - timedelta(days=2))
    assert Freshness().look(lambda: [old])[1] == frozenset()


# As a probe asks.


@dataclass
class Lake:
    """A warehouse whose rows a test writes; its changefeeds' writers are as old as it says."""

    warehouse: Path
    monkeypatch: pytest.MonkeyPatch

    def write(
        self,
        name: str = "shop",
        *,
        age_s: float = 0,
        lag_s: float = 1,
        ttl_s: float = 0.4,
        **of: Any,
    ) -> None:
        """``of``: fields of the changefeed's row, and ``tables``: by name their fields."""
        tables = of.pop("tables", {"orders": {}})
        now_s, ts = datetime.now(UTC).timestamp(), 0
        if lag_s is not None:
            ts = int((now_s - lag_s) * 1000) << TSO_LOGICAL_BITS
        changefeeds, progress = Changefeeds(str(self.warehouse)), Progress(str(self.warehouse))
        first = ChangefeedRow(changefeed_id=name, start_ts=0, checkpoint_ts=ts, resolved_ts=ts)
        with self.monkeypatch.context() as patch:
            at = datetime.now(UTC) - timedelta(seconds=age_s)
            patch.setattr("sinks.control.changefeeds._later_than", lambda _before: at)
            claimed = changefeeds.claim(first, OWNER, ttl_s=ttl_s, stop=threading.Event())
            changefeeds.save(replace(claimed, **{"state": "running", **of}))
        progress.claim(name, claimed.term)
        rows = [self._span(claimed, table, ts, fields) for table, fields in tables.items()]
        progress.advance(rows, claimed.term)

    def _span(self, of: ChangefeedRow, table: str, ts: int, fields: dict[str, Any]) -> ProgressRow:
        given = {"state": "replicating", "checkpoint_ts": ts, **fields}
        return ProgressRow(
            changefeed_id=of.changefeed_id, incarnation=1, schema_name="shop", table_name=table,
            generation=1, resolved_ts=ts, capture_id="c-1", epoch="e", fence=of.term << 32, **given,
        )  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake(tmp_path, monkeypatch)


@pytest.fixture
def progress(lake: Lake, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(("progress", "--sink-uri", f"delta://{lake.warehouse}", *arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capfd.readouterr()

    return run


Run = Callable[..., tuple[int, str, str]]
OLD_TS = 1 << 40


@pytest.mark.parametrize(
    ("rows", "code", "says"),
    [
        ([{}], 0, "fresh: shop"),
        ([{"lag_s": 75}], 3, "late: shop lags 75."),
        ([{"lag_s": 75, "state": "warning", "error": "no broker"}], 3, "(no broker)"),
        ([{"tables": {"a": {}, "b": {"checkpoint_ts": OLD_TS}}}], 3, "late: shop: table shop.b"),
        ([{"tables": {"b": {"checkpoint_ts": OLD_TS, "state": DROPPED}}}], 0, "fresh"),
        ([{"lag_s": None}], 3, "no checkpoint yet"),
        ([{"age_s": KILLED_S}], 4, "nobody there: shop: nobody has refreshed its row for 108"),
        ([{"age_s": 30, "lag_s": 75}], 4, "capture c-1 ("),
        ([{"state": "stopped", "age_s": KILLED_S, "lag_s": 75}], 4, "shop was stopped in order"),
        ([{"state": "finished", "age_s": KILLED_S, "lag_s": 75}], 0, "shop has finished"),
        ([{"state": "failed", "error": "no such\ntopic"}], 5, "failed: shop has failed (no such t"),
        ([{"state": "pending", "error": "why", "ttl_s": 10}], 5, "is tried again (why)"),
        ([{"tables": {"a": {}, "b": {"state": BLOCKED}}}], 5, "table shop.b is blocked and waits"),
        ([{"name": "a", "lag_s": 75}, {"name": "b", "age_s": 30}, {"name": "c"}], 4, "there: b:"),
        ([{"name": "a", "lag_s": 75}, {"name": "b", "state": "failed"}], 5, "failed: b has"),
    ],
)
def test_a_probe_gets_a_line_and_a_code(
    lake: Lake, progress: Run, rows: list[dict[str, Any]], code: int, says: str
) -> None:
    for each in rows:
        lake.write(**{"ttl_s": 3600 if not each.get("age_s") else 0.4, **each})
    ended, out, err = progress("--check")
    assert (ended, err) == (code, "")
    (line,) = out.splitlines()
    assert says in line
    ended, out, _ = progress("--check", "--format", "json")
    assert (ended, json.loads(out)["exit_code"]) == (code, code)


def test_how_late_is_late_can_be_said(lake: Lake, progress: Run) -> None:
    lake.write(lag_s=75, ttl_s=3600)
    assert [progress("--check", "--max-lag", each)[0] for each in ("90s", "2m", "1h")] == [0] * 3
    assert progress("--check", "--max-lag", "74s")[0] == 3
    for wrong in (
        ("--max-lag", "90s"), ("--check", "--max-lag", "soon"), ("--check", "--max-lag", "0s"),
        ("--check", "--watch"),
    ):  # fmt: skip
        ended, out, err = progress(*wrong)
        assert (ended, out, len(err.splitlines())) == (2, "", 1), wrong
    assert progress("--check", "-c", "nothing")[0] == 2


def test_what_nobody_refreshes_is_shown_as_not_running(lake: Lake, progress: Run) -> None:
    """Its tables too; and nothing that was measured then. What has ended stays as it was."""
    measured = {"messages_behind": 5, "messages_per_s": 4850.0, "time_left_s": 1.0}
    tables = {"orders": {}, "gone": {"state": DROPPED}}
    lake.write(age_s=45, tables=tables, **measured)
    lake.write("over", age_s=45, state="finished")
    code, out, _ = progress("--format", "json")
    assert code == 0
    found = json.loads(out)
    over, shop = found["changefeeds"]
    assert (over["state"], shop["state"], shop["last_state"]) == (
        "finished",
        "not running",
        "running",
    )
    assert [shop[name] for name in measured] == [None] * 3
    assert 45 <= shop["refresh_age_s"] < 60
    states = {each["table_name"]: each["state"] for each in found["spans"][1:]}
    assert states == {"orders": "not running", "gone": "dropped"}
    _, out, _ = progress("-c", "shop")
    assert "4,850" not in out
    note = next(line for line in out.splitlines() if line.startswith("shop: not running: "))
    assert "capture c-1" in note
    assert "in state running" in note


@pytest.mark.spark
def test_the_documents_query_shows_it_too(lake: Lake, spark: SparkSession) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/reading.md").read_text()
    (query,) = (
        each for each in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "lag_s" in each
    )
    query = query.replace("<warehouse>", str(lake.warehouse)).strip().rstrip(";")

    def states() -> dict[str, str]:
        return {row.table_name: row.state for row in spark.sql(query).collect()}

    lake.write(ttl_s=3600, tables={"orders": {}, "gone": {"state": DROPPED}})
    assert states() == {"orders": "replicating", "gone": "dropped"}
    lake.write(age_s=45, tables={"orders": {}, "gone": {"state": DROPPED}})
    assert states() == {"orders": "not running", "gone": "dropped"}
    lake.write(age_s=45, state="finished")
    assert states()["orders"] == "replicating"
