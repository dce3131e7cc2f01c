"""The barrier is the least of what bounds it, and starts at the checkpoint."""

from __future__ import annotations

import pytest

from coordination.model import Ts
from coordination.scheduler.barrier import (
    MAX_TABLE_BARRIERS,
    Barrier,
    PendingDdl,
    compute_barrier,
)


def ddl(ts: int, *tables: int) -> PendingDdl:
    return PendingDdl(commit_ts=Ts(ts), table_ids=tables or None)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, 1_000),
        ({"ddl_scan_ts": 0}, 100),  # nothing was read: nobody goes past the checkpoint
        ({"next_sync_point_ts": 500}, 500),
        ({"target_ts": 700}, 700),
        ({"target_ts": 700, "next_sync_point_ts": 500}, 500),
        ({"target_ts": 50}, 100),
        ({"pending_ddls": [ddl(300)], "next_sync_point_ts": 500}, 300),
        ({"pending_ddls": [ddl(600), ddl(300)]}, 300),
        ({"pending_ddls": [ddl(100)]}, 100),
        ({"pending_ddls": [ddl(1_000)]}, 1_000),
    ],
)
def test_the_global_barrier_is_the_least_bound(bounds: dict, expected: int):
    made = compute_barrier(**{"checkpoint_ts": Ts(100), "ddl_scan_ts": Ts(1_000), **bounds})
    assert made == Barrier(Ts(expected))
    assert made.min_table_barrier_ts == made.limit_ts(1) == expected


def test_a_ddl_of_one_table_holds_that_table_and_the_checkpoint():
    made = compute_barrier(
        checkpoint_ts=Ts(100),
        ddl_scan_ts=Ts(1_000),
        pending_ddls=[ddl(400, 1), ddl(300, 1, 2), ddl(2_000, 3)],
        target_ts=Ts(900),
    )
    assert made.global_barrier_ts == 900
    assert [made.limit_ts(table) for table in (1, 2, 3)] == [300, 300, 900]
    assert made.min_table_barrier_ts == 300


def test_a_ddl_of_all_tables_holds_those_behind_it_in_the_queue():
    made = compute_barrier(
        checkpoint_ts=Ts(100),
        ddl_scan_ts=Ts(1_000),
        pending_ddls=[ddl(500), ddl(600, 1), ddl(400, 2)],
    )
    assert made == Barrier(Ts(500), {2: Ts(400)})


def test_more_table_barriers_than_fit_hold_all_tables():
    pending = [ddl(200 + n, n) for n in range(1, MAX_TABLE_BARRIERS + 11)]
    made = compute_barrier(checkpoint_ts=Ts(100), ddl_scan_ts=Ts(1_000), pending_ddls=pending)
    assert len(made.table_barriers) == MAX_TABLE_BARRIERS
    assert made.global_barrier_ts == 200 + MAX_TABLE_BARRIERS + 1


def test_a_barrier_that_was_sent_is_never_tightened_by_what_is_read_later():
    earlier = compute_barrier(checkpoint_ts=Ts(100), ddl_scan_ts=Ts(500))
    later = compute_barrier(
        checkpoint_ts=Ts(100), ddl_scan_ts=Ts(900), pending_ddls=[ddl(501, 1), ddl(600)]
    )
    assert all(later.limit_ts(table) >= earlier.limit_ts(table) for table in (1, 2))
