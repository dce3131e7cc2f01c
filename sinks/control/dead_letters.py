"""``_tidelake/dead_letters``: messages that could not be decoded or applied, with their raw bytes.

A message with several rows has a letter for each row that cannot be applied, by its index. Rows are
merged on (changefeed, part, identity, position, index), so a replay adds nothing. A topic that was
made again has another identity. Letters stay until a user deletes them; upkeep only joins small
files. ``letter_states`` has what becomes of them.

Every owner claims the table, as it does ``progress``. A writer of an older term or incarnation is
refused: it might add a message that is no dead letter any more, or one that a user has deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from sinks.control.columns import column
from sinks.control.control_table import Change, ControlTable, TableView
from sinks.control.letter_states import (
    LETTER,
    OPEN,
    REPLAYED,
    SUPERSEDED,
    LetterStates,
    with_states,
)
from sinks.control.terms import check_term, claim, incarnation_app_id, incarnation_refused
from sinks.control.upkeep import Upkeep, join_files

KEY = ("changefeed_id", "part", "identity", "position", "index")
SCHEMA = pa.schema(
    [
        column("changefeed_id", pa.string(), "the changefeed"),
        column("part", pa.string(), "the part of the source: a Kafka topic/partition"),
        column("identity", pa.string(), "its identity: the ID of a Kafka topic"),
        column("position", pa.int64(), "in that part: a Kafka offset"),
        column("index", pa.int32(), "of the row in that message"),
        column("value", pa.binary(), "the message as it came, or as much as tells the row"),
        column("schema_name", pa.string(), "MySQL schema, where it could be read"),
        column("table_name", pa.string(), "MySQL table, where it could be read"),
        column("commit_ts", pa.int64(), "TSO, where it could be read"),
        column("error_class", pa.string(), "the kind of error"),
        column("message", pa.string(), "the error"),
        column("created_at", pa.timestamp("us", tz="UTC"), "when it was first put here"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWriter:
    """Identifies a process that adds dead letters. They are accepted while the writer is trusted,
    and its incarnation (and term) is the current one.

    ``term`` is an owner's, and None for the span writer of a capture: a capture keeps its spans
    when the owner changes. That is safe, since within one incarnation every writer of a span adds
    the same dead letters.
    """

    changefeed_id: str
    incarnation: int
    term: int | None
    check: Callable[[], object]  # called right before each commit; raises when trust has lapsed
    capture_id: str = ""

    def check_all(self, table: ControlTable, view: TableView) -> None:
        """For plans: raises TermRefused or Fenced unless this writer may commit on this version."""
        self.check()
        stored = view.transaction(incarnation_app_id(self.changefeed_id))
        if stored is not None and stored > self.incarnation:
            raise incarnation_refused(self.changefeed_id, self.incarnation, stored, table.uri)
        if self.term is not None:
            check_term(table, view, self.changefeed_id, self.term)


class DeadLetters:
    """Adds, reads and counts dead letters, and notes their states. Thread-safe; every call blocks
    for storage."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._counted: tuple[tuple[int, int], str, Counter[TableName | None]] | None = None
        self.states = LetterStates(warehouse, storage_options, upkeep=upkeep)
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

        ``rows`` has the columns of ``SCHEMA`` in any order; ``index`` may be missing or null, and
        is 0, and ``created_at`` may be missing, and is now. A letter that comes again after a
        rewind is open again, unless an operator has resolved it. Raises the errors of
        ``by.check_all``; with None nothing is checked.
        """
        incoming = _unique(_conform(rows))
        added = 0

        def plan(view: TableView) -> Change | None:
            nonlocal added
            if by is not None:
                by.check_all(self._table, view)
            known = view.scan(KEY, _near(incoming)).cast(_KEY_SCHEMA)
            fresh = incoming.join(known, keys=list(KEY), join_type="left anti")
            added = len(fresh)
            if not added:
                return None
            return Change(rows=fresh.select(SCHEMA.names).cast(SCHEMA).sort_by(_BY_KEY))

        if len(incoming):
            self._table.commit(plan, "add dead letters to")
            if by is not None and added < len(incoming):
                self._open_again(incoming, by)
        return added

    def _open_again(self, rows: pa.Table, by: LetterWriter) -> None:
        """Opens letters that the stream or a replay closed in an earlier incarnation: the table's
        rows come again from below them, and these rows failed again."""
        _, present = self.states.read()
        if not len(present):
            return
        letters, keys = present.select(LETTER), list(KEY)
        known = letters.join(rows.select(keys), keys, join_type="left semi")
        again = known.append_column("state", _all(OPEN, known, pa.string()))
        again = again.append_column("passed", pa.nulls(len(known), pa.string()))
        again = again.append_column("incarnation", _all(by.incarnation, known, pa.int32()))
        self.states.change(
            again,
            by=f"rewind (incarnation {by.incarnation})",
            among=(REPLAYED, SUPERSEDED),
            below_incarnation=by.incarnation,
        )

    def counts(self, changefeed_id: str) -> dict[TableName | None, int]:
        """How many open dead letters each table has; under None those whose table could not be
        read."""
        states, present = self.states.read()

        def count(view: TableView) -> Counter[TableName | None]:
            read = (view.version, states), changefeed_id
            if self._counted is None or self._counted[:2] != read:
                self._counted = (*read, _counts(view, changefeed_id, present))
            return self._counted[2]

        return {name: n for name, n in (self._table.read(count) or {}).items() if n}

    def listed(self, changefeed_id: str | None = None) -> pa.Table:
        """All letters, or a changefeed's, without their bytes: ``LISTED`` and their states."""
        where = None if changefeed_id is None else pc.field("changefeed_id") == changefeed_id
        # First the letters: a state that is read later may be newer, and is right all the same.
        found = self._table.read(lambda view: view.scan(LISTED.names, where).cast(LISTED))
        _, present = self.states.read()
        return with_states(LISTED.empty_table() if found is None else found, present)

    def with_bytes(self, letters: pa.Table) -> pa.Table:
        """The same letters, in the same order, with ``value``: the message as it came."""
        if not len(letters):
            return letters.append_column("value", pa.nulls(0, pa.binary()))
        here = _near(letters)
        names = [*LETTER, "value"]
        found = self._table.read(lambda view: view.scan(names, here).cast(_VALUES))
        assert found is not None
        numbered = letters.append_column("at", pa.array(range(len(letters)), pa.int64()))
        both = numbered.join(found, list(LETTER), join_type="left outer").sort_by("at")
        return both.select([*letters.column_names, "value"])

    def at(self, changefeed_id: str, places: Sequence[tuple[str, int]]) -> pa.Table:
        """The known letters at these places (part, position), and perhaps others: ``LISTED``
        without states."""
        positions = pa.array([position for _, position in places], pa.int64())
        here = (pc.field("changefeed_id") == changefeed_id) & pc.field("position").isin(positions)
        found = self._table.read(lambda view: view.scan(LISTED.names, here).cast(LISTED))
        return LISTED.empty_table() if found is None else found

    def open_of(self, changefeed_id: str, name: TableName) -> Iterator[pa.Table]:
        """The open letters of a table, with their bytes and states, in parts."""
        listed = self.listed(changefeed_id)
        is_open = pc.and_(
            pc.equal(listed["state"], OPEN),
            pc.and_(
                pc.equal(listed["schema_name"], name.schema),
                pc.equal(listed["table_name"], name.table),
            ),
        )
        found = listed.filter(pc.fill_null(is_open, False)).sort_by(BY_PLACE)
        for start in range(0, len(found), PART_ROWS):
            yield self.with_bytes(found.slice(start, PART_ROWS))


PART_ROWS = 20_000  # so many letters are in memory with their bytes
LISTED = pa.schema([field for field in SCHEMA if field.name != "value"])
BY_PLACE: Sequence[tuple[str, str]] = [
    (name, "ascending") for name in ("part", "position", "index", "created_at")
]
_VALUES = pa.schema([SCHEMA.field(name) for name in (*LETTER, "value")])
_KEY_SCHEMA = pa.schema([SCHEMA.field(name) for name in KEY])
_BY_KEY = [(name, "ascending") for name in KEY]


def _counts(view: TableView, changefeed_id: str, states: pa.Table) -> Counter[TableName | None]:
    names = ["schema_name", "table_name"]
    closed = states.filter(pc.not_equal(states["state"], OPEN)).select(LETTER)
    here = pc.field("changefeed_id") == changefeed_id
    if len(closed):
        rows = view.scan([*LETTER, *names], here)
        found = rows.cast(pa.schema([SCHEMA.field(name) for name in rows.column_names])).join(
            closed, list(LETTER), join_type="left anti"
        )
    else:
        found = view.scan(names, here)
    counter: Counter[TableName | None] = Counter()
    for group in found.group_by(names).aggregate([([], "count_all")]).to_pylist():
        schema, table = group["schema_name"], group["table_name"]
        is_known = schema is not None and table is not None
        counter[TableName(schema, table) if is_known else None] += group["count_all"]
    return counter


def _all(value: object, rows: pa.Table, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(rows))


def _conform(rows: pa.Table) -> pa.Table:
    if "created_at" not in rows.column_names:
        now = pa.array([datetime.now(UTC)] * len(rows), SCHEMA.field("created_at").type)
        rows = rows.append_column("created_at", now)
    if "index" not in rows.column_names:
        rows = rows.append_column("index", _all(0, rows, pa.int32()))
    at = rows.column_names.index("index")
    rows = rows.set_column(at, "index", pc.fill_null(rows["index"], 0))
    return rows.select(SCHEMA.names).cast(SCHEMA)


def _unique(rows: pa.Table) -> pa.Table:
    numbered = rows.append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(list(KEY)).aggregate([("row", "min")])["row_min"]
    return rows.take(first.combine_chunks())


def _near(rows: pa.Table) -> pc.Expression:
    """A condition that all stored rows with the incoming keys meet, and others may too. It is cheap
    to evaluate, since files are pruned by it."""
    positions = pc.min_max(rows["position"])
    return (
        pc.field("changefeed_id").isin(rows["changefeed_id"].unique())
        & pc.field("part").isin(rows["part"].unique())
        & (pc.field("position") >= positions["min"])
        & (pc.field("position") <= positions["max"])
    )
