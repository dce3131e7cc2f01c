"""The ``tidelake.*`` properties of a target table.

They hold what a later owner can no longer read from the stream (rule 5): the changefeed that the
table belongs to, incarnation and generation, the DDL that made it, columns and key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordination.model import Ts
from sinks.target.engine_port import GENERATION
from sinks.target.retention_properties import (
    FILE_RETENTION,
    LOG_RETENTION,
)
from sinks.target.write_mode import WriteMode
from sinks.types.table_schema import TableSchema

CHANGEFEED = "tidelake.changefeed"
INCARNATION = "tidelake.incarnation"
KEY = "tidelake.key"
SCHEMA = "tidelake.schema"
DDL = "tidelake.ddl"
ALTERED = "tidelake.altered"  # the newest DDL that the table's shape holds
DROPPED = "tidelake.dropped"  # the newest DROP TABLE of it; a later CREATE TABLE makes it again
SHAPED_AT = "tidelake.shaped-at"  # of ALTERED: commit-ts, order, and the version that it made
LEFT = "tidelake.left"  # what the last RENAME or EXCHANGE of it took away: commit-ts, version
TRUNCATED = "tidelake.truncated"  # commit-ts of the last DDL that took rows which nobody has kept
LAST_DDL = "tidelake.last-ddl"  # the last one that its writer has run: app ID, commit-ts, order
WRITER = "tidelake.writer"  # the app ID that may write since the last seal
SHOWN = "tidelake.shown"  # TSO up to which the table had changes when it was rewound below that
CLOSED = "tidelake.closed"  # a history's last TRUNCATE: app ID, commit-ts
ASSUMED = "tidelake.assumed"  # of sessions that ran DDLs: pairs of commit-ts and sentence
SHARDS = "tidelake.shards"  # the upstream tables of a target that routes lead to
REKEYED = "tidelake.rekeyed"  # commit-ts of the last DDL that changed its key, or exchanged rows
RELOADED = "tidelake.reloaded"  # ID of the operator's order by which it was loaded anew last


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlIdentity:
    """Identifies a DDL by its commit-ts and its order among the DDLs of that commit-ts."""

    commit_ts: Ts
    order: int
    query: str

    def to_json(self) -> str:
        parts = {"commit_ts": self.commit_ts, "order": self.order, "query": self.query}
        return json.dumps(parts, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> DdlIdentity:
        return cls(**json.loads(text))

    @property
    def position(self) -> tuple[Ts, int]:
        return self.commit_ts, self.order

    @property
    def arrival(self) -> DdlIdentity:
        """For the name to which a RENAME TABLE brings a table: another table may have left that
        name by the same statement, before."""
        return replace(self, order=self.order + 1)

    def same_as(self, other: DdlIdentity | None) -> bool:
        """Whether both are one DDL: only the position counts, since the text may be rewritten."""
        return other is not None and self.position == other.position


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """The facts in a table's properties, whoever has read them. Their texts are read once.

    ``shown_ts``: up to there a rewound table may show changes, although its identity is lower.
    ``truncated_ts``: commit-ts of the last DDL after which TiDB may recover other rows than a DROP
    TABLE has kept, a TRUNCATE or a DDL that an operator has skipped; 0: none has run.
    ``rekeyed_ts``: of the last DDL that has given the table another key, or another table's rows.
    ``assumed``: about the time of the sessions that ran DDLs on the table, by commit-ts.
    ``shaped_at``: the version that ``shape_ddl`` has made; the version 0, which makes a table, does
    not tell its own number."""

    properties: Mapping[str, str]
    changefeed_id: str | None = field(init=False)
    incarnation: int | None = field(init=False)
    form: WriteMode = field(init=False)
    schema: TableSchema | None = field(init=False)
    ddl: DdlIdentity | None = field(init=False)  # that made it, or brought it to its name
    shape_ddl: DdlIdentity | None = field(init=False)  # the newest that has made or altered it
    shaped_at: int = field(init=False)
    dropped: DdlIdentity | None = field(init=False)  # the newest DROP TABLE
    last_ddl: tuple[str, int, int] = field(init=False)  # app ID, commit-ts, order
    left: tuple[int, int] = field(init=False)  # of the last RENAME or EXCHANGE: commit-ts, version
    truncated_ts: Ts = field(init=False)
    shown_ts: Ts = field(init=False)
    rekeyed_ts: Ts = field(init=False)
    assumed: Mapping[Ts, str] = field(init=False)
    shards: str = field(init=False)

    def __post_init__(self) -> None:
        for name, value in _read(self.properties).items():
            object.__setattr__(self, name, value)

    def last_ddl_ts(self, app_id: str) -> Ts:
        """The commit-ts of the last DDL that this writer has run on the table; 0 for none."""
        commit_ts, _ = self._last_ddl(app_id)
        is_half_done = commit_ts > 0 and self.left_version is not None
        return Ts(commit_ts - 1 if is_half_done else commit_ts)

    def _last_ddl(self, app_id: str) -> tuple[int, int]:
        writer, commit_ts, order = self.last_ddl
        return (commit_ts, order) if writer == app_id else (0, 0)

    def is_carried_out(self, app_id: str, reached: Ts, ddl: DdlIdentity) -> bool:
        """Whether this writer has been at the DDL or beyond: by rows above its commit-ts (a
        sealed one is beyond all), or by a DDL. A rewound table knows of DDLs that another has done.
        """
        return reached > ddl.commit_ts or self._last_ddl(app_id) >= ddl.position

    def is_at_least(self, ddl: DdlIdentity) -> bool:
        """Whether the table has the shape that the DDL gives it, or a later one."""
        return self.shape_ddl is not None and self.shape_ddl.position >= ddl.position

    @property
    def shape_ts(self) -> Ts:
        """The commit-ts of the DDL that gave the table its present columns; 0 if not known."""
        return Ts(0 if self.shape_ddl is None else self.shape_ddl.commit_ts)

    @property
    def is_dropped(self) -> bool:
        """Whether a DROP TABLE was run on it and no CREATE TABLE since: it has no rows, and its
        name is free."""
        return self.dropped_ts is not None

    @property
    def dropped_ts(self) -> Ts | None:
        """Commit-ts of the DROP TABLE, if the table is dropped."""
        made, dropped = self.ddl, self.dropped
        is_it = made is not None and dropped is not None and dropped.position > made.position
        return dropped.commit_ts if dropped is not None and is_it else None

    @property
    def left_version(self) -> int | None:
        """The last one with rows, where a RENAME TABLE has taken them away, perhaps not yet to
        their new name. None: it has not, or another table has its name by now."""
        return self.left_at(self.dropped_ts)

    def left_at(self, commit_ts: Ts | None) -> int | None:
        """The version whose rows the RENAME or EXCHANGE of this commit-ts has taken away; None: it
        has not."""
        left_ts, version = self.left
        return version if left_ts == commit_ts else None

    @property
    def begun_ts(self) -> Ts:
        """Commit-ts of the DDL that gave the table this name. Rows at or below it belong to an
        earlier table of that name. 0: the table was made from its rows."""
        return Ts(0) if self.ddl is None else self.ddl.commit_ts


def _read(properties: Mapping[str, str]) -> dict[str, Any]:
    """The fields of TableProperties."""

    def ddl(name: str) -> DdlIdentity | None:
        return DdlIdentity.from_json(properties[name]) if name in properties else None

    def numbers(name: str, otherwise: str) -> tuple[Any, ...]:
        return tuple(json.loads(properties.get(name, otherwise)))

    def ts(name: str) -> Ts:
        return Ts(int(properties.get(name, 0)))

    shapes = [each for each in (ddl(DDL), ddl(ALTERED)) if each is not None]
    incarnation, schema = properties.get(INCARNATION), properties.get(SCHEMA)
    return {
        "changefeed_id": properties.get(CHANGEFEED),
        "incarnation": None if incarnation is None else int(incarnation),
        "form": WriteMode.of_properties(properties),
        "schema": None if schema is None else TableSchema.from_json(schema),
        "ddl": ddl(DDL),
        "shape_ddl": max(shapes, key=lambda each: each.position, default=None),
        "shaped_at": int(numbers(SHAPED_AT, "[0]")[-1]),
        "dropped": ddl(DROPPED),
        "last_ddl": numbers(LAST_DDL, '["", 0, 0]'),
        "left": numbers(LEFT, "[0, 0]"),
        "truncated_ts": ts(TRUNCATED),
        "shown_ts": ts(SHOWN),
        "rekeyed_ts": ts(REKEYED),
        "shards": properties.get(SHARDS, ""),
        "assumed": {Ts(at): told for at, told in numbers(ASSUMED, "[]")},
    }


def ownership(*, changefeed_id: str, incarnation: int, ddl: DdlIdentity) -> dict[str, str]:
    """The properties that say to which changefeed a table belongs and which DDL made it, for
    ``create``.
    """
    return {
        CHANGEFEED: changefeed_id,
        INCARNATION: str(incarnation),
        "tidelake.generation": str(GENERATION),
        DDL: ddl.to_json(),
    }


def retention(hours: int) -> dict[str, str]:
    """The properties by which a version stays readable for so long after the next one."""
    return dict.fromkeys((FILE_RETENTION, LOG_RETENTION), f"interval {hours} hours")
