"""The parts of which a changefeed's stream is built, and the roles that use its reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from conf.settings import BatchSettings, Changefeed
from coordination.trust.fence import Trust
from coordination.trust.watchdog import Watch
from streaming.changefeed.routes import RoutedWanted, Routes, changefeed_routes, routed_blocks
from streaming.jobs.port import Engine, Jobs
from streaming.protocols.contract import Block, Wanted
from streaming.source.contract import Reader, ReadOrder, Source
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Marks
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.read import Read


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamContext:
    """The parts with which a changefeed's stream on one capture works. Its roles use them as
    well."""

    changefeed: Changefeed
    batch: BatchSettings
    engine: Engine
    trust: Trust
    name: str
    concerns: LastingWarnings
    check_jvm: Callable[[], None]  # raises Stop when Spark is gone
    watch: Watch
    recorded: Callable[[], Marks]  # the watermarks in the changefeed's row; reads Delta

    def reader(self, source: Source, jobs: Jobs) -> Reader:
        started_ts = max(self.changefeed.start_ts, self.changefeed.overwrite_checkpoint_ts or 0)
        reader = source.reader(jobs, start_ts=started_ts, name=self.name)
        routes = changefeed_routes(self.changefeed)
        return RoutedReader(reader, routes) if routes else reader


class RoutedReader:
    """Reads for the targets of upstream tables: from here on their names are the targets'."""

    def __init__(self, reader: Reader, routes: Routes) -> None:
        self._reader = reader
        self._routes = routes

    def read(self, order: ReadOrder) -> list[Block]:
        """As ``Reader.read``. Raises ConfigError for a table that matches two routes."""
        found = self._reader.read(replace(order, wanted=RoutedWanted(self._routes, order.wanted)))
        return list(routed_blocks(found, self._routes))

    def cancel(self) -> None:
        self._reader.cancel()

    def close(self) -> None:
        self._reader.close()


class StreamRole:
    """One user of a stream: it says which rows it wants, and gets each read.

    The two are the replica's span writer and the owner's reader."""

    is_owners = False  # its limits are stored

    def __init__(self, on_failed: Callable[[BaseException], None]) -> None:
        """``on_failed``: called by `failed` with its error. After that the role does nothing until
        `retry`."""
        self.is_held = False  # some table could not be committed: as time passes it may be free
        self._on_failed = on_failed
        self._is_failed = threading.Event()

    @property
    def is_behind(self) -> bool:
        """The role has failed and cannot write the rows it has: the stream reads no more
        meanwhile."""
        return self._is_failed.is_set()

    def failed(self, error: BaseException) -> None:
        """The role's work has failed, or the stream has ended. Any thread; never raises."""
        self._is_failed.set()
        self._on_failed(error)

    def retry(self) -> None:
        """Go on after `failed`."""
        self._is_failed.clear()

    def submit(self, begin: Positions) -> Wanted:
        """On the reading thread, before each read: the next read begins at ``begin``. Returns the
        rows that this role wants of it. May be called again before that read is made."""
        raise NotImplementedError

    def take(self, read: Read) -> None:
        """On the applying thread: keep the rows that this role needs of a read."""
        raise NotImplementedError

    def apply_due(self) -> None:
        """On the applying thread, after `take` and whenever the stream is woken: do the work that
        can be done now."""
        raise NotImplementedError
