"""``_tidelake/dead_letters``: messages that could not be decoded or applied, with their raw bytes.

Rows are merged on (changefeed, topic, partition, offset), so a replay adds nothing; where a topic
was made again, other bytes are another message. They stay until a user deletes them; upkeep only
joins small files.

Every owner claims the table, as it does ``progress``. A writer of an older term or incarnation is
refused: it might add a message that is no dead letter any more, or one that a user has deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from sinks.control_schema import column
from sinks.control_table import Change, ControlTable, TableView
from sinks.control_upkeep import Upkeep, join_files
from sinks.txn import check_term, claim, incarnation_app_id, incarnation_refused

KEY = ("changefeed_id", "topic", "partition", "offset")
SCHEMA = pa.schema(
    [
        column("changefeed_id", pa.string(), "the changefeed"),
        column("topic", pa.string(), "Kafka topic"),
        column("partition", pa.int32(), "Kafka partition"),
        column("offset", pa.int64(), "Kafka offset"),
        column("value", pa.binary(), "the message as it came"),
        column("schema_name", pa.string(), "MySQL schema, where it could be read"),
        column("table_name", pa.string(), "MySQL table, where it could be read"),
        column("commit_ts", pa.int64(), "TSO, where it could be read"),
        column("error_class", pa.string(), "what kind of trouble"),
        column("message", pa.string(), "what was wrong"),
        column("created_at", pa.timestamp("us", tz="UTC"), "when it was first put here"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWriter:
    """Who adds dead letters. They are accepted while the writer is trusted, and its incarnation
    (and term) is the current one.

    ``term`` is an owner's, and None for the span writer of a capture: a capture keeps its spans
    when the owner changes. That is safe, since within one incarnation every writer of a span adds
    the same dead letters.
    """

    changefeed_id: str
    incarnation: int
    term: int | None
    check: Callable[[], object]  # called right before each commit; raises when trust has lapsed

    def check_all(self, table: ControlTable, view: TableView) -> None:
        """For plans: raises TermRefused or Fenced unless this writer may commit on this version."""
        self.check()
        stored = view.transaction(incarnation_app_id(self.changefeed_id))
        if stored is not None and stored > self.incarnation:
            raise incarnation_refused(self.changefeed_id, self.incarnation, stored, table.uri)
        if self.term is not None:
            check_term(table, view, self.changefeed_id, self.term)


class DeadLetters:
    """Adds and counts dead letters. Thread-safe; every call blocks for storage."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._counted: tuple[int, str, Counter[TableName | None]] = (-1, "", Counter())
        self._table = ControlTable(
            warehouse,
            "dead_letters",
            SCHEMA,
            storage_options,
            description="Tidelake: messages that could not be decoded or applied",
            tidy=join_files,
            upkeep=upkeep,
        )

    def claim(self, changefeed_id: str, term: int, incarnation: int) -> None:
        """From here on only this term and incarnation can add rows. Makes the table if there is
        none. Raises TermRefused if a newer term was claimed."""
        claim(self._table, changefeed_id, term, incarnation)

    def merge(self, rows: pa.Table, by: LetterWriter | None = None) -> int:
        """Add the rows that are not there yet, in one commit. Returns how many these were.

        ``rows`` has the columns of ``SCHEMA`` in any order; ``created_at`` may be missing, and is
        now. Raises what ``by.check_all`` raises; with None nothing is checked.
        """
        incoming = _unique(_conform(rows))
        added = 0

        def plan(view: TableView) -> Change | None:
            nonlocal added
            if by is not None:
                by.check_all(self._table, view)
            known = view.scan(KEY, _near(incoming)).cast(_KEY_SCHEMA)
            fresh = _joined(incoming, known, "left anti")
            if len(fresh) < len(incoming):
                others = _others(view, _joined(incoming, known, "left semi"))
                fresh = pa.concat_tables([fresh, others])
            added = len(fresh)
            if not added:
                return None
            return Change(rows=fresh.select(SCHEMA.names).cast(SCHEMA).sort_by(_BY_KEY))

        if len(incoming):
            self._table.commit(plan, "add dead letters to")
        return added

    def counts(self, changefeed_id: str) -> dict[TableName | None, int]:
        """How many dead letters each table has; under None those whose table could not be read."""
        return dict(self._table.read(lambda view: self._count(view, changefeed_id)) or {})

    def _count(self, view: TableView, changefeed_id: str) -> Counter[TableName | None]:
        version, owner, counter = self._counted
        if (version, owner) != (view.version, changefeed_id):
            names = ["schema_name", "table_name"]
            found = view.scan(names, pc.field("changefeed_id") == changefeed_id)
            groups = found.group_by(names).aggregate([([], "count_all")]).to_pylist()
            counter = Counter()
            for group in groups:
                schema, table = group["schema_name"], group["table_name"]
                is_known = schema is not None and table is not None
                counter[TableName(schema, table) if is_known else None] += group["count_all"]
            self._counted = (view.version, changefeed_id, counter)
        return counter


_KEY_SCHEMA = pa.schema([SCHEMA.field(name) for name in KEY])
_BYTES_SCHEMA = _KEY_SCHEMA.append(SCHEMA.field("value"))
_BY_KEY = [(name, "ascending") for name in KEY]


def _conform(rows: pa.Table) -> pa.Table:
    if "created_at" not in rows.column_names:
        now = pa.array([datetime.now(UTC)] * len(rows), SCHEMA.field("created_at").type)
        rows = rows.append_column("created_at", now)
    return rows.select(SCHEMA.names).cast(SCHEMA)


def _unique(rows: pa.Table) -> pa.Table:
    numbered = rows.append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(list(KEY)).aggregate([("row", "min")])["row_min"]
    return rows.take(first.combine_chunks())


def _joined(
    rows: pa.Table,
    others: pa.Table,
    how: Literal["left anti", "left semi", "left outer"],
) -> pa.Table:
    return rows.join(others, keys=list(KEY), join_type=how)


def _others(view: TableView, rows: pa.Table) -> pa.Table:
    """Of messages whose offset is known those that are others: the topic was made again."""
    here = _near(rows) & pc.field("offset").isin(rows["offset"].unique())
    kept = view.scan(_BYTES_SCHEMA.names, here).cast(_BYTES_SCHEMA).rename_columns([*KEY, "kept"])
    both = _joined(rows, kept, "left outer")
    is_same = pc.fill_null(pc.equal(both["value"], both["kept"]), True)  # bytes may have been gone
    return _joined(rows, both.filter(is_same).select(KEY), "left anti")


def _near(rows: pa.Table) -> pc.Expression:
    """A condition that all stored rows with the incoming keys meet, and others may too. It is cheap
    to evaluate, since files are pruned by it."""
    offsets = pc.min_max(rows["offset"])
    return (
        pc.field("changefeed_id").isin(rows["changefeed_id"].unique())
        & pc.field("topic").isin(rows["topic"].unique())
        & (pc.field("offset") >= offsets["min"])
        & (pc.field("offset") <= offsets["max"])
    )
