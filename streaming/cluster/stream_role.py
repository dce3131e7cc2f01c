"""What a stream works with, and who reads along."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from conf.settings import BatchSettings, Changefeed
from coordination.watchdog import Watch
from streaming.backlog_watch import BacklogWatch
from streaming.cluster.reads import Offsets, Read
from streaming.cluster.trust import Trust
from streaming.concerns import Concerns
from streaming.protocols.canal_json import decode
from streaming.protocols.contract import Wanted
from streaming.session import OwnSession
from streaming.source.range_reader import RangeReader


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamContext:
    """What a changefeed's stream on one capture works with; its roles work with it too."""

    changefeed: Changefeed
    batch: BatchSettings
    spark: OwnSession
    trust: Trust
    name: str
    backlog: BacklogWatch
    concerns: Concerns
    check_jvm: Callable[[], None]  # raises Stop where Spark is found to be gone
    watch: Watch

    def reader(self, session: SparkSession) -> RangeReader:
        return RangeReader(session, self.changefeed.source, decode, name=self.name)


class StreamRole:
    """Who reads along with a stream."""

    def __init__(self, on_failed: Callable[[BaseException], None]) -> None:
        """``on_failed``: gets what `failed` does; nothing is done any more until `retry`."""
        self._on_failed = on_failed
        self._is_failed = threading.Event()

    @property
    def is_behind(self) -> bool:
        """It has rows that are due and cannot write them now: nothing more is read meanwhile."""
        return self._is_failed.is_set()

    def failed(self, error: BaseException) -> None:
        """What it did has failed, or the stream has ended. From any thread; never raises."""
        self._is_failed.set()
        self._on_failed(error)

    def retry(self) -> None:
        """After ``failed``: go on."""
        self._is_failed.clear()

    def submit(self, begin: Offsets) -> Wanted:
        """On the reading thread: the next read begins here; the rows that are wanted of it."""
        raise NotImplementedError

    def take(self, read: Read) -> None:
        """On the applying thread: keep what is its own."""
        raise NotImplementedError

    def apply_due(self) -> None:
        """On the applying thread, after ``take`` and when woken: do what can be done now."""
        raise NotImplementedError
