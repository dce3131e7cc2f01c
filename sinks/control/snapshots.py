"""``_tidelake/snapshots``: the ledger of consistent cuts, merged on (changefeed, primary-ts).

A user who reads every table at its version in one row sees all of them as of one TiDB timestamp
(rule 7). Rows are appended. Upkeep rewrites the table into one file, without rows that are too old;
of rows older than an hour it keeps the first of each minute. A row's age is its distance to the
newest row (never to a clock), and the newest rows stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from coordination.model import TableName, tso_time
from sinks.control.columns import fitted, from_rows, schema_of, to_rows
from sinks.control.control_table import Change, ControlTable, TableView
from sinks.control.terms import check_term, claim
from sinks.control.upkeep import NO_HOOKS, Upkeep
from sinks.target.target_table import ONCE

MOST_AGE_H = 24  # before the newest row's created_at, where that does not say
EACH_FOR = timedelta(hours=1)  # older ones are kept one per minute; a new one comes each second
MOST_ROWS = 50_000  # of a month, one per minute
LEAST_ROWS = 100  # kept at any age, for a quiet feed or a clock that jumped


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One consistent cut. ``publish`` stamps ``created_at``, where it is None, and ``kept_h``."""

    changefeed_id: Annotated[str, "the changefeed"]
    primary_ts: Annotated[int, "TSO: all tables as of this"]
    primary_time: Annotated[datetime, "primary_ts as a time"] = field(init=False)
    tables: Annotated[Mapping[str, int], "schema.table -> Delta version"]
    dead_letters: Annotated[int, "messages that could not be applied so far"] = 0
    created_at: Annotated[datetime | None, "when it was published"] = None
    kept_h: Annotated[int | None, "hours for which the versions can be read; null: 24"] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "primary_time", tso_time(self.primary_ts))


SCHEMA = schema_of(SnapshotRow)


class Snapshots:
    """Publishes and finds consistent cuts. Thread-safe; every call blocks for storage."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        kept_h: int = MOST_AGE_H,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._kept_h = kept_h
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
        """From here on only this term can publish. Raises TermRefused if a newer one was
        claimed."""
        claim(self._table, changefeed_id, term)

    def publish(self, row: SnapshotRow, term: int) -> bool:
        """Add the cut. Returns False if its primary-ts is in the ledger already. Raises TermRefused
        when the term is not ours any more."""
        published: frozenset[int] = frozenset()

        def plan(view: TableView) -> Change | None:
            nonlocal published
            check_term(self._table, view, row.changefeed_id, term)
            published = self._published(view, row.changefeed_id)
            if row.primary_ts in published:
                return None
            created_at = row.created_at or datetime.now(UTC)
            stamped = replace(row, created_at=created_at, kept_h=self._kept_h)
            return Change(rows=to_rows([stamped], SCHEMA))

        version = self._table.commit(plan, "publish a snapshot in")
        if version is None:
            return False
        self._known = (version, published | {row.primary_ts}, row.changefeed_id)
        return True

    def forget(self, changefeed_id: str, above: Mapping[TableName, int], term: int) -> None:
        """Take out the cuts that name a table at a version above this one: its log was replaced by
        an older copy, and will have other content there. Raises TermRefused."""
        if not above:
            return
        last = {str(name): version for name, version in above.items()}

        def plan(view: TableView) -> Change | None:
            check_term(self._table, view, changefeed_id, term)
            rows = from_rows(view.rows(), SnapshotRow)
            kept = [
                row
                for row in rows
                if row.changefeed_id != changefeed_id
                or all(version <= last.get(name, version) for name, version in row.tables.items())
            ]
            if len(kept) == len(rows):
                return None
            return Change(rows=to_rows(kept, SCHEMA), mode="overwrite")

        self._table.commit(plan, "forget snapshots in")

    def latest(self, changefeed_id: str) -> SnapshotRow | None:
        return self._at(pc.max, pc.field("changefeed_id") == changefeed_id)

    def as_of(self, changefeed_id: str, ts: int) -> SnapshotRow | None:
        """The cut with the greatest primary-ts at or below ``ts``."""
        ours = pc.field("changefeed_id") == changefeed_id
        return self._at(pc.max, ours & (pc.field("primary_ts") <= ts))

    def earliest(self, changefeed_id: str) -> SnapshotRow | None:
        return self._at(pc.min, pc.field("changefeed_id") == changefeed_id)

    def _at(self, least_or_most: Callable[..., Any], where: Any) -> SnapshotRow | None:
        def reader(view: TableView) -> SnapshotRow | None:
            ts = least_or_most(view.scan(["primary_ts"], where)["primary_ts"])
            if not ts.is_valid:
                return None
            found = view.scan(SCHEMA.names, where & (pc.field("primary_ts") == ts))
            return from_rows(found, SnapshotRow)[0]

        return self._table.read(reader)

    def _published(self, view: TableView, changefeed_id: str) -> frozenset[int]:
        """Every primary-ts of the changefeed in this version; the last version's are cached."""
        version, known, owner = self._known
        if version == view.version and owner == changefeed_id:
            return known
        keys = view.scan(["primary_ts"], pc.field("changefeed_id") == changefeed_id)
        return frozenset(keys["primary_ts"].to_pylist())


def _tidy(handle: DeltaTable) -> None:
    """Rewrite the rows that are kept into one file. Like every commit, a compare-and-set."""
    write_deltalake(
        handle,
        fitted(kept(TableView(handle, SCHEMA).rows())),
        mode="overwrite",
        commit_properties=ONCE,
        post_commithook_properties=NO_HOOKS,
    )


def kept(rows: pa.Table) -> pa.Table:
    """The rows that retention keeps of each changefeed, by changefeed and primary-ts."""
    parts = [rows.slice(0, 0)]
    for changefeed_id in sorted(rows["changefeed_id"].unique().to_pylist()):
        ours = rows.filter(pc.equal(rows["changefeed_id"], changefeed_id)).sort_by("primary_ts")
        ours = ours.slice(max(0, len(ours) - MOST_ROWS))
        # None was made later than the next one, whatever the clock said then.
        created = np.minimum.accumulate(ours["created_at"].to_numpy()[::-1])[::-1]
        age = created[-1] - created
        minutes = created.astype("datetime64[m]")
        is_first = np.insert(minutes[1:] != minutes[:-1], 0, True)  # of its minute
        is_each = age <= np.timedelta64(EACH_FOR)
        most_age = timedelta(hours=ours["kept_h"][-1].as_py() or MOST_AGE_H)
        is_kept = (age <= np.timedelta64(most_age)) & (is_first | is_each)
        is_kept[-LEAST_ROWS:] = True
        parts.append(ours.filter(pa.array(is_kept)))
    return pa.concat_tables(parts).combine_chunks()
