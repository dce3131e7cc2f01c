"""Tables that wait for an operator: which DDLs run meanwhile, and when the changefeed stops."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from coordination.capture.owner.term import Term
from coordination.metadata.records import ChangefeedInfo
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, Ts
from coordination.ports import Advance, Changes, DdlScan
from coordination.scheduler.barrier import PendingDdl
from coordination.scheduler.coordinator import CoordinatorTick
from coordination.scheduler.messages import Checkpoint
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.scheduler.span_columns import SpanColumns
from tests.coordination.capture.owner.test_term_grid import FIRST_TS, MINUTE, TABLE, begun

HELD = PendingDdl(commit_ts=Ts(19), table_ids=(1,), is_held=True)
OTHER = PendingDdl(commit_ts=Ts(29), table_ids=(2,))
ALL = PendingDdl(commit_ts=Ts(39), table_ids=None)


def ran(*pending: PendingDdl, checkpoint: int, others: int, tables: int = 2, target: int = 0):
    """Which DDLs one tick begins to run."""
    begun: list[PendingDdl] = []
    recorded: list[Advance] = []
    control: Any = SimpleNamespace(run_ddl=begun.append, record=recorded.append)
    term = Term(
        ChangefeedInfo(id=ChangefeedID("shop"), target_ts=Ts(target)),
        control,
        capture=CaptureInfo(id=CaptureID("a"), address="a:1", version="1", start_timestamp=0),
        launch=1,
        settings=SchedulerSettings(),
        rng=random.Random(1),
    )
    replication = SimpleNamespace(
        tables=range(1, tables + 1),
        sets=SpanColumns(),
        is_settled=False,
        is_reported=lambda _: True,
    )
    captures = SimpleNamespace(captures={})
    coordinator: Any = SimpleNamespace(
        replication=replication, captures=captures, take_progress=list
    )
    tick = CoordinatorTick(
        outbox=(),
        checkpoint=Checkpoint(Ts(checkpoint), Ts(checkpoint)),
        others_ts=Ts(others),
        can_proceed=True,
        is_awaiting=False,
    )
    term._proceed(coordinator, tick, DdlScan(position_ts=Ts(90), pending=pending), 0.0)
    (advance,) = recorded
    assert (advance.checkpoint_ts, advance.sync_point_ts) == (checkpoint, None)
    assert advance.finished == (0 < target <= checkpoint)
    return begun


@pytest.mark.parametrize(
    ("pending", "others", "begun"),
    [
        ((HELD,), 60, []),
        ((HELD, OTHER, ALL), 28, []),
        ((HELD, OTHER, ALL), 29, [OTHER]),
        ((HELD, ALL), 38, []),
        ((HELD, ALL), 39, [ALL]),
    ],
)
def test_ddls_of_other_tables_run_when_these_are_there(
    pending: tuple[PendingDdl, ...], others: int, begun: list[PendingDdl]
) -> None:
    assert ran(*pending, checkpoint=19, others=others) == begun


def test_where_nothing_goes_on_the_changefeed_stops() -> None:
    assert ran(HELD, checkpoint=18, others=18, tables=1) == [], "it is not there yet"
    assert ran(HELD, checkpoint=19, others=90, tables=1) == [HELD], "all tables wait"
    assert ran(HELD, checkpoint=19, others=60, target=70) == []
    assert ran(HELD, checkpoint=19, others=70, target=70) == [HELD], "the others are at the end"


def test_sync_points_are_passed_over_meanwhile() -> None:
    claim_ts = Ts(FIRST_TS - 9 * MINUTE)
    scan = DdlScan(position_ts=Ts(FIRST_TS))
    assert sync_point_barrier(begun(claim_ts, scan, Changes(added=(TABLE,))), scan) < FIRST_TS
    held = PendingDdl(commit_ts=claim_ts, table_ids=(9,), is_held=True)
    scan = DdlScan(position_ts=Ts(FIRST_TS), pending=(held,))
    term = begun(claim_ts, scan, Changes(added=(TABLE,)))
    assert sync_point_barrier(term, scan) == FIRST_TS


def sync_point_barrier(term: Term, scan: DdlScan) -> Ts:
    assert term.coordinator is not None
    return term._barrier(term.coordinator, scan).global_barrier_ts
