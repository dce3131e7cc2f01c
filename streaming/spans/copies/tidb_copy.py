"""The copy of a TiDB's tables as of one TSO: afterwards the warehouse is as if a changefeed had run
until that TSO, and TiCDC's messages from there on are read.

    TSO ─► every table, by chunks, as of it ─► load, one commit a table ─► control rows: begin there

All connections read the same moment, also those of a later start. So each table is exact, keyless
ones and histories too, no binlog mends anything, and the TSO is a snapshot at once. TiDB keeps the
moment as long as its GC lets it: a copy that takes longer begins anew, at a newer one.

The row has a checkpoint and no positions: the source that goes on from there is read from its
beginning, and what is at or below the checkpoint is old (rule 2).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from conf.settings import Changefeed
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError, Fenced, Stop, TidelakeError, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts, tso_time
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import ChangefeedState
from sinks.control.reloads import Reload
from sinks.control.warehouse import ControlTables
from sinks.target.engine_port import TableHeld
from sinks.target.write_mode import WriteMode
from streaming.changefeed.earlier_filters import left_out_any
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.target_forms import write_modes
from streaming.owner.progress_rows import cut
from streaming.owner.start_point import first_row, row_rules
from streaming.source.dump.copy_tables import CopyProgress, copy_tables
from streaming.source.dump.session import Session, SnapshotGone, TableChanged
from streaming.source.dump.silent_reads import WATCH
from streaming.source.dump.source_table import SourceTable, Vectors, read_tables
from streaming.source.dump.tidb import KEEPS_LONGER, Tidb, nearing
from streaming.spans.copies.found.left_out import Sorted, sorted_out
from streaming.spans.copies.found.readable import create_statement
from streaming.spans.copies.joining import lacking_targets, new_tables, refuse_beside_an_owner
from streaming.spans.copies.load_all import load_all
from streaming.spans.copies.moments import Begins, Moment
from streaming.spans.copies.reload import pass_letters
from streaming.spans.copies.settled_copy import (
    BEGINS,
    CopiedFrom,
    SettledCopy,
    chosen_by,
    end_copy,
    forget_copy,
    only_one,
)
from streaming.spans.copies.shown_row import show_in_row

logger = logging.getLogger(__name__)

PART: Final = "tidb"  # of which rows of a copy come, as a stream's rows come of a partition
MOST_TIMES: Final = 5  # all is copied
GC_LOOK_S: Final = 10.0  # between two looks how near GC is
GC_SAID_S: Final = 60.0  # between two warnings


class TidbCopy:
    """The copy of one changefeed's tables. ``folder``: for staged files, kept over restarts until
    the copy has ended. For one thread."""

    def __init__(
        self,
        changefeed: Changefeed,
        folder: Path,
        *,
        progress: Callable[[CopyProgress], None] = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        assert isinstance(changefeed.source, TidbSettings)
        self._changefeed = changefeed
        self._settings = changefeed.source
        self._folder = folder
        self._progress = progress
        self._is_stopped = is_stopped
        self._tidb = Tidb(self._settings)
        self._routes = changefeed_routes(changefeed)
        self._tables = ControlTables.of(changefeed.sink)
        self._is_wanted: Callable[[TableName], bool] = self._routes.filter.selects
        self._place = ""  # of the changefeed that tables join; empty: it has not begun
        self._looked_s = self._said_s = float("-inf")  # monotonic: at GC

    def close(self) -> None:
        """Nothing is held between calls."""

    @property
    def copied_ts(self) -> Ts | None:
        """As of when the tables were copied and loaded; None: they were not yet. Raises ConfigError
        where the changefeed was started without a copy."""
        row = self._tables.changefeeds.read(self._changefeed.id)
        if row is not None and row.loaded_ts is None and (row.term or row.source_positions):
            raise ConfigError(
                f"changefeed {row.changefeed_id} was started already (its checkpoint is "
                f"{row.checkpoint_ts}), and tables are copied before that: give another sink-uri, "
                "and copy into it first"
            )
        return None if row is None or row.loaded_ts is None else Ts(row.loaded_ts)

    @property
    def has_gone_on(self) -> bool:
        """Whether the changefeed has read messages: nothing but new tables is copied then."""
        row = self._tables.changefeeds.read(self._changefeed.id)
        return row is not None and bool(row.source_positions)

    @property
    def waits_for(self) -> str | None:
        """What the server waits for that it sends nothing, in a sentence; None: it sends."""
        return WATCH.told(self._settings.address)

    def show(
        self, state: ChangefeedState, fresh_for_s: float | None, error: str | None = None
    ) -> None:
        """See `shown_row`. A copy that is not whole stays ``loading``: no stream may begin."""
        is_whole = self.copied_ts is not None
        show_in_row(self._changefeed, state if is_whole else "loading", fresh_for_s, error)

    def run(self) -> None:
        """Copy, load and publish what is not yet; afterwards the changefeed can go on from Kafka.
        Raises SourceAway and other TryAgains, after which the same call goes on; Stop; and errors
        that say what to do."""
        with only_one(self._folder):
            row = self._tables.changefeeds.read(self._changefeed.id)
            if row is not None and row.source_positions:
                if self._is_wider_than(row):
                    self._join(row)
                self._load_anew()
            elif (copied_ts := self.copied_ts) is None:
                settled = self._settled()
                self._load(settled)
                self._publish(settled.begin.ts)
            else:
                logger.info("the tables were copied before, as of the TSO %d", copied_ts)
                self._publish(copied_ts)
            end_copy(self._folder)

    # Tables that a wider filter takes in.

    def _is_wider_than(self, row: ChangefeedRow) -> bool:
        return bool(self._lacking) or left_out_any(row, self._changefeed.filter)

    @property
    def _lacking(self) -> set[TableName]:
        return lacking_targets(self._changefeed)

    def _load_anew(self) -> None:
        """All tables for which an operator has ordered it."""
        reloads, id_ = self._tables.reloads, self._changefeed.id
        while (order := reloads.next_open(id_)) is not None:
            row = self._tables.changefeeds.read(id_)
            assert row is not None, "it has begun"
            reloads.note(replace(order, state="copying"))
            try:
                self._join(row, order)
            except (TryAgain, Stop, Fenced):
                raise
            except (TidelakeError, TableHeld) as error:
                reloads.note(replace(order, state="given up", error=str(error)))
                logger.warning("the table is not loaded anew: %s table=%s", error, order.name)
            else:
                pass_letters(self._changefeed, order.name)
                reloads.note(replace(order, state="done"))

    def _join(self, row: ChangefeedRow, order: Reload | None = None) -> None:
        """Copy and load tables that an earlier filter has left out, or the one of an operator's
        order. What was read of them is lost, since nobody kept it; so they are copied as of a TSO
        that is above all of that. The stream goes on from where it was, and passes by what they
        have."""
        if self._settings.snapshot_ts is not None:
            raise ConfigError(
                "source-uri: snapshot-ts: tables join a changefeed as of the present: leave it out"
            )
        refuse_beside_an_owner(self._changefeed)
        self._is_wanted = new_tables(self._changefeed, row) if order is None else self._of(order)
        # If the stream goes on meanwhile, it may have read what is above the TSO.
        self._place = f" {row.checkpoint_ts} {sorted(row.source_positions.items())}"
        if order is not None:
            self._place += f" {order.order_id}"
        settled = self._settled()
        if order is not None and not settled.tables:
            raise TidelakeError(
                f"the TiDB has no table that goes into {order.name}, or [filter] leaves it out, or "
                "the account may not read it"
            )
        if not settled.tables and not settled.left_out:
            logger.info(
                "nothing is copied: the TiDB has no table that [filter] takes, and that an earlier "
                "[filter] of the changefeed left out"
            )
            return
        failpoint(Failpoint.BEFORE_LOAD)
        ts = settled.begin.ts
        taken = replace(
            row,
            term=row.term + 1,
            state="stopped",
            max_published_ts=max(row.max_published_ts, ts),
            loaded_ts=ts,
        )
        self._tables.changefeeds.save(taken, held=row.term)
        self._tables.snapshots.claim(taken.changefeed_id, taken.term)
        # Copied as of another TSO after a kill, it is loaded by that copy too.
        self._fill(settled, taken, f"{order.order_id}/{ts}" if order is not None else "")
        failpoint(Failpoint.AFTER_FIRST_PROGRESS)
        names = ", ".join(str(each.name) for each in settled.tables)
        logger.info(
            "copied and loaded, and they join the changefeed: %s. The filter of TiCDC must have "
            "had them before the TSO %d",
            *(names, ts),
        )

    def _of(self, order: Reload) -> Callable[[TableName], bool]:
        selects, of = self._routes.filter.selects, self._routes.of
        return lambda name: selects(name) and of(name).target == order.name

    # The copy.

    def _settled(self) -> SettledCopy:
        why = ""
        for _ in range(MOST_TIMES):
            try:
                return self._copied()
            except SnapshotGone as error:
                if self._settings.snapshot_ts is not None:
                    raise ConfigError(
                        f"the TSO {self._settings.snapshot_ts} cannot be read any more: {error}. "
                        f"Give a newer snapshot-ts, or none; before that, {KEEPS_LONGER}"
                    ) from error
                why = str(error)
            logger.warning("the copy begins anew at the present TSO, since %s", why)
            forget_copy(self._folder)
        raise TidelakeError(
            f"the copy began anew {MOST_TIMES} times, at last since {why}. {KEEPS_LONGER}, and "
            "start again"
        )

    def _copied(self) -> SettledCopy:
        """Raises SnapshotGone."""
        settled, chosen = SettledCopy.load(self._folder), chosen_by(self._changefeed)
        begin, cluster = self._begin(), self._begins.server or ""
        if settled is not None and (settled.chosen, settled.begin) == (chosen, begin):
            return settled
        with closing(self._tidb.session(begin.ts, self._is_stopped)) as session:
            tables = self._selected(session)
            copied = self._copies(tables.copied, begin.ts)
            definitions = "".join(create_statement(session.query, each.name) for each in copied)
        settled = SettledCopy(
            server=cluster,
            chosen=chosen,
            begin=begin,
            end=begin,
            pins=(),
            definitions=definitions,
            tables=tuple(replace(each, begin=begin) for each in copied),
            left_out=tuple(tables.left_out),
        )
        settled.save(self._folder)
        return settled

    @property
    def _begins(self) -> Begins:
        return Begins(self._folder / BEGINS)

    def _begin(self) -> Moment:
        """The TSO: that of an earlier start, if it is of this cluster and not another than asked
        for."""
        cluster, wanted = self._tidb.cluster() + self._place, self._settings.snapshot_ts
        begins = self._begins
        if begins.server is not None:
            on, begin = begins.first(cluster, lambda: Moment(0, Ts(0)))
            if on == cluster and wanted in (None, begin.ts):
                return begin
            logger.warning("the copy that was begun is of another place or TiDB: it begins anew")
            forget_copy(self._folder)
        ts = self._tidb.now() if wanted is None else Ts(wanted)
        _, begin = self._begins.first(cluster, lambda: Moment(0, ts))
        gc = self._tidb.gc()
        logger.info(
            "copies the tables as of the TSO %d (%s UTC); TiDB keeps that for %s at least "
            "(tidb_gc_life_time). TiCDC's changefeed may be created now, with --start-ts %d",
            *(ts, f"{tso_time(ts):%F %T}", "unknown" if gc is None else gc.life_time, ts),
        )
        return begin

    def _selected(self, session: Session) -> Sorted:
        selects = self._routes.filter.selects
        rows = session.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        schemas = [name for (name,) in rows if selects(TableName(name, ""))]
        if not schemas:
            return Sorted()
        forms, targets = write_modes(self._changefeed), self._routes

        def form_of(name: TableName) -> WriteMode:
            target = targets.of(name).target
            forms.refuse_origin(name, target)
            return forms.of(target)

        tables = read_tables(session.query, schemas, self._is_wanted, vectors=Vectors.TEXTS)
        lacking = self._lacking
        found = sorted_out(
            tables,
            form_of,
            targets,
            leaves_out=self._changefeed.on_no_key == "leave-out",
            known={each.name for each in tables if targets.of(each.name).target in lacking},
        )
        found.refuse()
        return found

    def _copies(self, tables: Iterable[SourceTable], ts: Ts) -> list[CopiedFrom]:
        settings, begin = self._settings, Moment(0, ts)

        def progress(seen: CopyProgress) -> None:
            self._progress(seen)
            self._look_at_gc(ts)

        copies = copy_tables(
            self._tidb.connect,
            tables,
            self._folder,
            connections=settings.connections,
            rows_per_chunk=settings.chunk_rows,
            rows_per_s=settings.copy_rows_per_s,
            tidb_ts=ts,
            progress=progress,
            is_stopped=self._is_stopped,
        )
        try:
            return [CopiedFrom(copied=each, begin=begin) for each in copies]
        except TableChanged as error:  # not by a DDL: the TSO shows what was defined then
            raise TidelakeError(
                f"a table cannot be copied: {error}. Leave it out with [filter] rules, and report "
                "this"
            ) from error

    def _look_at_gc(self, ts: Ts) -> None:
        now_s = time.monotonic()
        if now_s < self._looked_s + GC_LOOK_S:
            return
        self._looked_s = now_s
        gc = self._tidb.gc()
        warning = "" if gc is None else nearing(gc, ts, time.time())
        if warning and now_s >= self._said_s + GC_SAID_S:
            self._said_s = now_s
            logger.warning("%s", warning)

    # The load.

    def _load(self, settled: SettledCopy) -> None:
        failpoint(Failpoint.BEFORE_LOAD)
        row = self._row(settled.begin.ts)
        self._fill(settled, row)
        failpoint(Failpoint.AFTER_FIRST_PROGRESS)
        self._tables.changefeeds.begin(row)
        failpoint(Failpoint.AFTER_FIRST_ROWS)
        logger.info("copied and loaded tables=%d rows=%d", len(settled.tables), settled.rows)

    def _fill(self, settled: SettledCopy, row: ChangefeedRow, order_id: str = "") -> None:
        is_given = self._settings.snapshot_ts is not None
        load_all(
            self._changefeed,
            settled,
            row,
            PART,
            anew="give a newer snapshot-ts" if is_given else f"delete {self._folder}",
            progress=self._progress,
            is_stopped=self._is_stopped,
            check=lambda: None,
            order_id=order_id,
        )

    def _row(self, ts: Ts) -> ChangefeedRow:
        """The row of a changefeed that stands at the TSO, and has read nothing."""
        return replace(
            first_row(self._changefeed),
            row_rules=row_rules(self._changefeed),
            start_ts=ts,
            state="stopped",  # nobody replicates it yet
            checkpoint_ts=ts,
            resolved_ts=ts,
            loaded_ts=ts,
        )

    def _publish(self, ts: Ts) -> None:
        """The snapshot at the TSO, unless the changefeed goes on already."""
        id_, tables = self._changefeed.id, self._tables
        row = tables.changefeeds.read(id_)
        if row is None or row.term or row.source_positions:
            return
        snapshot = cut(id_, tables.progress.read(id_).values(), ts, 0)
        if snapshot is not None:
            tables.snapshots.claim(id_, row.term)
            tables.snapshots.publish(snapshot, row.term)
