"""A DDL runs again under a new owner, on a table that its writer has brought further: no snapshot
below that shows what came later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from coordination.model import Ts
from coordination.ports import Advance
from coordination.scheduler.messages import Checkpoint
from coordination.scheduler.table_status import TableState, TableStatus
from sinks.merge_on_write.engine import MergeOnWriteEngine
from streaming.stream.backlog import Backlog
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import ADD_N, change, ddl
from tests.sinks.merge_on_write.orders import NAME, UPSERTED, write
from tests.streaming.owner.test_cuts_after_drops import reported
from tests.streaming.owner.test_schema_rows import Owner, alter

DDL_TS, WRITTEN_TS = 100, 150


def told(owner: Owner, ts: int, version: int) -> None:
    """By who writes the table."""
    (span,) = reported(owner, ts)
    status = TableStatus(
        span.span.table_id, TableState.REPLICATING, Ts(ts), Ts(ts), delta_version=version
    )
    at = Checkpoint(Ts(ts), Ts(ts))
    span = replace(span, checkpoint=at, delta_version=version, status=status)
    advance = Advance(checkpoint_ts=Ts(ts), resolved_ts=Ts(ts), spans=(span,))
    owner.rows.write(advance, reading={}, marks={}, backlog=Backlog(), source_left_s=None)


def cuts(warehouse: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(str(warehouse / "_tidelake" / "snapshots")).to_pyarrow_table().to_pylist()
    return sorted((row["primary_ts"], dict(row["tables"])[str(NAME)]) for row in rows)


def test_what_was_written_before_it_is_looked_at_again_is_in_no_earlier_cut(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make()
    uri = owner.spans.uri(NAME)
    alter(owner, ddl(uri, ADD_N, DDL_TS))
    altered = owner.spans.look_again(NAME)
    assert altered.target is not None
    assert altered.version is not None
    order = write(uri, WRITTEN_TS, UPSERTED)
    changes = order.changes.append_column("n", pa.nulls(order.changes.num_rows, pa.int32()))
    engine = MergeOnWriteEngine({}, keeps_up=False)
    applied = engine.apply(replace(order, target=altered.target, changes=changes))
    engine.close()
    owner.spans.put(owner.spans.look_again(NAME))
    moved = replace(owner.spans[NAME], checkpoint=Ts(DDL_TS + 1))
    assert moved.version_at_checkpoint is None
    owner.rows.altered(owner.spans[NAME])
    told(owner, WRITTEN_TS - 30, altered.version)  # on its way since before the commit
    told(owner, WRITTEN_TS, applied.version)
    assert cuts(tmp_path) == [
        (WRITTEN_TS - 30, altered.version),
        (WRITTEN_TS, applied.version),
    ]


def test_the_next_ddl_runs_before_the_report_between_the_two_is_looked_at(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make()
    uri = owner.spans.uri(NAME)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    add_m = change(*ADD_N.after.columns, column("m", "int"), before=ADD_N.after)
    for ts, does in ((DDL_TS, ADD_N), (DDL_TS + 10, add_m)):
        engine.alter(ddl(uri, does, ts))
        owner.spans.put(owner.spans.look_again(NAME))
        owner.rows.altered(owner.spans[NAME])
    engine.close()
    assert owner.spans[NAME].version == 2
    told(owner, DDL_TS + 9, 0)  # its writer has not looked at the table since
    told(owner, DDL_TS + 15, 0)
    assert cuts(tmp_path) == [(DDL_TS + 9, 1), (DDL_TS + 15, 2)]


def test_a_new_owner_knows_a_table_where_its_log_is(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.make()
    uri = owner.spans.uri(NAME)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    engine.apply(write(uri, WRITTEN_TS, UPSERTED))
    engine.close()
    heir = Owner(tmp_path)
    assert heir.spans[NAME].checkpoint == WRITTEN_TS
    assert heir.spans[NAME].version_at_checkpoint == 1
