"""A history of rows, the changes of a feed, and what the table must show of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from coordination.model import Ts
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import seal
from sinks.target.write_mode import (
    HISTORY_COLUMNS,
    IS_CURRENT,
    VALID_FROM_TS,
    VALID_TO_TS,
    WriteMode,
)
from sinks.types.delta_types import arrow_of
from streaming.apply.last_change import versions
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.event_logs import ORIGIN, log_target
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

Change = tuple[int, int, str | None]  # commit-ts, id, v; None: a DELETE
HISTORY = WriteMode(mode="history")


def history_target(uri: str, incarnation: int = 1) -> Target:
    return replace(log_target(uri, incarnation=incarnation), form=HISTORY)


def made_history(uri: str) -> Target:
    target = history_target(uri)
    create(target, properties=ORIGIN)
    return target


def history_write(
    target: Target,
    checkpoint: int,
    limit: int,
    changes: Iterable[Change],
    before_commit: Callable[[], None] = lambda: None,
) -> TableWrite:
    """Of all changes of the feed those that are due."""
    due = [each for each in changes if checkpoint < each[0] <= limit]
    columns = {
        "id": pa.array([id for _, id, _ in due], pa.int64()),
        "v": pa.array([v for _, _, v in due], pa.string()),
        **{name: pa.nulls(len(due), arrow_of(kind)) for name, kind in HISTORY_COLUMNS.items()},
        VALID_FROM_TS: pa.array([ts for ts, _, _ in due], pa.int64()),
        OP_COLUMN: pa.array(["D" if v is None else "U" for _, _, v in due], pa.string()),
    }
    return TableWrite(
        target=target,
        checkpoint=Ts(checkpoint),
        limit=Ts(limit),
        changes=versions(pa.table(columns), target.schema.key),
        user_metadata="{}",
        before_commit=before_commit,
    )


def expected(changes: Sequence[Change]) -> Counter[tuple[Any, ...]]:
    """Of each version id, v, from, to."""
    found: Counter[tuple[Any, ...]] = Counter()
    for ts, id, v in changes:
        if v is not None:
            later = [other for other, same, _ in changes if same == id and other > ts]
            found[(id, v, ts, min(later, default=None))] += 1
    return found


def history_of(uri: str) -> Counter[tuple[Any, ...]]:
    """As delta-rs reads it."""
    rows = read_rows(uri)
    assert all(row[IS_CURRENT] == (row[VALID_TO_TS] is None) for row in rows)
    assert all((row["_valid_to"] is None) == row[IS_CURRENT] for row in rows)
    return Counter((row["id"], row["v"], row[VALID_FROM_TS], row[VALID_TO_TS]) for row in rows)


CHANGES: list[Change] = [
    (ts, n % 4, None if n % 5 == 4 else f"v{n}") for n, ts in enumerate(range(10, 60, 2))
]


def rewound_history(uri: str) -> str:
    """It shows all changes up to 40, and goes on from 20 in another incarnation."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    target = made_history(uri)
    for checkpoint, limit in ((5, 16), (16, 26), (26, 40)):
        engine.apply(history_write(target, checkpoint, limit, CHANGES))
    engine.close()
    seal(uri, [target.app_id], history_target(uri, 2).app_id, lambda _: Ts(20), {})
    return uri


def truncate(target: Target, ts: int) -> TableDdl:
    ddl = DdlIdentity(commit_ts=Ts(ts), order=0, query="TRUNCATE TABLE …")
    return table_ddl(target=target, ddl=ddl, empties=True)


def rewound_truncate(uri: str) -> TableDdl:
    return truncate(history_target(uri, 2), 21)


def rewound_history_write(uri: str, limit: int = 36) -> TableWrite:
    return history_write(history_target(uri, 2), 20, limit, CHANGES)
