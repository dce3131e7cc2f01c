"""No snapshot leaves a table out that was there, though nobody knows in which version, since who
dropped it died before it said so."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coordination.model import TableName, Ts
from coordination.ports import Advance
from coordination.scheduler.coordinator import SpanProgress
from coordination.scheduler.messages import Checkpoint
from coordination.scheduler.replication_set import ReplicationState
from coordination.scheduler.table_status import TableState, TableStatus
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.target.table_properties import DdlIdentity
from streaming.changefeed.replicated_table import span_of
from streaming.owner.control_rows import EndedSpan
from streaming.stream.backlog import Backlog
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.orders import NAME, target
from tests.streaming.owner.test_schema_rows import MADE, Owner

OTHER = TableName("shop", "stays")
DROP_TS = 100


def made(owner: Owner, name: TableName, ts: int) -> None:
    made = replace(MADE, name=name, commit_ts=Ts(ts))
    owner.spans.create(name, target("").schema, made.identity, Ts(ts))
    owner.rows.add([(owner.spans[name], {})])


def dropped(owner: Owner) -> EndedSpan:
    """In Delta alone."""
    table = owner.spans[NAME]
    assert table.target is not None
    engine = MergeOnWriteEngine({}, keeps_up=False)
    ddl = DdlIdentity(commit_ts=Ts(DROP_TS), order=0, query="DROP TABLE …")
    applied = engine.alter(table_ddl(target=table.target, ddl=ddl, on_drop="drop"))
    engine.close()
    return EndedSpan(table=table, at_ts=Ts(DROP_TS), version=applied.version - 1)


def reported(owner: Owner, ts: int) -> tuple[SpanProgress, ...]:
    """Every table that is there, at this ts and the version that it is at."""
    found = []
    for table in owner.spans.values():
        span = span_of(table, owner.rows.row.incarnation)
        at = Ts(max(ts, table.checkpoint))  # it begins where it was made
        status = TableStatus(
            span.table_id, TableState.REPLICATING, at, at, delta_version=table.version
        )
        found.append(
            SpanProgress(
                span=span,
                state=ReplicationState.REPLICATING,
                capture_id=None,
                epoch=None,
                checkpoint=Checkpoint(at, at),
                delta_version=table.version,
                status=status,
            )
        )
    return tuple(found)


def reach(owner: Owner, ts: int, *, is_sync_point: bool) -> None:
    advance = Advance(checkpoint_ts=Ts(ts), resolved_ts=Ts(ts), spans=reported(owner, ts))
    advance = replace(advance, sync_point_ts=Ts(ts) if is_sync_point else None)
    owner.rows.write(advance, reading={}, marks={}, backlog=Backlog(), source_left_s=None)


def published(warehouse: Path) -> Sequence[tuple[int, list[str]]]:
    if not (warehouse / "_tidelake" / "snapshots" / "_delta_log").exists():
        return []
    rows = DeltaTable(str(warehouse / "_tidelake" / "snapshots")).to_pyarrow_table().to_pylist()
    return [(row["primary_ts"], sorted(dict(row["tables"]))) for row in rows]


@pytest.mark.parametrize("is_sync_point", [False, True])
@pytest.mark.parametrize("is_made_again", [False, True])
def test_below_a_drop_that_was_not_noted_there_is_no_cut(
    tmp_path: Path, *, is_sync_point: bool, is_made_again: bool
) -> None:
    owner = Owner(tmp_path)
    made(owner, NAME, 5)
    made(owner, OTHER, 5)
    dropped(owner)  # and it dies before it says so
    heir = Owner(tmp_path)
    if is_made_again:
        made(heir, NAME, DROP_TS + 5)
    reach(heir, 50, is_sync_point=is_sync_point)
    assert published(tmp_path) == []
    reach(heir, DROP_TS + 10, is_sync_point=is_sync_point)
    both = [str(NAME), str(OTHER)] if is_made_again else [str(OTHER)]
    assert published(tmp_path) == [(DROP_TS + 10, both)]


@pytest.mark.parametrize("is_sync_point", [False, True])
def test_right_below_a_drop_that_was_noted_the_dropped_table_is_in_the_cut(
    tmp_path: Path, *, is_sync_point: bool
) -> None:
    owner = Owner(tmp_path)
    made(owner, NAME, 5)
    made(owner, OTHER, 5)
    ended = dropped(owner)
    owner.spans.end(NAME, ended.at_ts)
    owner.rows.end(ended)
    reach(owner, 50, is_sync_point=is_sync_point)
    assert published(tmp_path) == []
    reach(owner, DROP_TS - 1, is_sync_point=is_sync_point)
    assert published(tmp_path) == [(DROP_TS - 1, [str(NAME), str(OTHER)])]


def test_tables_may_be_made_and_dropped_while_a_sync_point_is_looked_at(tmp_path: Path) -> None:
    """By the applying thread, while the control writer's own thread writes."""
    owner = Owner(tmp_path)
    names = (TableName("shop", str(number)) for number in itertools.count())

    class Meanwhile:
        @property
        def created_ts(self) -> Ts:
            owner.spans[next(names)] = self
            return Ts(5)

        def get(self, *_: object) -> tuple[int, None]:
            owner.spans.ended[next(names)] = Ts(70)
            return 0, None

    meanwhile: Any = Meanwhile()
    owner.spans[NAME] = owner.rows.state.known = meanwhile
    owner.spans.ended |= {OTHER: Ts(60), NAME: Ts(60)}
    assert owner.rows._publish(Ts(50)), "it is passed over"
