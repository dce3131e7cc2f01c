"""The apply port: what a commit engine promises, and what it is given.

A write brings one table from its checkpoint to a limit in one Delta commit that carries the
transaction identity ``(app_id, limit)`` (rule 4). Two engines keep the promise:
``merge_on_write`` (our own commits of Arrow) and ``spark_engine`` (Spark's MERGE). The contract
suite in ``tests/contracts`` holds both to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coordination.model import TableName, Ts
from sinks.schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OP_COLUMN = "_op "  # no MySQL column ends with a space. Of a write's rows: UPSERT or DELETE
UPSERT = "U"
DELETE = "D"


def app_id(changefeed_id: str, incarnation: int, name: TableName, generation: int) -> str:
    """The identity's name: ``tidelake/<changefeed>/<incarnation>/<schema.table>#<generation>``."""
    return f"tidelake/{changefeed_id}/{incarnation}/{name}#{generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: TableName
    uri: str  # <warehouse>/<schema>/<table>
    schema: TableSchema
    app_id: str
    shaped_by: str | None = None  # the table's property ALTERED when it was looked at; None: any


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The changes of one table in ``(checkpoint, limit]``.

    ``changes`` has the target's columns (``TableSchema.delivered``, in Delta's types) and ``_op``;
    it is unique per key, and of a DELETE only the key columns count. Spark gets a DataFrame,
    merge-on-write Arrow. ``before_commit`` is the fence: called as late as the engine can, it
    raises when trust has lapsed."""

    target: Target
    checkpoint: Ts
    limit: Ts
    changes: DataFrame | pa.Table
    user_metadata: str
    before_commit: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """Our commit: the table is at ``limit`` in this Delta version."""

    version: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Somebody (an earlier try, a later owner) had brought the table to ``identity`` >= limit
    already.
    """

    version: int
    identity: Ts


class TableHeld(Exception):
    """The table takes no commit now: an operator has paused it. Its rows wait, others go on."""


class TableAltered(Exception):
    """A DDL has run on the table since it was looked at: its rows are to be cast anew."""


class Engine(Protocol):
    """Commits one write. Raises TableHeld for a table that is paused, TableAltered, and TryAgain
    when another commit came between (re-read, re-check, retry).
    """

    name: str  # "merge-on-write" or "spark": the progress table shows it

    def check_shape(self, target: Target) -> None:
        """Raises TableAltered where a DDL has run on the table since ``target`` was looked at."""
        ...

    def apply(self, write: TableWrite) -> Applied | Skipped: ...
