"""The task of bringing one table on, the rules by which texts become values, and what became of the
tables of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from conf.rows.row_filter import RowFilter
from conf.settings import Changefeed
from conf.sources.source_uri import is_at_least_once
from coordination.model import TableName, Ts
from sinks.ddl.past_schemas import PastSchema
from sinks.target.write_mode import UPSERT, WriteMode
from sinks.types.casts.columns import CastRules
from sinks.types.table_schema import TableSchema
from streaming.changefeed.target_forms import mask_salt


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """The task of bringing a table on from ``checkpoint``."""

    name: TableName
    schema: TableSchema
    checkpoint: Ts
    # Those of insert, update and delete that change nothing.
    ignored_events: frozenset[str] = frozenset()
    filters: Mapping[TableName, RowFilter] = field(default_factory=dict)  # of upstream tables
    behind: Mapping[TableName, PastSchema] = field(default_factory=dict)  # their shapes, of some
    form: WriteMode = UPSERT
    # If the schema has no key: True, the table has none; False, its shape is not known yet.
    is_keyless: bool = False
    # Of rows that come again after a rewind, the oldest first; newer rows are of ``schema``.
    older: tuple[PastSchema, ...] = ()
    # Whether to tell which change is the last of each key: where dead letters wait for newer ones.
    tells_last: bool = False

    def ranges(self, limit: Ts) -> Iterator[tuple[Ts, Ts, PastSchema]]:
        """``(checkpoint, limit]`` by shape: above which ts, up to which, and the shape."""
        low = self.checkpoint
        for shape in (*self.older, PastSchema(last_ts=limit, schema=self.schema)):
            high = min(shape.last_ts, limit)
            if high > low:
                yield low, high, shape
                low = high

    def by_later_shapes(self, later: int) -> TableTask:
        """The same rows, cast by the shape that came so many DDLs after theirs, at most by the
        present one: a value without a place in one shape may have a place in a later one. No shape
        behind a new name of a column casts them: the value would not be found."""
        shapes = [*self.older, PastSchema(last_ts=self.checkpoint, schema=self.schema)]
        older = []
        for at, each in enumerate(self.older):
            last = min(at + later, len(self.older))
            renaming = (n for n in range(at, last) if shapes[n].renames_next)
            older.append(each.cast_by(shapes[next(renaming, last)]))
        return replace(self, older=tuple(older))

    @property
    def is_log(self) -> bool:
        """Whether every event is written, not the last change of each key."""
        return self.form.is_log


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRules(CastRules):
    """How texts are cast, and what happens to a column that the table lacks. ``verifies``: rows are
    compared with the checksums that their messages tell."""

    unknown_column: Literal["dead-letter", "drop"] = "dead-letter"
    protocol: str  # by which the bytes of dead letters are read once more
    is_numbered: bool = False  # messages have no commit-ts: a dead letter has it beside its bytes
    verifies: bool = False

    @property
    def drops(self) -> bool:
        """Whether values of columns that the table lacks are dropped, and counted."""
        return self.unknown_column == "drop"


def change_rules(changefeed: Changefeed) -> ChangeRules:
    return ChangeRules(
        time_zone=changefeed.source.time_zone,
        zero_date=changefeed.zero_date,
        ddl_time_zone=changefeed.ddl_time_zone,
        unknown_column=changefeed.on_unknown_column,
        protocol=changefeed.source.protocol,
        is_numbered=is_at_least_once(changefeed.source),
        verifies=changefeed.integrity_check_level == "correctness",
        mask_salt=mask_salt(changefeed.sink),
    )


Fate = Literal["written", "paused", "withdrawn", "altered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the tables of one ``apply``. The rows of those that were not written wait.

    ``paused``: they take no commit now. An operator has paused them, their last commit is younger
    than ``min-commit-interval-s``, or an error holds them. ``withdrawn``: they are no longer this
    capture's, or not up to that limit. ``altered``: a DDL has run on them, so their rows are to be
    cast by another schema."""

    written: frozenset[TableName] = frozenset()
    paused: frozenset[TableName] = frozenset()
    withdrawn: frozenset[TableName] = frozenset()
    altered: frozenset[TableName] = frozenset()

    @property
    def waiting(self) -> frozenset[TableName]:
        return self.paused | self.withdrawn | self.altered

    @classmethod
    def of(cls, fates: Mapping[TableName, Fate]) -> Outcome:
        sets = {
            fate: frozenset(n for n, of in fates.items() if of == fate) for fate in get_args(Fate)
        }
        return cls(**sets)
