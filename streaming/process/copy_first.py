"""The first copy of a database's tables, as a `run` makes it: shown while it lasts, and tried again
while the server is away."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import Stop, TidelakeError, TryAgain
from coordination.model import TableName
from sinks.control.earlier_owner import ChangefeedState
from sinks.control.warehouse import ControlTables
from sinks.target.engine_choice import LOCAL, scheme_of
from streaming.changefeed.preflight import has_finished, is_dump, to_its_end
from streaming.process.reload_watch import LOOK_EVERY_S
from streaming.process.signals import asking, handling
from streaming.spans.copies.first_copy import FirstCopy, TableProgress
from streaming.spans.copies.reload import AnotherProcess, TableReloads, forget_folders
from streaming.spans.copies.tidb_copy import TidbCopy
from streaming.stream.retry import RetryBackoff

logger = logging.getLogger(__name__)

LOGGED_EVERY_S: Final = 5.0
SHOWN_FOR_S: Final = 30.0  # by the changefeed's row, after its last refresh


def copy_first(changefeed: Changefeed) -> Changefeed:
    """Copies and loads the tables of a changefeed whose task-mode says so, unless that is done, and
    those that an operator has ordered to be loaded anew. Returns the changefeed as it then goes on.
    Raises Stop after a signal: the copy goes on with the next start."""
    source = changefeed.source
    if isinstance(source, TidbSettings):
        _copy_of_a_tidb(changefeed)
        return changefeed
    if not isinstance(source, BinlogSettings):
        return changefeed
    if source.task_mode != "incremental":
        _copy_of_a_binlog(changefeed, source)
    if not is_dump(changefeed):
        _load_anew(changefeed)
    return to_its_end(changefeed)


def _load_anew(changefeed: Changefeed) -> None:
    """The tables for which an operator has ordered it. One that has finished reads nothing."""
    stop, shown = threading.Event(), _Shown()
    staging, reloads = own_staging(changefeed), ControlTables.of(changefeed.sink).reloads
    if reloads.next_open(changefeed.id) is None or has_finished(to_its_end(changefeed)):
        forget_folders(staging)
        return
    work = TableReloads(changefeed, staging, progress=shown.look, is_stopped=stop.is_set)

    def run_when_free() -> None:
        told = ""
        while True:
            try:
                work.run()
            except AnotherProcess as error:
                if str(error) != told:
                    logger.info("waits for another process: %s", error)
                told = str(error)
                if stop.wait(LOOK_EVERY_S):
                    raise Stop("asked to stop before the reload") from error
            else:
                return

    with handling(asking(stop.set)), shown:
        _tried(run_when_free, stop, shown)
    if stop.is_set():
        raise Stop("asked to stop after the reload")


def _copy_of_a_binlog(changefeed: Changefeed, source: BinlogSettings) -> None:
    stop = threading.Event()
    shown = _Shown()
    copy = FirstCopy(
        changefeed, staging_folder(changefeed), progress=shown.look, is_stopped=stop.is_set
    )
    with closing(copy), handling(asking(stop.set)):
        if is_dump(changefeed):
            with shown:
                _tried(copy.dump, stop, shown)
        elif not copy.is_done:
            logger.info("copies the tables of %s", source.address)
            with shown, _row_of(copy, shown):
                _tried(copy.load if source.dump_dir else copy.run, stop, shown)
        elif not source.dump_dir:
            with shown:
                _tried(copy.join, stop, shown)
    if stop.is_set():  # too late for the copy, which had nothing left to do
        raise Stop("asked to stop after the copy")


def _copy_of_a_tidb(changefeed: Changefeed) -> None:
    stop, shown = threading.Event(), _Shown()
    folder, look = staging_folder(changefeed), shown.look
    copy = TidbCopy(changefeed, folder, progress=look, is_stopped=stop.is_set)
    with handling(asking(stop.set)), shown, _row_of(copy, shown):
        _tried(copy.run, stop, shown)
    lake = f"delta://{changefeed.sink.warehouse}"
    if copy.has_gone_on:
        logger.info(
            "now the changefeed goes on where it was: tidelake run --changefeed-id %s --sink-uri "
            "%s --source-uri (its kafka:// URI), with the same [filter] and [[sink.tables]]",
            *(changefeed.id, lake),
        )
        return
    ts = copy.copied_ts
    created = (
        f"cdc cli changefeed create --changefeed-id={changefeed.id} --start-ts={ts} "
        f"--sink-uri='kafka://HOST:9092/{changefeed.id}?protocol=canal-json&"
        "enable-tidb-extension=true'"
    )
    logger.info(
        "now let TiCDC send all that came later. One that sends to the topic already may go on, if "
        "it began at or below the TSO %d. Else: %s. Then: tidelake run --changefeed-id %s "
        "--sink-uri %s --source-uri (that kafka:// URI), with the same [filter] and "
        "[[sink.tables]]",
        *(ts, created, changefeed.id, lake),
    )


def _tried(work: Callable[[], None], stop: threading.Event, shown: _Shown) -> None:
    """Until it is done. Raises Stop, and what does not pass."""
    backoff = RetryBackoff()
    while True:
        try:
            work()
        except TryAgain as error:
            wait_s = backoff.next_s(error)
            logger.warning("the copy waits, and goes on where it was: %s", error)
            shown.waits_for = str(error)
            if stop.wait(wait_s):
                raise Stop("the copy was asked to stop: it goes on with a start") from error
        else:
            return


def staging_folder(changefeed: Changefeed) -> Path:
    """The dump's own; else in the warehouse if that is a local folder, or in the machine's
    temporary folder. The same at each start."""
    source = changefeed.source
    if isinstance(source, BinlogSettings) and source.dump_dir:
        return Path(source.dump_dir).absolute()
    return own_staging(changefeed)


def own_staging(changefeed: Changefeed) -> Path:
    """As `staging_folder`, but never the dump's."""
    name = quote(changefeed.id, safe="")
    if scheme_of(changefeed.sink.warehouse) in LOCAL:
        return Path(changefeed.sink.warehouse) / "_tidelake" / "staging" / name
    return Path(tempfile.gettempdir()) / f"tidelake-staging-{name}"


@contextmanager
def _row_of(copy: FirstCopy | TidbCopy, shown: _Shown) -> Iterator[None]:
    """The changefeed's row says that it is loading, and for what it waits. It is refreshed on a
    thread of its own."""
    over = threading.Event()

    def refresh() -> None:
        while True:
            try:
                copy.show("loading", SHOWN_FOR_S, copy.waits_for or shown.waits_for)
            except TidelakeError as error:  # the copy meets it too, and says so
                logger.debug("the changefeed's row is not refreshed: %s", error)
            if over.wait(SHOWN_FOR_S / 3):
                return

    thread = threading.Thread(target=refresh, name="copy-row", daemon=True)
    thread.start()
    state: ChangefeedState = "stopped"
    said = None
    try:
        yield
    except Stop:
        raise
    except TidelakeError as error:
        state, said = "failed", str(error)
        raise
    finally:
        over.set()
        thread.join()
        with suppress(TidelakeError):
            copy.show(state, None, said)


class _Shown:
    """A bar for each table that is being copied on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.waits_for: str | None = None  # since the last try, until rows come
        self._tables: dict[TableName, TableProgress] = {}
        self._logged_at_s = time.monotonic()
        self._bars: dict[TableName, TaskID] = {}
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("rows"),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> None:
        if self._progress is not None:
            self._progress.start()

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def look(self, now: TableProgress) -> None:
        self._tables[now.table] = now
        self.waits_for = None
        if self._progress is not None:
            self._draw(self._progress, now)
        elif now.is_done or time.monotonic() > self._logged_at_s + LOGGED_EVERY_S:
            self._logged_at_s = time.monotonic()
            told = self._tables.values()
            logger.info(
                "copying table=%s rows=%d of_about=%d whole_tables=%d begun_tables=%d "
                "rows_of_all=%d mib_of_all=%d",
                *(now.table, now.rows, max(now.of_rows, now.rows)),
                *(sum(each.is_done for each in told), len(told)),
                *(sum(each.rows for each in told), sum(each.bytes for each in told) >> 20),
            )

    def _draw(self, progress: Progress, now: TableProgress) -> None:
        total = now.rows if now.is_done else max(now.of_rows, now.rows)
        bar = self._bars.get(now.table)
        if bar is None:
            bar = self._bars[now.table] = progress.add_task(str(now.table), total=total)
        progress.update(bar, completed=now.rows, total=total)
