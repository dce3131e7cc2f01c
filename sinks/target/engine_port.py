"""The apply port: the promise of a commit engine, and its input.

A write brings one table from its checkpoint to a limit in one Delta commit that carries the
transaction identity ``(app_id, limit)`` (rule 4). Two engines keep the promise: ``merge_on_write``
(our own commits of Arrow) and ``merge_engine`` (Spark's MERGE). The contract suite in
``tests/contracts`` holds both to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.target.write_mode import UPSERT as UPSERTED
from sinks.target.write_mode import WriteMode
from sinks.types.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OP_COLUMN = "_op "  # holds UPSERT or DELETE; no MySQL column's name ends with a space
TS_COLUMN = "_commit_ts "  # of changes that are counted
UPSERT = "U"
DELETE = "D"
GENERATION = 1  # of tables of one name: one that is dropped and made again goes on in its log


def app_id(changefeed_id: str, incarnation: int, name: TableName) -> str:
    """The identity's name: ``tidelake/<changefeed>/<incarnation>/<schema.table>#<generation>``."""
    return f"tidelake/{changefeed_id}/{incarnation}/{name}#{GENERATION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: TableName
    uri: str  # <warehouse>/<schema>/<table>
    schema: TableSchema
    app_id: str
    shaped_by: str | None = None  # property ALTERED when the table was opened; None: not compared
    form: WriteMode = UPSERTED

    @property
    def is_log(self) -> bool:
        return self.form.is_log

    @property
    def needs_old_rows(self) -> bool:
        """Whether the whole old row of an UPDATE is needed, not only its key."""
        return self.form.needs_old_rows or self.schema.key_is_row

    @property
    def is_plain(self) -> bool:
        """Whether every engine can write it."""
        return self.form == UPSERTED and not self.schema.key_is_row

    def refuse_for_spark(self) -> None:
        """Raises ConfigError for a table that the Spark engine does not write."""
        if not self.is_plain:
            raise ConfigError(
                f"table {self.name}: {self.form} is written by merge-on-write alone, and this sink "
                "is written by Spark: let the table be 'upsert' without more in [[sink.tables]], "
                "or choose another apply-engine or sink-uri"
            )

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """The columns that the rows of its files are sorted by."""
        return self.form.sorted_by(self.schema.key)


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A version in which the table was right, and its identity there (None: it had none). Before a
    write, later commits of others are looked at."""

    version: int
    identity: Ts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The changes of one table in ``(checkpoint, limit]``.

    ``changes`` has the target's columns (``TableSchema.delivered``, in Delta's types), those of its
    form, and `OP_COLUMN`. It has one row per key, and only the key columns of a DELETE count. For a
    change log it has no `OP_COLUMN`, and all events in commit order; for a history all versions of
    each key, and of a DELETE the key and its commit-ts as VALID_FROM_TS; where rows are counted
    (``TableSchema.counts_rows``) every change, in any order, with its `TS_COLUMN`. Spark gets a
    DataFrame, merge-on-write an Arrow table. ``before_commit`` checks the fence: the engine calls
    it as late as it can, and it raises when trust has lapsed."""

    target: Target
    checkpoint: Ts
    limit: Ts
    changes: DataFrame | pa.Table
    user_metadata: str
    before_commit: Callable[[], None]
    last: LastSeen | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """This write was committed: in this Delta version the table is at the write's ``limit``."""

    version: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing was written: an earlier try or another writer had brought the table to ``identity``
    already, which is at or above the write's ``limit``.
    """

    version: int
    identity: Ts


class TableHeld(Exception):
    """An operator has paused the table: it takes no commit now. Its rows wait; other tables go
    on."""


class TableBroughtBack(Exception):
    """Another writer has brought an older state of the table back. The message says the way out."""


class TableAltered(Exception):
    """A DDL has run on the table since it was opened: its rows must be cast by the new schema."""


class Engine(Protocol):
    """Commits one write. Raises TableHeld for a table that is paused, TableBroughtBack for a table
    in an older state than ``last`` says, TableAltered after a DDL, and TryAgain when another commit
    came between: then re-read, re-check and retry."""

    name: str  # "merge-on-write" or "spark": the progress table shows it

    def check_shape(self, target: Target) -> None:
        """Raises TableAltered where a DDL has run on the table since ``target`` was made."""
        ...

    def apply(self, write: TableWrite) -> Applied | Skipped: ...
