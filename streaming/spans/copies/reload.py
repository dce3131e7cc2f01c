"""Tables that operators have ordered to be loaded anew (``tidelake table reload``): between the end
of one stream and the beginning of the next.

    the stream has ended at P0 ─► copy from P0' on to P1 ─► one commit: shape, key and rows, in the
    place of what was there ─► progress: the table goes on at P0' ─► done ─► the stream from P0 on

It is as with a table that joins (`first_copy`): the stream reads on from where it was, passes by
what a table has, and until P1 no snapshot is published. An order is done once, whenever this is
killed: its copy is kept in a folder of its own, the table notes the order that it was loaded by,
and the progress row comes before the order is over.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Final

import pyarrow as pa

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import Fenced, Stop, TermRefused, TidelakeError, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.dead_letters import DeadLetters
from sinks.control.earlier_owner import ChangefeedState
from sinks.control.letter_states import LETTER, SUPERSEDED
from sinks.control.progress import DROPPED
from sinks.control.reloads import Reload, ReloadState
from sinks.control.warehouse import ControlTables
from sinks.target.engine_port import TableHeld
from sinks.target.table_properties import RELOADED
from sinks.target.target_table import inspect, table_uri
from streaming.changefeed.replicated_table import no_reload_of
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.target_forms import write_modes
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.dump.copy_tables import CopyProgress
from streaming.source.dump.silent_reads import WATCH
from streaming.source.dump.source_table import read_tables
from streaming.spans.copies.joining import joined, refuse_beside_an_owner, standing
from streaming.spans.copies.load_all import load_all
from streaming.spans.copies.settled_copy import (
    CopiedByAnother,
    SettledCopy,
    chosen_by,
    end_copy,
    only_one,
)
from streaming.spans.copies.table_copies import TableCopies

logger = logging.getLogger(__name__)

TOLD_EVERY_S: Final = 3.0  # how far a copy is, in the control tables
SHOWN_FOR_S: Final = 10.0  # by the changefeed's row, after it was told last
_OF_A_RELOAD: Final = "~reload-"


class AnotherProcess(TryAgain):
    """It replicates the changefeed, or carries the order out: wait for its end."""


class TableReloads:
    """The open orders of one changefeed. ``staging``: the folder of the changefeed's copies; each
    order has one beside it, which is kept over restarts until the order is over. For one
    thread."""

    def __init__(
        self,
        changefeed: Changefeed,
        staging: Path,
        *,
        progress: Callable[[CopyProgress], None] = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
        check: Callable[[], None] = lambda: None,
        go_on: Callable[[], None] = lambda: None,
        has_ended_here: bool = True,
    ) -> None:
        """``check`` comes before each commit. ``go_on``: called when an order's work is done, and
        before it is over: so whoever carries an open order out again has it called. With
        ``has_ended_here`` what this process had of the changefeed has ended."""
        assert isinstance(changefeed.source, BinlogSettings)
        self.changefeed = changefeed
        self.settings = changefeed.source
        self.progress = progress
        self.is_stopped = is_stopped
        self.check = check
        self.has_ended_here = has_ended_here
        self._go_on = go_on
        self.tables = ControlTables.of(changefeed.sink)
        self.routes = changefeed_routes(changefeed)
        self.forms = write_modes(changefeed)
        self._staging = staging

    def run(self) -> None:
        """Carry all open orders out, one after the other: see `run_next`."""
        while self.run_next():
            pass

    def run_next(self) -> bool:
        """Carry the oldest open order out; returns whether there is another. One that cannot be is
        given up, and says why. Raises AnotherProcess and other TryAgains, after which the same call
        goes on, and Stop."""
        if (order := self.tables.reloads.next_open(self.changefeed.id)) is not None:
            self._carry_out(order)
        if self.tables.reloads.next_open(self.changefeed.id) is not None:
            return True
        forget_folders(self._staging)
        return False

    def _carry_out(self, order: Reload) -> None:
        logger.info("loads the table anew, as ordered table=%s", order.name)
        try:
            with closing(_OneReload(self, order)) as reload:
                rows = reload.run()
        except (TryAgain, Stop, Fenced):
            raise
        except (TermRefused, CopiedByAnother) as error:
            raise AnotherProcess(str(error)) from error
        except (TidelakeError, TableHeld) as error:
            self._go_on()
            self.note(order, "given up", error=str(error))
            logger.warning("the table is not loaded anew: %s table=%s", error, order.name)
        else:
            self._go_on()
            self.note(order, "done", rows=rows, of_rows=rows)
            failpoint(Failpoint.AFTER_FIRST_ROWS)
            logger.info("loaded the table anew table=%s rows=%d", order.name, rows)

    def note(
        self,
        order: Reload,
        state: ReloadState,
        *,
        rows: int = 0,
        of_rows: int = 0,
        error: str | None = None,
    ) -> None:
        told = replace(order, state=state, rows=rows, of_rows=of_rows, error=error)
        self.tables.reloads.note(told)

    def folder(self, order: Reload) -> Path:
        return self._staging.with_name(f"{self._staging.name}{_OF_A_RELOAD}{order.order_id}")


def is_alive(pid: int) -> bool:
    """A process of this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def forget_folders(staging: Path) -> None:
    """Delete those of a changefeed's orders, none of which is open any more."""
    for each in staging.parent.glob(f"{escape(staging.name)}{_OF_A_RELOAD}*"):
        end_copy(each)


def pass_letters(changefeed: Changefeed, name: TableName) -> None:
    """Each is of a row that the table has now, or that is no more."""
    sink = changefeed.sink
    letters = DeadLetters(sink.warehouse, revealed_options(sink.storage_options))
    for each in letters.open_of(changefeed.id, name):
        rows = each.select(list(LETTER))
        told = {"state": SUPERSEDED, "note": "the table was loaded anew"}
        for column, value in told.items():
            rows = rows.append_column(column, pa.repeat(pa.scalar(value), len(rows)))
        letters.states.change(rows, by="table reload")


class _OneReload:
    """``run`` may be called once. Closes the connection to the database."""

    def __init__(self, reloads: TableReloads, order: Reload) -> None:
        self._all = reloads
        self._order = order
        self._changefeed, self._settings = reloads.changefeed, reloads.settings
        self._tables, self._routes, self._forms = reloads.tables, reloads.routes, reloads.forms
        self._source = BinlogSource(self._settings)
        self._copied: dict[TableName, CopyProgress] = {}
        self._told_s = time.monotonic()

    def close(self) -> None:
        self._source.close()

    def run(self) -> int:
        """Returns how many rows the table has. Raises TidelakeError, and TableHeld, where it
        cannot be."""
        self._refuse_beside_others()
        row = self._tables.changefeeds.read(self._changefeed.id)
        if row is None or PART not in row.watermarks or PART not in row.source_positions:
            raise TidelakeError("the changefeed has read nothing yet: order it once it replicates")
        self._refuse(row)
        with only_one(self._all.folder(self._order)), self._shown():
            self._note("copying")
            settled = self._settled(row)
            failpoint(Failpoint.BEFORE_LOAD)
            self._note("loading")
            self._refuse_another_place(row)
            taken = joined(row, settled)
            self._all.check()
            self._tables.changefeeds.save(taken, held=row.term)
            self._tables.snapshots.claim(taken.changefeed_id, taken.term)
            load_all(
                self._changefeed,
                settled,
                taken,
                PART,
                anew="order it again",
                progress=lambda _: None,
                is_stopped=self._all.is_stopped,
                check=self._all.check,
                order_id=self._order.order_id,
            )
            self._pass_letters()
            failpoint(Failpoint.AFTER_FIRST_PROGRESS)
            return settled.rows

    def _refuse(self, row: ChangefeedRow) -> None:
        name = self._order.name
        known = self._tables.progress.read(row.changefeed_id).get(name)
        if known is None or known.state == DROPPED:
            raise TidelakeError(f"the changefeed has no table {name}, or a DDL has dropped it")
        if known.lacks:
            raise TidelakeError(known.error or f"table {name} lacks {known.lacks}")
        sink = self._changefeed.sink
        there = inspect(table_uri(sink.warehouse, name), revealed_options(sink.storage_options))
        is_begun = there is not None and there.version > 0  # else an earlier try may have made it
        by = "" if there is None else there.properties.get(RELOADED, "")
        is_ours = by.startswith(self._order.order_id)
        if is_begun and not is_ours and (why := no_reload_of(self._forms.of(name))):
            raise TidelakeError(why)

    def _refuse_beside_others(self) -> None:
        """Raises AnotherProcess."""
        row = self._tables.changefeeds.read(self._changefeed.id)
        host, _, pid = ("" if row is None else row.process or "").rpartition("/")
        if host == socket.gethostname():
            is_own = int(pid) == os.getpid()
            if self._all.has_ended_here if is_own else not is_alive(int(pid)):
                return
        try:
            refuse_beside_an_owner(self._changefeed)
        except TryAgain as error:
            raise AnotherProcess(str(error)) from error

    def _refuse_another_place(self, row: ChangefeedRow) -> None:
        """Raises AnotherProcess where somebody has gone on from the copy's place all the same."""
        now = self._tables.changefeeds.read(row.changefeed_id)
        place = (row.term, row.checkpoint_ts, row.source_positions, row.watermarks)
        if now is None or place != (
            *(now.term, now.checkpoint_ts, now.source_positions, now.watermarks),
        ):
            raise AnotherProcess("another process has gone on with the changefeed")

    def _settled(self, row: ChangefeedRow) -> SettledCopy:
        source, folder, joins = self._source, self._all.folder(self._order), standing(row)
        source.keep_to(row.source_identities)
        source.check_identities(row.source_identities, source.shape())
        settled, chosen = SettledCopy.load(folder), chosen_by(self._changefeed)
        if settled is not None and (settled.chosen, settled.begin) == (chosen, joins.begin):
            return settled
        names = self._names()
        schemas = {each.schema for each in names}
        settled = TableCopies(
            self._changefeed,
            folder,
            source=source,
            selects=lambda each: each in names or (not each.table and each.schema in schemas),
            row=row,
            joins=joins,
            progress=self._look,
            is_stopped=self._all.is_stopped,
            is_anew=True,
        ).run()
        settled.save(folder)
        return settled

    def _names(self) -> set[TableName]:
        """The tables of the database that go into the target. Raises TidelakeError for none."""
        ask, selects, of = self._source.database.ask, self._routes.filter.selects, self._routes.of
        rows = ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        schemas = [name for (name,) in rows if selects(TableName(name, ""))]
        target = self._order.name

        def is_wanted(name: TableName) -> bool:
            return selects(name) and of(name).target == target

        found = {each.name for each in read_tables(ask, schemas, is_wanted)} if schemas else set()
        if not found:
            raise TidelakeError(
                f"the database has no table that goes into {target}, or [filter] leaves it out, "
                "or the account may not read it"
            )
        return found

    def _pass_letters(self) -> None:
        pass_letters(self._changefeed, self._order.name)

    # What others see.

    def _look(self, seen: CopyProgress) -> None:
        self._all.progress(seen)
        self._copied[seen.table] = seen
        if time.monotonic() > self._told_s + TOLD_EVERY_S:
            self._note("copying")

    def _note(self, state: ReloadState) -> None:
        self._told_s = time.monotonic()
        seen = self._copied.values()
        rows = sum(each.rows for each in seen)
        of_rows = max(rows, sum(each.of_rows for each in seen))
        self._all.note(self._order, state, rows=rows, of_rows=of_rows)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """The changefeed's row says that it is loading, on a thread of its own."""
        over, table, id_ = threading.Event(), self._tables.changefeeds, self._changefeed.id
        why = f"table {self._order.name} is loaded anew, as ordered; the other tables wait for it"
        here = f"{socket.gethostname()}/{os.getpid()}"

        def show(state: ChangefeedState, error: str | None, fresh_for_s: float | None) -> None:
            with suppress(TidelakeError):  # the work meets it too, and says so
                table.show(
                    id_,
                    lambda row: replace(row.showing(state, error), process=here),
                    may=lambda _: True,
                    fresh_for_s=fresh_for_s,
                )

        def refresh() -> None:
            show("loading", why, SHOWN_FOR_S)
            while not over.wait(SHOWN_FOR_S / 3):
                silent = WATCH.told(self._all.settings.address)
                show("loading", f"{why}. {silent}" if silent else why, SHOWN_FOR_S)

        thread = threading.Thread(target=refresh, name="reload-row", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            show("stopped", None, None)
