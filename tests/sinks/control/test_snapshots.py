"""The ledger: each cut once, under one term, found by time, and not for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import TermRefused
from coordination.model import tso_time
from sinks.control import snapshots as module
from sinks.control.snapshots import SCHEMA, SnapshotRow, Snapshots, kept
from sinks.control.upkeep import Upkeep

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def cut(ts: int, **changes) -> SnapshotRow:
    base = SnapshotRow(
        changefeed_id="shop",
        primary_ts=ts,
        tables={"shop.a": ts, "shop.b": 0},
        dead_letters=1,
        kept_h=24,
    )
    return replace(base, **changes)


def claimed(warehouse: Path, term: int = 1, changefeed_id: str = "shop", **options) -> Snapshots:
    snapshots = Snapshots(str(warehouse), **options)
    snapshots.claim(changefeed_id, term)
    return snapshots


def stored(warehouse: Path) -> pa.Table:
    return DeltaTable(str(warehouse / "_tidelake" / "snapshots")).to_pyarrow_table()


def test_an_unwritten_ledger_is_empty(tmp_path: Path) -> None:
    snapshots = Snapshots(str(tmp_path))
    assert snapshots.latest("shop") is None
    assert snapshots.as_of("shop", 2**62) is None
    assert claimed(tmp_path).latest("shop") is None


def test_a_cut_is_published_once(tmp_path: Path) -> None:
    snapshots = claimed(tmp_path)
    assert snapshots.publish(cut(5), 1)
    assert not snapshots.publish(cut(5), 1)
    assert not claimed(tmp_path).publish(cut(5), 1)
    assert snapshots.publish(cut(6), 1)
    assert not snapshots.publish(cut(5), 1)
    assert stored(tmp_path)["primary_ts"].to_pylist().count(5) == 1


def test_the_cut_is_found_by_time(tmp_path: Path) -> None:
    snapshots = claimed(tmp_path)
    for ts in (10, 30, 20):
        assert snapshots.publish(cut(ts, created_at=NOON), 1)
    reader = Snapshots(str(tmp_path))
    assert reader.latest("shop") == cut(30, created_at=NOON)
    assert reader.as_of("shop", 29) == cut(20, created_at=NOON)
    assert reader.as_of("shop", 20) == cut(20, created_at=NOON)
    assert reader.as_of("shop", 9) is None
    assert reader.as_of("other", 30) is None
    assert reader.earliest("shop") == cut(10, created_at=NOON)
    assert reader.earliest("other") is None


def test_changefeeds_have_ledgers_of_their_own(tmp_path: Path) -> None:
    shop, crm = claimed(tmp_path), claimed(tmp_path, 4, "crm")
    assert shop.publish(cut(5), 1)
    assert crm.publish(cut(5, changefeed_id="crm"), 4)
    assert shop.publish(cut(6), 1)
    assert not crm.publish(cut(5, changefeed_id="crm"), 4)
    latest = crm.latest("crm")
    assert latest is not None
    assert latest.primary_ts == 5


def test_one_object_may_serve_two_changefeeds(tmp_path: Path) -> None:
    snapshots = claimed(tmp_path)
    snapshots.claim("crm", 1)
    for ts in (1, 2, 3):
        assert snapshots.publish(cut(ts), 1)
        assert snapshots.publish(cut(ts, changefeed_id="crm"), 1)
        assert not snapshots.publish(cut(ts), 1)


def test_an_overtaken_term_publishes_nothing(tmp_path: Path) -> None:
    zombie = claimed(tmp_path)
    assert zombie.publish(cut(5), 1)
    claimed(tmp_path, 2)
    with pytest.raises(TermRefused, match="our term 1 was overtaken by term 2"):
        zombie.publish(cut(6), 1)
    with pytest.raises(TermRefused):
        zombie.claim("shop", 1)
    assert stored(tmp_path)["primary_ts"].to_pylist() == [5]


def test_threads_that_publish_the_same_cuts_add_each_once(tmp_path: Path) -> None:
    claimed(tmp_path)

    def run(_: int) -> int:
        snapshots = Snapshots(str(tmp_path))
        return sum(snapshots.publish(cut(ts), 1) for ts in range(1, 11))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(4))) == 10
    assert sorted(stored(tmp_path)["primary_ts"].to_pylist()) == list(range(1, 11))


def ledger(*rows: tuple[str, int, datetime]) -> pa.Table:
    records = [
        {"changefeed_id": name, "primary_ts": ts, "created_at": at, "tables": []}
        for name, ts, at in rows
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


def test_age_is_counted_from_the_newest_row_of_each_changefeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = NOON - timedelta(days=300)
    rows = ledger(
        ("quiet", 1, old),
        ("shop", 1, NOON - timedelta(hours=25)),
        ("shop", 2, NOON),
        ("shop", 3, NOON),
    )
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    left = kept(rows)
    assert [(r["changefeed_id"], r["primary_ts"]) for r in left.to_pylist()] == [
        ("quiet", 1),
        ("shop", 2),
        ("shop", 3),
    ]


def test_a_clock_that_jumped_ahead_does_not_empty_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ledger(
        *(("shop", ts, NOON) for ts in range(50)), ("shop", 50, NOON + timedelta(days=3650))
    )
    monkeypatch.setattr(module, "LEAST_ROWS", 10)
    left = kept(rows)
    assert left["primary_ts"].to_pylist() == list(range(41, 51))


def test_where_a_clock_was_ahead_for_a_while_cuts_are_kept_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been the clock of the owner before, on another machine."""
    ahead = NOON + timedelta(days=3650)
    rows = ledger(
        ("shop", 0, NOON - timedelta(hours=25)),
        *(("shop", ts, NOON) for ts in range(1, 50)),
        *(("shop", ts, ahead) for ts in range(50, 53)),
        *(("shop", ts, NOON + timedelta(minutes=1)) for ts in range(53, 60)),
    )
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    assert kept(rows)["primary_ts"].to_pylist() == list(range(1, 60))


def test_at_most_so_many_rows_of_a_changefeed_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ledger(*(("shop", ts, NOON) for ts in range(50)), ("crm", 1, NOON))
    monkeypatch.setattr(module, "MOST_ROWS", 20)
    left = kept(rows)
    assert left["primary_ts"].to_pylist() == [1, *range(30, 50)]
    assert kept(rows.slice(0, 0)).num_rows == 0


def test_after_an_hour_one_cut_a_minute_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a day's fit, though one may come every second; whoever asks for a time between gets
    one that is less than a minute older."""
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    every = timedelta(seconds=10)
    start = NOON - timedelta(hours=3)
    cuts = [("shop", n, start + n * every) for n in range(3 * 360 + 1)]
    left = kept(ledger(*cuts))["primary_ts"].to_pylist()
    assert left == [*range(0, 2 * 360, 6), *range(2 * 360, 3 * 360 + 1)]


def test_the_newest_row_says_how_long_cuts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    ages = (49, 47, 25, 23, 0)
    rows = ledger(*(("shop", n, NOON - timedelta(hours=age)) for n, age in enumerate(ages)))
    hours = pa.array([None, None, None, None, 48], pa.int64())
    told = rows.set_column(rows.schema.get_field_index("kept_h"), SCHEMA.field("kept_h"), hours)
    assert kept(rows)["primary_ts"].to_pylist() == [3, 4]
    assert kept(told)["primary_ts"].to_pylist() == [1, 2, 3, 4]


def test_120_cuts_leave_few_files_rows_and_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 40)
    snapshots = claimed(tmp_path, upkeep=Upkeep(every_commits=10, retention=timedelta(0)))
    folder = tmp_path / "_tidelake" / "snapshots"
    most_files = 0
    for ts in range(1, 121):
        assert snapshots.publish(cut(ts), 1)
        assert not snapshots.publish(cut(ts), 1)
        listed = len(list(folder.glob("*.parquet"))) + len(list((folder / "_delta_log").iterdir()))
        most_files = max(most_files, listed)
    assert most_files <= 60
    assert 40 <= len(stored(tmp_path)) <= 50
    latest = Snapshots(str(tmp_path)).latest("shop")
    assert latest is not None
    assert latest.primary_ts == 120


def test_deltalake_reads_the_documented_columns(tmp_path: Path) -> None:
    claimed(tmp_path).publish(cut(1000 << 18), 1)
    rows = stored(tmp_path)
    assert rows.schema.names == SCHEMA.names
    assert rows["primary_time"].to_pylist() == [tso_time(1000 << 18)]
    assert dict(rows["tables"].to_pylist()[0]) == {"shop.a": 1000 << 18, "shop.b": 0}
