"""What the roles of one changefeed on one capture share: one stream, and what it works with."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from conf.settings import Settings
from coordination.ports import CaptureIdentity
from streaming.cluster.topic_stream import TopicStream
from streaming.concerns import Concerns
from streaming.session import SparkOnDemand, configure


class OwnSession:
    """A session of its own: two queries of one name cannot share one. Spark starts when somebody
    asks for it first."""

    def __init__(self, spark: SparkOnDemand) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self, stopping: threading.Event | None = None) -> SparkSession:
        """Blocks while Spark starts; raises Stop at once when ``stopping`` is set meanwhile."""
        base = self._spark(stopping)
        with self._lock:
            if self._session is None:
                session = base.newSession()
                configure(session)
                self._session = session
            return self._session

    def cancel(self, tag: str) -> None:
        """Spark jobs of that tag; the JVM may be gone, or never have been there."""
        session = self._session
        if session is not None:
            with suppress(Py4JError, OSError):
                session.sparkContext.cancelJobsWithTag(tag)


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedReading:
    """Lives as long as a role has it."""

    sessions: OwnSession
    stream: TopicStream
    concerns: Concerns


class SharedReadings:
    """Those of a process. A changefeed with other settings, or a capture's next session, has
    another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[tuple[str, ...], SharedReading] = (
            weakref.WeakValueDictionary()
        )

    def of(
        self, settings: Settings, identity: CaptureIdentity, make: Callable[[], SharedReading]
    ) -> SharedReading:
        key = (repr(settings.changefeed), identity.capture_id, identity.epoch)
        with self._lock:
            found = self._open.get(key)
            if found is None:
                found = self._open[key] = make()
            return found
