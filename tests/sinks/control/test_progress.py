"""Progress advances in one commit, under one term, and never falls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.errors import TermRefused, TidelakeError
from coordination.model import TableName, fence_number, tso_time
from sinks.control import control_table
from sinks.control.progress import SCHEMA, Progress, ProgressRow

ORDERS = TableName("shop", "orders")


def row(table: str = "orders", ts: int = 1 << 18, *, term: int = 1, **changes) -> ProgressRow:
    base = ProgressRow(
        changefeed_id="shop",
        incarnation=1,
        schema_name="shop",
        table_name=table,
        generation=1,
        state="replicating",
        checkpoint_ts=ts,
        resolved_ts=ts + 5,
        delta_version=3,
        engine="merge-on-write",
        dead_letters=2,
        source_positions={"shop/0": 17},
        capture_id="c1",
        epoch="e1",
        fence=fence_number(term),
    )
    return replace(base, **changes)


def claimed(warehouse: Path, term: int = 1, changefeed_id: str = "shop") -> Progress:
    progress = Progress(str(warehouse))
    progress.claim(changefeed_id, term)
    return progress


def version(warehouse: Path) -> int:
    return DeltaTable(str(warehouse / "_tidelake" / "progress")).version()


def test_there_is_no_progress_before_a_claim(tmp_path: Path) -> None:
    assert Progress(str(tmp_path)).read("shop") == {}
    assert Progress(str(tmp_path)).read_all() == []
    assert list(tmp_path.iterdir()) == []


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    progress = claimed(tmp_path)
    bare = row("empty", delta_version=None, engine=None, source_positions={})
    progress.advance([row(), bare], 1)
    stored = Progress(str(tmp_path)).read("shop")
    assert {name: replace(r, updated_at=None) for name, r in stored.items()} == {
        ORDERS: row(),
        TableName("shop", "empty"): bare,
    }
    assert all(r.updated_at is not None for r in stored.values())
    assert stored[ORDERS].checkpoint_time == tso_time(1 << 18)


def test_all_rows_of_a_batch_are_one_commit_and_other_tables_stay(tmp_path: Path) -> None:
    progress = claimed(tmp_path)
    progress.advance([row(f"t{n}") for n in range(100)], 1)
    before = version(tmp_path)
    progress.advance([row(f"t{n}", ts=9 << 18) for n in range(50)], 1)
    assert version(tmp_path) == before + 1
    stored = progress.read("shop")
    assert len(stored) == 100
    assert stored[TableName("shop", "t49")].checkpoint_ts == 9 << 18
    assert stored[TableName("shop", "t50")].checkpoint_ts == 1 << 18


def test_no_rows_are_no_commit(tmp_path: Path) -> None:
    progress = claimed(tmp_path)
    before = version(tmp_path)
    progress.advance([], 1)
    assert version(tmp_path) == before


def test_two_changefeeds_keep_their_rows_and_terms(tmp_path: Path) -> None:
    shop, crm = claimed(tmp_path), claimed(tmp_path, 7, "crm")
    shop.advance([row()], 1)
    crm.advance([row(term=7, changefeed_id="crm", ts=3 << 18)], 7)
    shop.advance([row(ts=2 << 18)], 1)
    assert shop.read("shop")[ORDERS].checkpoint_ts == 2 << 18
    assert shop.read("crm")[ORDERS].checkpoint_ts == 3 << 18
    assert [r.changefeed_id for r in crm.read_all()] == ["crm", "shop"]


def test_a_stopped_changefeeds_dropped_tables_stay_dropped(tmp_path: Path) -> None:
    progress = claimed(tmp_path)
    progress.advance([row(), row("old", state="dropped")], 1)
    progress.stop("shop", 1)
    states = {name.table: each.state for name, each in progress.read("shop").items()}
    assert states == {"orders": "stopped", "old": "dropped"}
    before = version(tmp_path)
    progress.stop("shop", 1)
    assert version(tmp_path) == before


def test_a_handle_from_before_the_claim_is_refused(tmp_path: Path) -> None:
    zombie = claimed(tmp_path)
    zombie.advance([row()], 1)
    claimed(tmp_path, 2)
    with pytest.raises(TermRefused) as caught:
        zombie.advance([row(ts=9 << 18)], 1)
    for part in ("changefeed shop", "our term 1", "term 2", "stands by"):
        assert part in str(caught.value)
    assert zombie.read("shop")[ORDERS].checkpoint_ts == 1 << 18


def test_a_claim_between_check_and_commit_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = claimed(tmp_path)
    write = control_table.write_deltalake

    def paused(*args, **options) -> None:
        monkeypatch.setattr(control_table, "write_deltalake", write)
        claimed(tmp_path, 2).advance([row(ts=3 << 18, term=2)], 2)
        write(*args, **options)

    monkeypatch.setattr(control_table, "write_deltalake", paused)
    with pytest.raises(TermRefused):
        zombie.advance([row(ts=9 << 18)], 1)
    assert zombie.read("shop")[ORDERS].checkpoint_ts == 3 << 18


def test_an_older_term_may_not_be_claimed_and_the_same_one_may(tmp_path: Path) -> None:
    progress = claimed(tmp_path, 5)
    progress.claim("shop", 5)
    with pytest.raises(TermRefused, match="our term 4 was overtaken by term 5"):
        progress.claim("shop", 4)


def test_a_term_that_was_not_claimed_here_may_not_write(tmp_path: Path) -> None:
    progress = claimed(tmp_path, 5)
    with pytest.raises(TermRefused, match=r"does not hold our term 6 \(it holds 5\)"):
        progress.advance([row(term=6)], 6)


def test_the_term_outlives_overwrites_and_log_clean_up(tmp_path: Path) -> None:
    progress = claimed(tmp_path, 5)
    for ts in range(1, 120):
        progress.advance([row(ts=ts << 18, term=5)], 5)
    with pytest.raises(TermRefused):
        Progress(str(tmp_path)).claim("shop", 4)


def test_a_checkpoint_never_falls_within_an_incarnation(tmp_path: Path) -> None:
    progress = claimed(tmp_path)
    progress.advance([row(ts=9 << 18)], 1)
    with pytest.raises(TidelakeError, match=r"shop\.orders back from"):
        progress.advance([row(ts=8 << 18), row("other")], 1)
    assert set(progress.read("shop")) == {ORDERS}  # all or nothing
    progress.advance([row(ts=2 << 18, incarnation=2)], 1)
    with pytest.raises(TidelakeError, match="refusing"):
        progress.advance([row(ts=99 << 18, incarnation=1)], 1)


def test_changefeeds_that_advance_at_once_lose_nothing(tmp_path: Path) -> None:
    def run(number: int) -> None:
        progress = claimed(tmp_path, 1, f"feed-{number}")
        for ts in range(1, 8):
            progress.advance([row(ts=ts << 18, changefeed_id=f"feed-{number}")], 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    rows = Progress(str(tmp_path)).read_all()
    assert [(r.changefeed_id, r.checkpoint_ts >> 18) for r in rows] == [
        (f"feed-{number}", 7) for number in range(8)
    ]


def test_deltalake_reads_the_documented_columns(tmp_path: Path) -> None:
    claimed(tmp_path).advance([row()], 1)
    table = DeltaTable(str(tmp_path / "_tidelake" / "progress"))
    stored = table.to_pyarrow_table()
    assert stored.schema.names == SCHEMA.names
    assert stored["checkpoint_time"].to_pylist() == [tso_time(1 << 18)]
    assert dict(stored["source_positions"].to_pylist()[0]) == {"shop/0": 17}
    assert table.protocol().min_writer_version == 2
