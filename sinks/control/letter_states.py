"""``_tidelake/dead_letter_states``: the states of dead letters, and who set them.

    open ──a replay──► replayed        ──a rewind, and it fails again──► open
      ├──a newer change of its row──► superseded ──┘
      └──an operator──► resolved

A letter is known by its place and the time at which it was put there. Without a row here it is
open. Rows are only added: for each letter the row with the greatest ``number`` counts. Rows are
small, and there are none as long as nobody handles a letter. So the letters themselves, with their
bytes, stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from sinks.control.columns import column
from sinks.control.control_table import Change, ControlTable, TableView
from sinks.control.upkeep import Upkeep, join_files

LetterState = Literal["open", "replayed", "superseded", "resolved"]
OPEN: Final = "open"
REPLAYED: Final = "replayed"
SUPERSEDED: Final = "superseded"
RESOLVED: Final = "resolved"
STATES: Final = (OPEN, REPLAYED, SUPERSEDED, RESOLVED)
PASSED_NEW: Final = "new"  # of an UPDATE that changes the key: its new row was passed
PASSED_OLD: Final = "old"

LETTER: Final = ("changefeed_id", "part", "identity", "position", "index", "created_at")
SCHEMA: Final = pa.schema(
    [
        column("changefeed_id", pa.string(), "the changefeed"),
        column("part", pa.string(), "the part of the source that had the letter"),
        column("identity", pa.string(), "that part's identity"),
        column("position", pa.int64(), "in that part"),
        column("index", pa.int32(), "of the row in its message"),
        column("created_at", pa.timestamp("us", tz="UTC"), "created_at of the letter"),
        column("number", pa.int64(), "the row with a letter's greatest number counts"),
        column("state", pa.string(), "open, replayed, superseded or resolved"),
        column("passed", pa.string(), "new, old: the half that newer changes have passed"),
        column("state_at", pa.timestamp("us", tz="UTC"), "since when the state holds"),
        column("state_by", pa.string(), "who set it"),
        column("note", pa.string(), "an operator's note, or the change that passed it"),
        column("refusal", pa.string(), "why the last replay could not apply it"),
        column("barred", pa.string(), "why it cannot be replayed any more"),
        column("incarnation", pa.int32(), "the changefeed's at that time"),
    ]
)
_KEY_SCHEMA = pa.schema([SCHEMA.field(name) for name in LETTER])
OF_STATE: Final = ("state", "passed", "state_at", "state_by", "note", "refusal", "barred")
_STORED: Final = (*OF_STATE, "incarnation")


class LetterStates:
    """Reads and adds. Thread-safe; every call blocks for storage."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._newest: tuple[int, pa.Table] | None = None
        self._table = ControlTable(
            warehouse,
            "dead_letter_states",
            SCHEMA,
            storage_options,
            description="Tidelake: states of dead letters, and who set them",
            tidy=join_files,
            upkeep=upkeep,
        )

    def read(self) -> tuple[int, pa.Table]:
        """The table's version (-1: there is none), and the present row of each letter."""
        found = self._table.read(self._present)
        return (-1, SCHEMA.empty_table()) if found is None else found

    def _present(self, view: TableView) -> tuple[int, pa.Table]:
        if self._newest is None or self._newest[0] != view.version:
            self._newest = view.version, _newest(view.scan(SCHEMA.names).cast(SCHEMA))
        return self._newest

    def change(
        self,
        rows: pa.Table,
        *,
        by: str,
        among: Collection[str] = (OPEN,),
        below_incarnation: int | None = None,
    ) -> pa.Table:
        """Add these rows in one commit, where the letter is in one of these states and the row says
        something new. Returns the rows that were added.

        ``rows``: columns of ``LETTER`` and some others, each letter once. A row without ``note``,
        ``refusal`` or ``barred`` leaves these as they are. ``below_incarnation``: only where the
        present row belongs to an earlier one.
        """
        added = rows.slice(0, 0)

        def plan(view: TableView) -> Change | None:
            nonlocal added
            _, present = self._present(view)
            news = _news(rows, present, among, below_incarnation)
            added = rows.take(news["row"])
            if not len(news):
                return None
            stamp = datetime.now(UTC)
            told = {"number": view.version + 1, "state_at": stamp, "state_by": by}
            columns = [
                pa.array([told[name]] * len(news), SCHEMA.field(name).type)
                if name in told
                else news[name]
                for name in SCHEMA.names
            ]
            return Change(rows=pa.Table.from_arrays(columns, SCHEMA.names).cast(SCHEMA))

        if len(rows):
            self._table.commit(plan, "note what becomes of dead letters in")
        return added


def with_states(letters: pa.Table, present: pa.Table) -> pa.Table:
    """The letters, in no order, with ``OF_STATE``."""
    names = [*letters.column_names, *OF_STATE]
    if not len(present):
        return _without_state(letters).select(names)
    found = letters.join(present.select([*LETTER, *OF_STATE]), list(LETTER), join_type="left outer")
    state = pc.fill_null(found["state"], OPEN)
    return found.set_column(found.column_names.index("state"), "state", state).select(names)


def _without_state(letters: pa.Table) -> pa.Table:
    for name in OF_STATE:
        values = pa.nulls(len(letters), SCHEMA.field(name).type)
        letters = letters.append_column(
            name, pc.fill_null(values, OPEN) if name == "state" else values
        )
    return letters


def _newest(rows: pa.Table) -> pa.Table:
    others = [name for name in SCHEMA.names if name not in LETTER]
    ordered = rows.sort_by("number")
    last = ordered.group_by(list(LETTER), use_threads=False).aggregate(
        [(name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in others]
    )
    columns = [last[name if name in LETTER else f"{name}_last"] for name in SCHEMA.names]
    return pa.Table.from_arrays(columns, SCHEMA.names).cast(SCHEMA)


def _news(
    rows: pa.Table, present: pa.Table, among: Collection[str], below_incarnation: int | None
) -> pa.Table:
    """The rows to add, with all columns except those of the commit, and ``row``: their places in
    the given rows."""
    told = [name for name in rows.column_names if name not in LETTER]
    wanted = rows.append_column("row", pa.array(range(len(rows)), pa.int64()))
    renamed = present.select([*LETTER, *_STORED]).rename_columns(
        [*LETTER, *(f"{name}_before" for name in _STORED)]
    )
    both = wanted.join(renamed, list(LETTER), join_type="left outer")
    before = {name: both[f"{name}_before"] for name in _STORED}
    before["state"] = pc.fill_null(before["state"], OPEN)
    is_wanted = pc.is_in(before["state"], value_set=pa.array(sorted(among)))
    if below_incarnation is not None:
        is_older = pc.less(before["incarnation"], below_incarnation)
        is_wanted = pc.and_(is_wanted, pc.fill_null(is_older, False))
    is_other = pa.chunked_array([pa.array([False] * len(both), pa.bool_())])
    for name in told:
        if name != "incarnation":
            is_other = pc.or_(is_other, _differs(both[name], before[name]))
    columns = {name: both[name] for name in (*LETTER, "row")}
    for name in _STORED:
        columns[name] = both[name] if name in told else before[name]
    return pa.table(columns).filter(pc.and_(is_wanted, is_other))


def _differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    is_null, was_null = one.is_null(), other.is_null()
    return pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(is_null, was_null))
