"""``_tidelake/changefeeds``: one row per changefeed. It holds the term, and from where to read on.

An owner that etcd elected claims the next term, and by that makes its writes count (rule 6).
Wall clocks are never compared: to see whether another etcd's owner still lives, its row is watched
for changes, timed by our own monotonic clock.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pyarrow as pa

from conf.masking import masked
from coordination.errors import Stop, TidelakeError
from coordination.model import Ownership
from coordination.trust.clock import Clock, SystemClock
from sinks.control.columns import INT32, INT64, TEXT, from_rows, schema_of
from sinks.control.control_table import Change, ControlTable, TableView, replaced, rows_of
from sinks.control.earlier_owner import (
    ENDED,
    ChangefeedState,
    alive,
    etcd_and_scope,
    is_earlier,
    must_wait,
    why_it_may_live,
)
from sinks.control.terms import term_refused

NEARLY_S = 10.0  # for a backlog of at most this much reading, new messages are not counted in

logger = logging.getLogger(__name__)
PATIENCE_TTLS = 3.0  # a row of another etcd that is still refreshed then has a live owner
LOOKS_PER_TTL = 10  # at a row that is watched
# A row is refreshed each third of its writer's TTL, and others take over a TTL after the writer's
# death. So where it is not refreshed for this many TTLs, nobody is there.
FRESH_TTLS = 2.0
NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWatermark:
    """A part's watermark, and the position of the message that carried it. ``token``: with which
    its source goes on from there; only the source knows what it says."""

    ts: int
    position: int
    token: str = ""


_NAMES = pa.map_(TEXT, TEXT)
_WATERMARKS = pa.map_(TEXT, pa.struct([("ts", INT64), ("position", INT64), ("token", TEXT)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedRow:
    """A changefeed as stored. ``term`` and ``updated_at`` are set by ``claim`` and ``save``."""

    changefeed_id: Annotated[str, "one row per changefeed"]
    incarnation: Annotated[int, INT32, "counted up by a rewind"] = 1
    start_ts: Annotated[int, "TSO"]
    target_ts: Annotated[int | None, "TSO at which the changefeed finishes; null: never"] = None
    state: Annotated[
        ChangefeedState, TEXT, "initializing … running … pending, stopped or failed"
    ] = "initializing"
    checkpoint_ts: Annotated[int, "TSO: everything at or below is in every table"]
    resolved_ts: Annotated[int, "TSO: the source has sent everything up to it"]
    max_published_ts: Annotated[int, "TSO: no snapshot at or below is published (again)"] = 0
    term: Annotated[int, "counted up by each owner; only the newest one's writes count"] = 0
    capture_id: Annotated[str, "the capture that claimed the term"] = ""
    epoch: Annotated[str, "that capture's session"] = ""
    etcd_cluster_id: Annotated[str, "the etcd by which that capture was elected"] = ""
    owner_revision: Annotated[int, "create-revision of its election key"] = 0
    source_positions: Annotated[Mapping[str, int], "part -> low-water position"] = field(
        default_factory=dict
    )
    watermarks: Annotated[
        Mapping[str, RecordedWatermark],
        _WATERMARKS,
        "part -> last watermark and the position of the message that carried it",
    ] = field(default_factory=dict)
    source_identities: Annotated[
        Mapping[str, str], _NAMES, "part -> its identity, as the topic's ID"
    ] = field(default_factory=dict)
    fingerprint: Annotated[str, "hash of the settings that decide what rows look like"] = ""
    error: Annotated[str | None, "why the changefeed failed, waits or warns"] = None
    error_code: Annotated[str | None, "its code (docs/operations.md); null: it has none"] = None
    updated_at: Annotated[datetime, "last refresh; rises with every write"] = NEVER
    start_id: Annotated[str | None, "ID of the creation or resume that set start_ts; null: run"] = (
        None
    )
    read_positions: Annotated[
        Mapping[str, int], "topic/partition -> everything before has been read"
    ] = field(default_factory=dict)
    end_positions: Annotated[
        Mapping[str, int], "topic/partition -> Kafka's end when it was last asked"
    ] = field(default_factory=dict)
    messages_behind: Annotated[
        int | None, "end_positions minus read_positions; null: not known"
    ] = None
    messages_per_s: Annotated[float | None, "read over the last minute; null: not known"] = None
    time_left_s: Annotated[float | None, "till nothing is behind; null: not known, or never"] = None
    dead_letters: Annotated[int | None, "open ones of all tables and of none; null: not known"] = (
        None
    )
    source_left_s: Annotated[
        float | None, "till Kafka may delete needed messages; null: not known"
    ] = None
    filters: Annotated[str, "JSON: earlier filters with their last TSO, and the present one"] = "[]"
    fresh_for_s: Annotated[
        float | None, "refreshed within this time after updated_at, or its writer is gone; null: no"
    ] = None
    row_rules: Annotated[str | None, "JSON: settings by which rows are cast and written"] = None
    process: Annotated[str | None, "host/process ID of the capture that claimed the term"] = None
    loaded_ts: Annotated[int | None, "TSO: below, copied tables show different times"] = None

    @property
    def has_begun(self) -> bool:
        """Whether something was read, or tables were copied: a start goes on there."""
        return bool(self.source_positions) or self.loaded_ts is not None

    @property
    def is_of_a_run(self) -> bool:
        """Whether a `tidelake run` replicates it, and no cluster."""
        return bool(etcd_and_scope(self.etcd_cluster_id)[1])

    def showing(
        self, state: ChangefeedState, error: str | None, code: str | None = None
    ) -> ChangefeedRow:
        return replace(self, state=state, error=error, error_code=code)


SCHEMA = schema_of(ChangefeedRow)


class Changefeeds:
    """Reads, claims and saves rows. Thread-safe; every call blocks for storage."""

    def __init__(
        self,
        warehouse: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._table = ControlTable(
            warehouse,
            "changefeeds",
            SCHEMA,
            storage_options,
            description="Tidelake: one row per changefeed: its owner, and how far it is",
            clock=self._clock,
        )

    def read(self, changefeed_id: str) -> ChangefeedRow | None:
        """The newest row, or None (also when there is no table yet)."""
        return self._table.read(lambda view: _find(view, changefeed_id))

    def read_all(self) -> list[ChangefeedRow]:
        """Every changefeed's row, by ID."""
        rows = self._table.read(lambda view: list(_changefeeds(view.rows())))
        return sorted(rows or [], key=lambda row: row.changefeed_id)

    def claim(
        self,
        initial: ChangefeedRow,
        ownership: Ownership,
        *,
        ttl_s: float,
        stop: threading.Event,
        check: Callable[[], None] = lambda: None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> ChangefeedRow:
        """Claim the next term, and return the row as claimed: the stored one, or ``initial``.

        Blocks, for at most about three TTLs, while the stored owner may be alive and was elected by
        another etcd, or by this etcd later than us (etcd may have been restored from a backup).
        Raises TermRefused (that owner was elected later, and is alive), TidelakeError (it belongs
        to another etcd, and is alive) and Stop (``stop`` was set). Calls ``check`` before each try
        and raises its errors. ``ttl_s``: of the session's lease. ``on_wait`` gets a sentence before
        it blocks.
        """
        stale: ChangefeedRow | None = None
        give_up_at = self._clock.monotonic() + PATIENCE_TTLS * ttl_s
        while True:
            check()
            row, is_ours = self._claim_once(initial, ownership, stale, ttl_s)
            if is_ours:
                return row
            stale = self._until_stale(row, ownership, ttl_s, give_up_at, stop=stop, on_wait=on_wait)

    def begin(self, row: ChangefeedRow) -> None:
        """Write the row of a changefeed whose tables have been loaded, before anybody replicates
        it. Raises TidelakeError where one has begun already."""

        def plan(view: TableView) -> Change:
            stored = _find(view, row.changefeed_id)
            if stored is not None and (stored.term or stored.has_begun):
                raise TidelakeError(
                    f"changefeed {row.changefeed_id} is replicated into {self._table.uri} already: "
                    "its tables are not loaded anew"
                )
            return _upsert(view, replace(row, updated_at=_later_than(row.updated_at)))

        self._table.commit(plan, "begin the changefeed in")

    def save(self, row: ChangefeedRow, held: int | None = None) -> None:
        """Write the row; raises TermRefused unless the table still holds the row's term, or
        ``held``, the one before: then no owner of that term writes any more.

        Also refuses (TidelakeError) a checkpoint that falls within one incarnation: that would be a
        bug of the caller.
        """

        def plan(view: TableView) -> Change:
            stored = self._ours(view, row.changefeed_id, row.term if held is None else held)
            before, after = ((r.incarnation, r.checkpoint_ts) for r in (stored, row))
            if after < before:
                raise TidelakeError(
                    f"changefeed {row.changefeed_id}: refusing to move (incarnation, checkpoint-ts)"
                    f" back from {before} to {after} in {self._table.uri}"
                )
            return _upsert(view, replace(row, updated_at=_later_than(stored.updated_at)))

        self._table.commit(plan, "save the changefeed's row in")

    def refresh(
        self, changefeed_id: str, term: int, trouble: str | None, *, is_over: Callable[[], bool]
    ) -> None:
        """Write the stored row again as it is, or with a warning, so that it stays fresh. Writes
        nothing once ``is_over``: another thread writes the row from then on. Raises TermRefused as
        ``save`` does."""

        def plan(view: TableView) -> Change | None:
            stored = self._ours(view, changefeed_id, term)
            if is_over() or stored.state in ENDED:
                return None
            row = stored if trouble is None else stored.showing("warning", trouble)
            return _upsert(view, replace(row, updated_at=_later_than(stored.updated_at)))

        self._table.commit(plan, "refresh the changefeed's row in")

    def show(
        self,
        changefeed_id: str,
        shown: Callable[[ChangefeedRow], ChangefeedRow],
        *,
        may: Callable[[ChangefeedRow], bool],
        fresh_for_s: float | None = None,
    ) -> ChangefeedRow | None:
        """Write the row with another state and error (``shown``), whatever its term, and return
        it. Writes nothing and returns None if there is no row, or if ``may`` returns False for the
        stored one.
        ``fresh_for_s``: the caller writes the row again within this time; None: nobody does."""
        found: ChangefeedRow | None = None

        def plan(view: TableView) -> Change | None:
            nonlocal found
            stored = found = _find(view, changefeed_id)
            if stored is None or not may(stored):
                found = None
                return None
            found = shown(stored)
            if found == stored and fresh_for_s is None:
                return None
            found = replace(
                found, updated_at=_later_than(stored.updated_at), fresh_for_s=fresh_for_s
            )
            return _upsert(view, found)

        self._table.commit(plan, "save the changefeed's state in")
        return found

    def _ours(self, view: TableView, changefeed_id: str, term: int) -> ChangefeedRow:
        stored = _find(view, changefeed_id)
        if stored is None or stored.term != term:
            held = None if stored is None else stored.term
            raise term_refused(changefeed_id, term, held, self._table.uri)
        return stored

    def _claim_once(
        self,
        initial: ChangefeedRow,
        ownership: Ownership,
        stale: ChangefeedRow | None,
        ttl_s: float,
    ) -> tuple[ChangefeedRow, bool]:
        """The row as claimed and True; or the stored row, which must be watched until it is stale,
        and False. ``stale``: the row that was watched."""
        outcome: tuple[ChangefeedRow, bool] | None = None
        stored: ChangefeedRow | None = None

        def plan(view: TableView) -> Change | None:
            nonlocal outcome, stored
            stored = _find(view, initial.changefeed_id)
            if stored is not None and must_wait(stored, ownership) and stored != stale:
                outcome = stored, False
                return None
            row = next_term(stored, initial, ownership, ttl_s)
            outcome = row, True
            return _upsert(view, row)

        self._table.commit(plan, "claim the changefeed's term in")
        assert outcome is not None
        if stored is not None and stale is None and outcome[1] and is_earlier(stored, ownership):
            logger.warning(
                "changefeed %s was replicated by capture %s that was elected later than this one "
                "(revision %d, ours is revision %d): etcd was restored from a backup, or this "
                "capture leads no more",
                *(stored.changefeed_id, stored.capture_id),
                *(stored.owner_revision, ownership.election_revision),
            )
        return outcome

    def _until_stale(
        self,
        blocking: ChangefeedRow,
        ownership: Ownership,
        ttl_s: float,
        give_up_at: float,
        *,
        stop: threading.Event,
        on_wait: Callable[[str], None],
    ) -> ChangefeedRow | None:
        """Blocks until the stored row has not changed for longer than the TTL, or until it need not
        be waited for. Returns that row. Raises Stop, and the error of `alive`."""
        unchanged_since = self._clock.monotonic()
        wait_s = max(ttl_s, give_up_at - unchanged_since)
        waits = (
            f"waits for up to {wait_s:.0f} s: changefeed {blocking.changefeed_id} was replicated "
            f"by capture {blocking.capture_id} {why_it_may_live(blocking, ownership)}"
        )
        logger.warning("%s", waits)
        on_wait(waits)
        while True:
            if self._clock.wait(stop, ttl_s / LOOKS_PER_TTL):
                raise Stop(f"changefeed {blocking.changefeed_id}: asked to stop while claiming")
            newest, now = self.read(blocking.changefeed_id), self._clock.monotonic()
            if newest is None or not must_wait(newest, ownership):
                return newest
            if newest != blocking:
                blocking, unchanged_since = newest, now
            elif now - unchanged_since > ttl_s:
                return newest
            if now > give_up_at:
                raise alive(blocking, ownership, self._table.uri)


def next_term(
    stored: ChangefeedRow | None, initial: ChangefeedRow, ownership: Ownership, ttl_s: float
) -> ChangefeedRow:
    """The row that claims the term after the stored one.

    Where etcd was restored from a backup, its start ID is an old one, which was carried out
    already: it is noted in the row as known, so that the changefeed does not begin anew."""
    base = stored or replace(initial, term=0)
    if stored and is_earlier(stored, ownership):
        base = replace(stored, start_id=initial.start_id or stored.start_id)
    return replace(
        base,
        term=base.term + 1,
        capture_id=ownership.capture_id,
        epoch=ownership.epoch,
        etcd_cluster_id=ownership.etcd_cluster_id,
        owner_revision=ownership.election_revision,
        updated_at=_later_than(base.updated_at),
        fresh_for_s=FRESH_TTLS * ttl_s,
        process=f"{socket.gethostname()}/{os.getpid()}",
    )


def _later_than(before: datetime) -> datetime:
    """Now, or just above ``before`` where the clock went back: every refresh changes the row."""
    return max(datetime.now(UTC), before + timedelta(microseconds=1))


def _find(view: TableView, changefeed_id: str) -> ChangefeedRow | None:
    return next(_changefeeds(rows_of(view, changefeed_id)), None)


def _changefeeds(rows: pa.Table) -> Iterator[ChangefeedRow]:
    for row in from_rows(rows, ChangefeedRow):
        marks: Mapping[str, Any] = row.watermarks
        recorded = {key: RecordedWatermark(**mark) for key, mark in marks.items()}
        yield replace(row, watermarks=recorded)


def _upsert(view: TableView, row: ChangefeedRow) -> Change:
    fresh_for_s = None if row.state in ENDED else row.fresh_for_s
    shown = replace(row, error=row.error and masked(row.error), fresh_for_s=fresh_for_s)
    return replaced(view, row.changefeed_id, [shown])
