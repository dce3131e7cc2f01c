"""The form of a target table: which changes are written, and which columns stand behind the table's
own.

A table keeps the form that it was made in: its properties say which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from conf.settings import TableKey, TableRule, WriteModeName
from coordination.errors import ConfigError
from coordination.model import TSO_LOGICAL_BITS, Ts
from sinks.target.way_out import load_anew
from sinks.types.column_choice import ColumnChoice
from sinks.types.table_schema import TableSchema

EVENT = "_op"
BEFORE_UPDATE, AFTER_UPDATE = "update_preimage", "update_postimage"
COMMIT_TS = "_commit_ts"  # TiDB's TSO
COMMIT_TIME = "_commit_time"  # the same as a moment, to the millisecond
COMMIT_ORDER = "_commit_order"  # of the event among those of its commit-ts
LOG_COLUMNS: Final = {  # in Spark SQL
    EVENT: "string",
    COMMIT_TS: "bigint",
    COMMIT_TIME: "timestamp",
    COMMIT_ORDER: "int",
}


WRITE_MODE: Final = "tidelake.write-mode"  # none: upsert
EXTRA_COLUMNS: Final = "tidelake.extra-columns"  # none: no such column
SOFT_DELETE: Final = "tidelake.soft-delete"  # none: deleted rows go

ROW_TS: Final = "_tidelake_commit_ts"  # TiDB's TSO of the row's last change
ROW_OP: Final = "_tidelake_op"
ROW_DELETED: Final = "_tidelake_deleted"  # of a soft delete: true; of all other rows false
INSERTED, UPDATED, DELETED = "insert", "update", "delete"  # the values of ROW_OP

# Of a history: each version of a row is valid from one commit-ts until another one. The moments are
# the same to the millisecond; no end, and true: it is the row as it is.
VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
VALID_FROM_TS, VALID_TO_TS = "_valid_from_ts", "_valid_to_ts"
HISTORY_COLUMNS: Final = {
    VALID_FROM: "timestamp",
    VALID_TO: "timestamp",
    IS_CURRENT: "boolean",
    VALID_FROM_TS: "bigint",
    VALID_TO_TS: "bigint",
}
_EXTRA: Final = {ROW_TS: "bigint", ROW_OP: "string"}  # with their types in Spark SQL


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMode:
    """``extra_columns``: those of an upserted table, in the order of the table's columns.
    ``soft_delete``: its deleted rows stay, marked by ``ROW_DELETED``. ``all_columns``: they are the
    key, as long as the table has none; a table may come to it, and go on without. ``counts_rows``:
    with equal rows as often as the table has them.
    ``asks_old_rows``: conditions of its event filter are about the rows before UPDATEs.
    ``choice``: which columns it has, and which are masked."""

    mode: WriteModeName = "upsert"
    extra_columns: tuple[str, ...] = ()
    soft_delete: bool = False
    all_columns: bool = field(default=False, compare=False)
    counts_rows: bool = field(default=False, compare=False)
    asks_old_rows: bool = field(default=False, compare=False)
    choice: ColumnChoice = field(default=ColumnChoice(), compare=False, repr=False)

    @classmethod
    def of_rule(cls, rule: TableRule) -> WriteMode:
        extra = (name for name in _EXTRA if name in rule.extra_columns)
        return cls(
            mode=rule.write_mode,
            extra_columns=tuple(extra),
            soft_delete=rule.soft_delete,
            all_columns=rule.key is not None,
            counts_rows=rule.key == "rows",
        )

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> WriteMode:
        return cls(
            mode=cast("WriteModeName", properties.get(WRITE_MODE, "upsert")),
            extra_columns=tuple(json.loads(properties.get(EXTRA_COLUMNS, "[]"))),
            soft_delete=SOFT_DELETE in properties,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table of this form."""
        mode = {} if self.mode == "upsert" else {WRITE_MODE: self.mode}
        extra = {EXTRA_COLUMNS: json.dumps(self.extra_columns)} if self.extra_columns else {}
        return mode | extra | ({SOFT_DELETE: "true"} if self.soft_delete else {})

    @property
    def is_log(self) -> bool:
        """Whether the table is a change log: it holds the events of the table, not its rows."""
        return self.mode == "append"

    @property
    def is_history(self) -> bool:
        """Whether the table holds every version of its rows, each as a row of its own."""
        return self.mode == "history"

    @property
    def needs_key(self) -> bool:
        """Whether a table must have a key of its own."""
        return not (self.is_log or self.all_columns)

    def keyed(self, schema: TableSchema) -> TableSchema:
        """The schema with what the target has of its columns, and the key by which the table's rows
        are told apart. Raises ConfigError where they could not be."""
        own = schema
        if schema.key_is_row:
            own = replace(schema, key=(), key_is_row=False, counts_rows=False)
        own = self.choice.chosen(own)
        if not self.all_columns or own.key:
            return own
        self.choice.refuse_by_all_columns(own)
        return own.by_all_columns(counts_rows=self.counts_rows)

    def refuse_without_key(self, name: object, schema: TableSchema) -> None:
        """Raises ConfigError for a table that was upserted by all columns, if the settings no
        longer say so, or no longer how often equal rows are there."""
        is_so = self.all_columns and self.counts_rows == schema.counts_rows
        if schema.key_is_row and not is_so:
            was = _key_setting(counts_rows=schema.counts_rows)
            raise ConfigError(
                f"table {name} has no key and is upserted by all its columns, and [[sink.tables]] "
                f"says {self} without key = {was!r}: set it as it was, or {load_anew(name)}"
            )

    def sorted_by(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """The columns by which the rows of its files are sorted and found. In a history they find
        the current versions of keys."""
        if self.is_log:
            return (COMMIT_TS,)
        return (*key, IS_CURRENT) if self.is_history and key else key

    @property
    def columns(self) -> dict[str, str]:
        """The columns behind the table's own, with their types in Spark SQL."""
        if self.mode != "upsert":
            return LOG_COLUMNS if self.is_log else HISTORY_COLUMNS
        extra = {name: _EXTRA[name] for name in self.extra_columns}
        return {**extra, ROW_DELETED: "boolean"} if self.soft_delete else extra

    @property
    def needs_one_moment(self) -> bool:
        """Whether a copy must show one moment: changes from before it cannot come once more."""
        return self.is_log or self.is_history or self.all_columns

    @property
    def needs_old_rows(self) -> bool:
        """Whether the whole old row of an UPDATE is used, not only its key."""
        return self.is_log or self.soft_delete or self.asks_old_rows

    def ended_at(self, ts: Ts) -> dict[str, Any]:
        """The columns that mark a row as gone since ``ts``, with their values. Empty: such rows are
        taken out. The first column has this value in no other row."""
        if self.is_history:
            return {IS_CURRENT: False, VALID_TO: moment_us(ts), VALID_TO_TS: ts}
        if not self.soft_delete:
            return {}
        told = {ROW_TS: ts, ROW_OP: DELETED}
        return {ROW_DELETED: True, **{name: told[name] for name in self.extra_columns}}

    @property
    def not_ended(self) -> dict[str, Any]:
        """In a history, the same columns of a row that has not ended."""
        return {IS_CURRENT: True, VALID_TO: None, VALID_TO_TS: None}

    def refuse_names(self, names: Iterable[str]) -> None:
        """Raises ConfigError where a column of the table has the name of one of the form's."""
        for name in names:
            if name.lower() in self.columns:
                raise ConfigError(
                    f"its column {name} has the name of a column that {self} puts behind the "
                    "table's own: change that in [[sink.tables]], or leave the table out with "
                    "[filter] rules"
                )

    def __str__(self) -> str:
        """As in ``[[sink.tables]]``."""
        told: dict[str, Any] = {"write-mode": self.mode}
        if self.extra_columns:
            told["extra-columns"] = list(self.extra_columns)
        if self.soft_delete:
            told["soft-delete"] = True
        if self.all_columns:
            told["key"] = _key_setting(counts_rows=self.counts_rows)
        texts = {key: "true" if value is True else repr(value) for key, value in told.items()}
        return ", ".join(f"{key} = {text}" for key, text in texts.items())


def _key_setting(*, counts_rows: bool) -> TableKey:
    return "rows" if counts_rows else "all-columns"


UPSERT: Final = WriteMode()


def moment_us(ts: Any) -> Any:
    """The moment of a TSO, or of an array of them, in microseconds."""
    return (ts >> TSO_LOGICAL_BITS) * 1000
