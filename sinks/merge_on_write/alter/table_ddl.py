"""What a DDL does to one target, one class for each kind.

    AlterTable        its shape changes              RemovePartitions  rows of some partitions go
    MakeAgain         a dropped one is made again    ExchangeRows      ... and others come instead
    Truncate          its rows go                    NotedDdl          only its position is noted
    DropTable         ... and its name is free

A change log keeps its rows, which are what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from sinks.ddl.column_origin import OnAddDefault
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.rewrite import PartMapper, one_by_one
from sinks.target.engine_port import Target
from sinks.target.table_properties import DdlIdentity
from sinks.types.partitioning import Partitioning
from sinks.types.text_arrays import CastRules


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDdl:
    """``null_dates``: columns in which dates that Delta does not have are NULL (``zero-date``).
    ``shards``: the property of that name afterwards; None: it stays. ``bars_rewind``: rows from
    below the DDL cannot come again."""

    target: Target
    ddl: DdlIdentity
    rules: CastRules = field(default_factory=lambda: CastRules(time_zone="UTC", zero_date="null"))
    null_dates: frozenset[str] = frozenset()
    shards: str | None = None
    bars_rewind: bool = False
    before_commit: Callable[[], None] = lambda: None

    @property
    def removes_all(self) -> bool:
        return False

    @property
    def gone_partitions(self) -> tuple[str, ...]:
        """The partitions whose rows go, where not all go."""
        return ()

    @property
    def removes_rows(self) -> bool:
        return self.removes_all or bool(self.gone_partitions)

    @property
    def ends_rows(self) -> bool:
        """Whether rows that go stay as ended ones, where the table's form keeps them."""
        return False

    @property
    def is_only_noted(self) -> bool:
        return False

    @property
    def takes_rows_elsewhere(self) -> bool:
        """Whether another table gets the rows: the version that had them is noted."""
        return False

    @property
    def bars_recovery(self) -> bool:
        """Whether TiDB may recover other rows afterwards than a DROP TABLE has kept."""
        return self.is_only_noted

    @property
    def ended(self) -> Mapping[str, Any]:
        """The columns of a row that goes, where the table's form keeps it."""
        return self.target.form.ended_at(self.ddl.commit_ts)

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """The columns by which the files of the table are sorted afterwards."""
        return self.target.sorted_by

    @property
    def operation(self) -> str:
        return "ALTER TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(TableDdl):
    """A DDL by which the table may get another shape. ``change`` None: the shape stays."""

    change: SchemaChange | None
    on_add_default: OnAddDefault = "rewrite"
    on_type_change: Literal["rewrite", "stop"] = "rewrite"
    map_parts: PartMapper = one_by_one  # of rows that are written anew

    @property
    def sorted_by(self) -> tuple[str, ...]:
        key = self.target.schema.key if self.change is None else self.change.after.key
        return self.target.form.sorted_by(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable(Reshape):
    change: SchemaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeAgain(Reshape):
    """A CREATE TABLE in the place of a dropped one."""

    change: SchemaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePartitions(Reshape):
    """The rows of these partitions go: by the definition in ``target.schema``, or, in a table that
    was rewound to below later DDLs, by the definition of that time (``partitions_then``)."""

    partitions: tuple[str, ...]
    partitions_then: Partitioning | None = None

    @property
    def gone_partitions(self) -> tuple[str, ...]:
        return self.partitions

    @property
    def ends_rows(self) -> bool:
        return True

    @property
    def operation(self) -> str:
        return "TRUNCATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate(TableDdl):
    @property
    def removes_all(self) -> bool:
        return not self.target.is_log

    @property
    def bars_recovery(self) -> bool:
        return True

    @property
    def ends_rows(self) -> bool:
        return True

    @property
    def operation(self) -> str:
        return "TRUNCATE" if self.removes_all else "ALTER TABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(TableDdl):
    """The table is empty afterwards and marked. With ``keep`` its files stay, under the name
    ``kept_uri``. With ``rename`` they stay for the name that a RENAME TABLE gives them."""

    on_drop: Literal["keep", "drop", "rename"]

    @property
    def removes_all(self) -> bool:
        return True

    @property
    def takes_rows_elsewhere(self) -> bool:
        return self.on_drop == "rename"

    @property
    def operation(self) -> str:
        return "RENAME TABLE" if self.on_drop == "rename" else "TRUNCATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRows(TableDdl):
    """The rows of these partitions go, or all rows where there are none, and others come instead.
    ``comes``: these rows, by column names and in slices (``exchange_partition``)."""

    comes: Callable[[], Iterator[pa.Table]]
    partitions: tuple[str, ...] = ()

    @property
    def removes_all(self) -> bool:
        return not self.partitions

    @property
    def gone_partitions(self) -> tuple[str, ...]:
        return self.partitions

    @property
    def ends_rows(self) -> bool:
        return True

    @property
    def takes_rows_elsewhere(self) -> bool:
        return True

    @property
    def operation(self) -> str:
        return "EXCHANGE PARTITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedDdl(TableDdl):
    """A DDL that an operator skips, or whose effect is in the table already."""

    @property
    def is_only_noted(self) -> bool:
        return True
