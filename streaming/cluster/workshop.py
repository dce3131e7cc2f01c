"""What a replica and a desk of one changefeed are built from, and with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from conf.settings import Settings
from coordination.errors import Stop, TryAgain
from coordination.fence import Fence
from coordination.model import TableName
from coordination.ports import CaptureIdentity, Wake
from coordination.secrets import revealed_options
from sinks.changefeeds import ChangefeedRow, Changefeeds
from sinks.dead_letters import DeadLetters, Undertaker
from sinks.progress import Progress, ProgressRow
from sinks.snapshots import Snapshots
from streaming.applier import Applier
from streaming.backlog_watch import BacklogWatch
from streaming.cluster.topic_stream import StreamContext
from streaming.cluster.trust import Trust
from streaming.concerns import Concerns, etcd_concern
from streaming.events import Decoder, Envelope
from streaming.filter import TableFilter
from streaming.graveyard import Graveyard
from streaming.permit import Permit
from streaming.record import ControlTables
from streaming.session import configure
from streaming.source.kafka import Source
from streaming.spans import Spans

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFormat:
    """How a feed's messages are read."""

    envelope: Envelope
    make_decoder: Callable[[], Decoder]  # one may keep what it was called with last


class Workshop:
    """One changefeed, as one role of one capture works on it."""

    def __init__(
        self,
        *,
        settings: Settings,
        spark: SparkSession,
        message_format: MessageFormat,
        identity: CaptureIdentity,
        fence: Fence,
        wake: Wake,
        role: str,
        start_epoch: int,
        jvm_ended: Callable[[], None],
    ) -> None:
        """``jvm_ended`` is called when Spark's JVM is found to be gone, by which nothing here can
        go on: the process is to end."""
        changefeed = settings.changefeed
        sink, options = changefeed.sink, revealed_options(changefeed.sink.storage_options)
        self.settings = settings
        self.changefeed = changefeed
        self.start_epoch = start_epoch
        self.spark = _session(spark)
        self.message_format = message_format
        self.identity = identity
        self.trust = Trust(fence, identity)
        self.wake = wake
        self._jvm_ended = jvm_ended
        self.concerns = Concerns(quiet=role == "desk")  # captures that have spans say the same
        self.name = f"tidelake-{role}-{changefeed.id}-{identity.capture_id}"
        self.source = Source(changefeed.source)
        self.filter = TableFilter(changefeed.filter)
        self.tables = ControlTables(
            changefeeds=Changefeeds(sink.warehouse, options),
            progress=Progress(sink.warehouse, options),
            snapshots=Snapshots(sink.warehouse, options),
        )

    def stream_context(self, *, is_owners: bool = False) -> StreamContext:
        """The owner's reading is but a scan, ahead of the captures: they say what is read."""
        batch, kafka = self.settings.batch, self.changefeed.source
        return StreamContext(
            spark=self.spark,
            source=self.source,
            envelope=self.message_format.envelope,
            trust=self.trust,
            name=self.name,
            max_messages=batch.max_messages,
            first_messages=0 if is_owners else batch.first_messages,
            quiet_s=batch.quiet_s,
            target_ts=self.changefeed.target_ts,
            backlog=BacklogWatch(
                lambda: Source(kafka),
                stream=self.name,
                is_told=is_owners,
                concerns=self.concerns,
            ),
        )

    def concern(self) -> str | None:
        """What is wrong right now, without having failed."""
        etcd = etcd_concern(self.trust.silent_s, self.settings.session.ttl_s)
        return etcd or self.concerns.first

    def row(self) -> ChangefeedRow:
        """Of the changefeed; TryAgain before an owner has claimed it."""
        row = self.tables.changefeeds.read(self.changefeed.id)
        if row is None:
            raise TryAgain(f"changefeed {self.changefeed.id} has no row yet")
        return row

    def progress(self) -> Mapping[TableName, ProgressRow]:
        """Of the tables that the filter takes."""
        rows = self.tables.progress.read(self.changefeed.id)
        return {name: row for name, row in rows.items() if self.filter.selects(name)}

    def spans(self, row: ChangefeedRow) -> Spans:
        return Spans(self.changefeed.sink, row)

    def graveyard(self, row: ChangefeedRow, *, term: int | None = None) -> Graveyard:
        """With a term it is an owner's, and nobody of an older one buries any more."""
        sink = self.changefeed.sink
        dead_letters = DeadLetters(sink.warehouse, revealed_options(sink.storage_options))
        if term is not None:
            dead_letters.claim(row.changefeed_id, term, row.incarnation)
        return Graveyard(
            undertaker=Undertaker(
                changefeed_id=row.changefeed_id,
                incarnation=row.incarnation,
                term=term,
                check=self.trust.check,
            ),
            spark=lambda: self.spark,
            source=self.source,
            dead_letters=dead_letters,
            fail=self.changefeed.on_error == "fail",
        )

    def applier(self, spans: Spans, graveyard: Graveyard, permit: Permit) -> Applier:
        return Applier(
            settings=self.settings,
            spark=self.spark,
            permit=permit,
            spans=spans,
            graveyard=graveyard,
            job_tag=self.name,
        )

    def check_jvm(self) -> None:
        """Raises Stop where the JVM is gone: it never comes back."""
        try:
            assert self.spark.version
        except (Py4JError, OSError) as error:
            logger.exception("Spark's JVM has ended: was it killed, or out of memory?")
            self._jvm_ended()
            raise Stop("Spark's JVM has ended") from error

    def cancel(self) -> None:
        """The Spark jobs of this role; the JVM may be gone."""
        with suppress(Py4JError, OSError):
            self.spark.sparkContext.cancelJobsWithTag(self.name)

    def close(self) -> None:
        self.source.close()


def _session(spark: SparkSession) -> SparkSession:
    """A session of its own: two queries of one name cannot share one."""
    session = spark.newSession()
    configure(session)
    return session
