"""The first copy of a database's tables, before its changefeed begins: afterwards the warehouse is
as if the changefeed had run until then.

    P0 ─► copy by chunks, each table from its own position on ─► P1 ─► load, one commit a table
                                                                   └─► control rows: begin at P0

A table that is read in chunks shows rows of different moments between its position and P1. The
binlog from that position on, applied by key, mends that (rule 4): at P1 it is exact. So no snapshot
is published at or below P1, and the changefeed's state is `loading` until then. A table that is
read in one moment (no key, or every event counts) is exact at once.

A pin says which commit-ts each position has: what lies before it is at or below.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.earlier_owner import ChangefeedState
from sinks.control.warehouse import ControlTables
from streaming.changefeed.earlier_filters import left_out_any
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.target_forms import write_modes
from streaming.owner.start_point import first_row
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import SourceLost
from streaming.source.dump.copy_tables import CopyProgress
from streaming.source.dump.silent_reads import WATCH
from streaming.source.dump.source_table import SourceTable
from streaming.source.resolved.commit_clock import to_token
from streaming.spans.copies.copied_server import is_there
from streaming.spans.copies.found.left_out import may_be_copied
from streaming.spans.copies.found.readable import found_tables
from streaming.spans.copies.joining import (
    joined,
    lacking_targets,
    new_tables,
    refuse_beside_an_owner,
    standing,
)
from streaming.spans.copies.load_all import load_all
from streaming.spans.copies.settled_copy import (
    SettledCopy,
    chosen_by,
    end_copy,
    forget_copy,
    only_one,
)
from streaming.spans.copies.shown_row import show_in_row
from streaming.spans.copies.table_copies import Standing, TableCopies

logger = logging.getLogger(__name__)

TableProgress = CopyProgress  # how far the copy of a table is


class FirstCopy:
    """The copy of one changefeed. ``folder``: for staged files, kept over restarts until the copy
    has ended; that of a dump is the user's, and stays. For one thread."""

    def __init__(
        self,
        changefeed: Changefeed,
        folder: Path,
        *,
        progress: Callable[[CopyProgress], None] = lambda _: None,
        loading: Callable[[CopyProgress], None] = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """``progress``: of the copy; ``loading``: of the load, from all tables on. ``check`` is
        called before each commit; it raises where this process may not write."""
        assert isinstance(changefeed.source, BinlogSettings)
        self._changefeed = changefeed
        self._settings = changefeed.source
        self._folder = folder
        self._progress = progress
        self._loading = loading
        self._is_stopped = is_stopped
        self._check = check
        self._source = BinlogSource(self._settings)
        self._database = self._source.database
        self._routes = changefeed_routes(changefeed)
        self._forms = write_modes(changefeed)
        self._tables = ControlTables.of(changefeed.sink)

    def close(self) -> None:
        self._source.close()

    @property
    def is_done(self) -> bool:
        row = self._tables.changefeeds.read(self._changefeed.id)
        return row is not None and bool(row.source_positions)

    def clean_up(self) -> None:
        """Delete the staged files of a copy that is done."""
        if not self._settings.dump_dir:
            end_copy(self._folder)

    @property
    def waits_for(self) -> str | None:
        """What the server waits for that it sends nothing, in a sentence; None: it sends."""
        return WATCH.told(self._settings.address)

    def show(
        self, state: ChangefeedState, fresh_for_s: float | None, error: str | None = None
    ) -> None:
        """See `shown_row`."""
        show_in_row(self._changefeed, state, fresh_for_s, error)

    def run(self) -> None:
        """Copy and load what is not yet; afterwards the changefeed can begin. Raises SourceAway and
        other TryAgains, after which the same call goes on; Stop; and errors that say what to do."""
        self.dump()
        while not self._try_load():  # the server has gone in between
            self.dump()

    def dump(self) -> None:
        """The first half: all rows are staged. Raises as ``run``."""
        with only_one(self._folder):
            settled, chosen = SettledCopy.load(self._folder), chosen_by(self._changefeed)
            is_own = settled is not None and not self._settings.dump_dir
            if settled is not None and is_own and not is_there(self._source, settled.server):
                logger.warning("the copy begins anew, since %s", self._instead())
                forget_copy(self._folder)
                settled = None
            if settled is None or settled.chosen != chosen:
                settled = self._copies(self._routes.filter.selects).run()
                settled.save(self._folder)
            elif self._settings.dump_dir:
                logger.info(
                    "a whole dump is in %s already: for a newer one give another dump-dir",
                    self._folder,
                )
        if self._settings.dump_dir:
            logger.info(
                "dumped tables=%d rows=%d: the mode load&sync loads them from %s, and reads the "
                "binlog on at %s",
                *(len(settled.tables), settled.rows, self._folder),
                self._database.name_of(settled.begin.position),
            )

    def load(self) -> None:
        """The second half, of what was staged. Raises as ``run``, and TidelakeError where nothing
        was staged in this folder, or the server with which the copy began is gone."""
        if not self._try_load():
            raise SourceLost(
                f"{self._instead()}, so its binlog cannot be read on from there. Copy the tables "
                "anew: stop the task and start it again, or give another dump-dir"
            )

    def _instead(self) -> str:
        return (
            f"{self._database.address} answers in the place of the server with which the copy began"
        )

    def _try_load(self) -> bool:
        """False: another server answers in the place of the one with which the copy began."""
        with only_one(self._folder):
            settled = self._staged()
            failpoint(Failpoint.BEFORE_LOAD)
            if not is_there(self._source, settled.server):
                return False
            row = self._row(settled)
            self._source.check_identities({PART: settled.server}, self._source.shape())
            self._source.check(row.source_positions)
            self._load(settled, row)
            failpoint(Failpoint.AFTER_FIRST_PROGRESS)
            self._check()
            self._tables.changefeeds.begin(row)
            failpoint(Failpoint.AFTER_FIRST_ROWS)
            logger.info(
                "copied and loaded tables=%d rows=%d: the binlog is read on at %s",
                *(len(settled.tables), settled.rows),
                self._database.name_of(settled.begin.position),
            )
            self.clean_up()
        return True

    def join(self) -> None:
        """Copy and load the tables that an earlier filter has left out, into a changefeed that has
        begun: its stream goes on from where it was, and each of them from its own position.
        Raises as ``run``; TryAgain while somebody replicates the changefeed."""
        row = self._tables.changefeeds.read(self._changefeed.id)
        assert row is not None, "it has begun"
        self._source.keep_to(row.source_identities)
        names = {each.name for each in self._new(row)}
        if not names:
            self.clean_up()
            return
        self._refuse_to_join(row)
        refuse_beside_an_owner(self._changefeed)
        logger.info(
            "copies the tables that an earlier [filter] or copy has left out: %s",
            ", ".join(map(str, sorted(names))),
        )
        self._source.check_identities(row.source_identities, self._source.shape())
        joins = standing(row)
        schemas = {name.schema for name in names}
        with only_one(self._folder):
            settled = SettledCopy.load(self._folder)
            chosen = chosen_by(self._changefeed)
            if settled is None or (settled.chosen, settled.begin) != (chosen, joins.begin):
                settled = self._copies(
                    lambda name: name in names or (not name.table and name.schema in schemas),
                    joins,
                ).run()
                settled.save(self._folder)
            failpoint(Failpoint.BEFORE_LOAD)
            self._check()
            taken = joined(row, settled)
            self._tables.changefeeds.save(taken, held=row.term)
            self._tables.snapshots.claim(taken.changefeed_id, taken.term)
            self._load(settled, taken)
            failpoint(Failpoint.AFTER_FIRST_PROGRESS)
            logger.info(
                "copied and loaded tables=%d rows=%d: they join the changefeed",
                *(len(settled.tables), settled.rows),
            )
            self.clean_up()

    def _new(self, row: ChangefeedRow) -> Iterable[SourceTable]:
        lacking = lacking_targets(self._changefeed)
        if not lacking and not left_out_any(row, self._changefeed.filter):
            return ()
        rows = self._database.ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        schemas = [name for (name,) in rows if self._routes.filter.selects(TableName(name, ""))]
        is_new = new_tables(self._changefeed, row)
        tables = found_tables(self._database, schemas, is_new) if schemas else ()
        return [each for each in tables if self._may_join(each, lacking)]

    def _may_join(self, table: SourceTable, lacking: Collection[TableName]) -> bool:
        """A table that a copy has left out may, once it can be copied."""
        target = self._routes.of(table.name).target
        is_fit = self._settings.task_mode == "all" and may_be_copied(table, self._forms.of(target))
        return is_fit or target not in lacking

    def _refuse_to_join(self, row: ChangefeedRow) -> None:
        if self._settings.task_mode != "all":
            raise ConfigError(
                "[filter] takes tables that it left out before, and their rows of before are not "
                "copied: task-mode=all copies them and lets them join"
            )
        if PART not in row.watermarks:
            raise TidelakeError(
                "[filter] takes tables that it left out before, and the changefeed has read "
                "nothing yet: start it with the earlier [filter] first"
            )

    def _staged(self) -> SettledCopy:
        settled = SettledCopy.load(self._folder)
        if settled is None:
            way_out = (
                "Let task-mode=dump end with this dump-dir, on this machine"
                if self._settings.dump_dir
                else "It was deleted, or is on another machine. Stop the task and start it anew"
            )
            raise TidelakeError(f"no whole copy is staged in {self._folder}. {way_out}")
        if settled.chosen != chosen_by(self._changefeed):
            raise ConfigError(
                f"the copy in {self._folder} was made with other [filter] rules, case-sensitive or "
                "[[sink.tables]], so it may lack tables that are to be followed. Give the same "
                "ones; or copy anew, with another dump-dir or a new task"
            )
        return settled

    def _copies(
        self, selects: Callable[[TableName], bool], joins: Standing | None = None
    ) -> TableCopies:
        row = self._tables.changefeeds.read(self._changefeed.id) if joins is not None else None
        return TableCopies(
            self._changefeed,
            self._folder,
            source=self._source,
            selects=selects,
            row=row or first_row(self._changefeed),
            joins=joins,
            progress=self._progress,
            is_stopped=self._is_stopped,
        )

    def _row(self, settled: SettledCopy) -> ChangefeedRow:
        """The row of a changefeed that stands at the copy's begin."""
        begin = settled.begin
        return replace(
            first_row(self._changefeed),
            start_ts=begin.ts,
            state="stopped",  # nobody replicates it yet
            checkpoint_ts=begin.ts,
            resolved_ts=begin.ts,
            max_published_ts=settled.end.ts,
            loaded_ts=settled.end.ts,
            source_positions={PART: begin.position},
            source_identities=dict(self._source.shape().identities),
            watermarks={
                PART: RecordedWatermark(
                    ts=begin.ts + 1, position=begin.position, token=to_token(settled.pins)
                )
            },
        )

    def _load(self, settled: SettledCopy, row: ChangefeedRow) -> None:
        load_all(
            self._changefeed,
            settled,
            row,
            PART,
            anew="copy anew, with another dump-dir"
            if self._settings.dump_dir
            else f"delete {self._folder}",
            progress=self._loading,
            is_stopped=self._is_stopped,
            check=self._check,
        )
