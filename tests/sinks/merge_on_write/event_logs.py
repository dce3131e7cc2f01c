"""A change log, its events, and the writes of captures that know more or less of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from coordination.model import TableName, Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import seal
from sinks.target.write_mode import COMMIT_ORDER, COMMIT_TIME, COMMIT_TS, EVENT, WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.services.delta_rows import read_rows

NAME = TableName("shop", "orders")
Event = tuple[int, int, str]  # commit-ts, id, v
DDL = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
ORIGIN = ownership(changefeed_id="shop", incarnation=1, ddl=DDL)
COLUMNS = {"id": "bigint", "v": "varchar(20)"}


def log_target(uri: str, key: tuple[str, ...] = ("id",), incarnation: int = 1) -> Target:
    columns = tuple(Column(name=n, type=MySQLType.parse(kind)) for n, kind in COLUMNS.items())
    return Target(
        name=NAME,
        uri=uri,
        schema=TableSchema(columns=columns, key=key),
        app_id=app_id("shop", incarnation, NAME),
        form=WriteMode(mode="append"),
    )


def made_log(uri: str, key: tuple[str, ...] = ("id",)) -> Target:
    target = log_target(uri, key)
    create(target, properties=ORIGIN)
    return target


def log_write(
    target: Target,
    checkpoint: int,
    limit: int,
    events: Iterable[Event],
    before_commit: Callable[[], None] = lambda: None,
) -> TableWrite:
    """Of all events of the feed those that are due."""
    due = [event for event in events if checkpoint < event[0] <= limit]
    times = pa.array([(ts >> 18) * 1000 for ts, _, _ in due], pa.int64())
    changes = {
        "id": pa.array([at for _, at, _ in due], pa.int64()),
        "v": pa.array([v for _, _, v in due], pa.string()),
        EVENT: pa.array(["insert"] * len(due), pa.string()),
        COMMIT_TS: pa.array([ts for ts, _, _ in due], pa.int64()),
        COMMIT_TIME: times.cast(pa.timestamp("us", tz="UTC")),
        COMMIT_ORDER: pa.array([1] * len(due), pa.int32()),
    }
    return TableWrite(
        target=target,
        checkpoint=Ts(checkpoint),
        limit=Ts(limit),
        changes=pa.table(changes),
        user_metadata="{}",
        before_commit=before_commit,
    )


def events_of(uri: str) -> Counter[tuple[Any, ...]]:
    """As delta-rs reads them."""
    return Counter((row[COMMIT_TS], row["id"], row["v"]) for row in read_rows(uri))


EVENTS: list[Event] = [(ts, n, f"v{n}") for n, ts in enumerate(range(10, 60, 2))]


def rewound_log(uri: str) -> str:
    """It shows all events up to 40, and goes on from 20 in another incarnation."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    target = made_log(uri)
    for checkpoint, limit in ((5, 16), (16, 26), (26, 40)):
        engine.apply(log_write(target, checkpoint, limit, EVENTS))
    engine.close()
    seal(uri, [target.app_id], log_target(uri, incarnation=2).app_id, lambda _: Ts(20), {})
    return uri


def rewound_write(uri: str, limit: int = 36) -> TableWrite:
    return log_write(log_target(uri, incarnation=2), 20, limit, EVENTS)


@dataclass(kw_only=True)
class Capture:
    """What one process believes of the table."""

    target: Target
    checkpoint: int
    version: str = ""  # of the configuration that it casts by

    def write(self, limit: int, events: Iterable[Event], **more: Any) -> TableWrite:
        mine = [(ts, at, f"{v}{self.version}") for ts, at, v in events]
        return log_write(self.target, self.checkpoint, limit, mine, **more)

    def of(self, incarnation: int, checkpoint: int) -> Capture:
        target = replace(self.target, app_id=app_id("shop", incarnation, NAME))
        return Capture(target=target, checkpoint=checkpoint, version=f"/{incarnation}")
