"""``_tidelake/snapshots``: the ledger of consistent cuts, merged on (changefeed, primary-ts).

Reading every table at the versions of one row shows all of them as of one TiDB timestamp (rule 7).
Rows are appended; upkeep rewrites the table into one file and drops what retention no longer keeps.
Age is counted between rows of the table (never against a clock), and the newest rows stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from coordination.model import tso_time
from sinks.control_schema import fitted, from_rows, schema_of, to_rows
from sinks.control_table import Change, ControlTable, TableView
from sinks.control_upkeep import NO_HOOKS, ONCE, Upkeep
from sinks.txn import check_term, claim

MOST_AGE = timedelta(hours=24)  # before the newest row's created_at
MOST_ROWS = 10_000
LEAST_ROWS = 100  # kept whatever their age: a quiet feed, or a clock that jumped


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One consistent cut. ``created_at`` is stamped by ``publish`` where it is None."""

    changefeed_id: Annotated[str, "the changefeed"]
    primary_ts: Annotated[int, "TSO: all tables as of this"]
    primary_time: Annotated[datetime, "primary_ts as a time"] = field(init=False)
    tables: Annotated[Mapping[str, int], "schema.table -> Delta version"]
    dead_letters: Annotated[int, "messages that could not be applied so far"] = 0
    created_at: Annotated[datetime | None, "when it was published"] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "primary_time", tso_time(self.primary_ts))


SCHEMA = schema_of(SnapshotRow)


class Snapshots:
    """Publishes and finds consistent cuts; safe to share between threads."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._known: tuple[int, frozenset[int], str] = (-1, frozenset(), "")
        self._table = ControlTable(
            warehouse,
            "snapshots",
            SCHEMA,
            storage_options,
            description="Tidelake: Delta versions that show all tables as of one timestamp",
            tidy=_tidy,
            upkeep=upkeep,
        )

    def claim(self, changefeed_id: str, term: int) -> None:
        """From here on only this term's snapshots count; TermRefused if a newer one was claimed."""
        claim(self._table, changefeed_id, term)

    def publish(self, row: SnapshotRow, term: int) -> bool:
        """Add the cut; False when its primary-ts is there already. TermRefused if overtaken."""
        published: frozenset[int] = frozenset()

        def plan(view: TableView) -> Change | None:
            nonlocal published
            check_term(self._table, view, row.changefeed_id, term)
            published = self._published(view, row.changefeed_id)
            if row.primary_ts in published:
                return None
            stamped = replace(row, created_at=row.created_at or datetime.now(UTC))
            return Change(rows=to_rows([stamped], SCHEMA))

        version = self._table.commit(plan, "publish a snapshot in")
        if version is None:
            return False
        self._known = (version, published | {row.primary_ts}, row.changefeed_id)
        return True

    def latest(self, changefeed_id: str) -> SnapshotRow | None:
        return self._greatest(pc.field("changefeed_id") == changefeed_id)

    def as_of(self, changefeed_id: str, ts: int) -> SnapshotRow | None:
        """The cut with the greatest primary-ts at or below ``ts``."""
        ours = pc.field("changefeed_id") == changefeed_id
        return self._greatest(ours & (pc.field("primary_ts") <= ts))

    def _greatest(self, where: Any) -> SnapshotRow | None:
        def reader(view: TableView) -> SnapshotRow | None:
            ts = pc.max(view.scan(["primary_ts"], where)["primary_ts"])
            if not ts.is_valid:
                return None
            found = view.scan(SCHEMA.names, where & (pc.field("primary_ts") == ts))
            return from_rows(found, SnapshotRow)[0]

        return self._table.read(reader)

    def _published(self, view: TableView, changefeed_id: str) -> frozenset[int]:
        """Every primary-ts of the changefeed; remembered until another commit comes."""
        version, known, owner = self._known
        if version == view.version and owner == changefeed_id:
            return known
        keys = view.scan(["primary_ts"], pc.field("changefeed_id") == changefeed_id)
        return frozenset(keys["primary_ts"].to_pylist())


def _tidy(handle: DeltaTable) -> None:
    """All rows that are kept, in one file: a compare-and-set like every commit."""
    write_deltalake(
        handle,
        fitted(kept(TableView(handle, SCHEMA).rows()), handle),
        mode="overwrite",
        commit_properties=ONCE,
        post_commithook_properties=NO_HOOKS,
    )


def kept(rows: pa.Table) -> pa.Table:
    """What is kept of every changefeed, in order of changefeed and primary-ts."""
    parts = [rows.slice(0, 0)]
    for changefeed_id in sorted(rows["changefeed_id"].unique().to_pylist()):
        ours = rows.filter(pc.equal(rows["changefeed_id"], changefeed_id)).sort_by("primary_ts")
        ours = ours.slice(max(0, len(ours) - MOST_ROWS))
        oldest = pc.max(ours["created_at"]).as_py() - MOST_AGE
        last = pa.array(range(len(ours)))
        newest = pc.greater_equal(last, len(ours) - LEAST_ROWS)
        parts.append(ours.filter(pc.or_(pc.greater_equal(ours["created_at"], oldest), newest)))
    return pa.concat_tables(parts).combine_chunks()
