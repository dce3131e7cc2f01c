"""Where the sync points of a changefeed begin."""

from __future__ import annotations

import random

import pytest

from coordination.capture.owner.term import Term
from coordination.metadata.records import ChangefeedInfo
from coordination.model import (
    TSO_LOGICAL_BITS,
    CaptureID,
    CaptureInfo,
    ChangefeedID,
    TermNumber,
    Ts,
)
from coordination.ports import Advance, Changes, Claim, DdlScan, RegisteredTable
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.messages import Span
from coordination.scheduler.schedulers import SchedulerSettings

MINUTE = 60_000 << TSO_LOGICAL_BITS
FIRST_TS = Ts(29_000_000 * MINUTE + 7)  # in 2025
CONFIG = {"enable-sync-point": True, "sync-point-interval": "1m"}


class DeltaControlWriter:
    """Claims at once, and says what it is told to say."""

    def __init__(self, claim: Claim, scan: DdlScan, changes: Changes) -> None:
        self._claim, self._scan, self._changes = claim, scan, changes

    def claimed(self) -> Claim:
        return self._claim

    def ddl_scan(self) -> DdlScan:
        return self._scan

    def take_changes(self) -> Changes:
        changes, self._changes = self._changes, Changes()
        return changes

    def run_ddl(self, ddl: PendingDdl) -> None: ...
    def record(self, advance: Advance) -> None: ...
    def close(self, *, drop: bool) -> None: ...
    def is_closed(self) -> bool:
        return True


TABLE = RegisteredTable(span=Span(1, "shop", "orders"), start_ts=FIRST_TS)


@pytest.mark.parametrize(
    ("tables", "pending"),
    [
        ((TABLE,), ()),
        ((), (PendingDdl(commit_ts=FIRST_TS, table_ids=None),)),
    ],
    ids=["the first table", "the first DDL"],
)
def test_a_changefeed_from_the_beginning_of_time_begins_at_its_first_table(
    tables: tuple[RegisteredTable, ...], pending: tuple[PendingDdl, ...]
) -> None:
    scan = DdlScan(position_ts=Ts(FIRST_TS + 5 * MINUTE), pending=pending)
    term = begun(Ts(0), scan, Changes(added=tables))
    assert term._sync_point_ts == Ts((FIRST_TS // MINUTE + 1) * MINUTE)


def test_one_that_has_a_checkpoint_passes_over_nothing() -> None:
    checkpoint_ts = Ts(FIRST_TS - 9 * MINUTE)
    scan = DdlScan(position_ts=Ts(FIRST_TS + 5 * MINUTE))
    term = begun(checkpoint_ts, scan, Changes(added=(TABLE,)))
    assert term._sync_point_ts == Ts((checkpoint_ts // MINUTE + 1) * MINUTE)


def begun(checkpoint_ts: Ts, scan: DdlScan, changes: Changes) -> Term:
    claim = Claim(term=TermNumber(1), checkpoint_ts=checkpoint_ts, tables=())
    info = ChangefeedInfo(id=ChangefeedID("shop"), config=CONFIG)
    capture = CaptureInfo(id=CaptureID("a"), address="a:1", version="1", start_timestamp=0)
    term = Term(
        info,
        DeltaControlWriter(claim, scan, changes),
        capture=capture,
        launch=1,
        settings=SchedulerSettings(),
        rng=random.Random(1),
    )
    assert term.tick([], [CaptureID("a")], 0.0) is not None
    return term
