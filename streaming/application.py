"""The replication of one changefeed: what a capture runs while it is the owner.

    start ─► claim the term ─► resume spans ─► stream ──► finished (target-ts)
                  ▲                              │ └────► failed: the error, said once
                  └──── partitions added, ◄──────┘
                        or Kafka away for a while

Every stream start begins at the low-water offsets of the changefeed's row with a fresh Spark
checkpoint, so the loop above is the whole of recovery (design 3, rule 1). One thread runs it;
Spark's batch thread calls ``Batch``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from conf.settings import Settings
from coordination.errors import Stop, TidelakeError, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.fence import Fence
from coordination.model import Ownership, TableName, Ts
from sinks.changefeeds import ChangefeedRow
from sinks.dead_letters import DeadLetters, Undertaker
from sinks.jvm_errors import line
from sinks.progress import ProgressRow
from streaming.applier import Applier, job_tag
from streaming.backlog import FIRST_BATCH, first_read
from streaming.backlog_watch import BacklogWatch
from streaming.batch import Batch, Position, position_at
from streaming.concerns import ETCD, NO_CONCERN, Concerns, etcd_concern
from streaming.events import Decoder, TopicPartition
from streaming.filter import TableFilter
from streaming.graveyard import Graveyard
from streaming.patience import PASSING, Patience
from streaming.permit import OwnersPermit
from streaming.protocols.canal_json_sql import watermark_of
from streaming.query import RunningQuery
from streaming.record import ControlTables, Record, show, show_failure
from streaming.retained import KafkaLog
from streaming.session import SparkOnDemand, expect_rows
from streaming.source.kafka import Source, SourceChanged, SourceShape
from streaming.spans import Spans
from streaming.start_point import first_row, settle

logger = logging.getLogger(__name__)

POLL_S = 0.1
STOP_PATIENCE_S = 20.0  # how long an orderly stop waits for the batch to end


@dataclass(kw_only=True)
class _Stream:
    """One stream start."""

    running: RunningQuery
    batch: Batch
    applier: Applier

    @property
    def query(self) -> StreamingQuery:
        return self.running.query


class Application:
    """Implements ``coordination.capture.Replication``."""

    def __init__(
        self,
        *,
        settings: Settings,
        spark: SparkOnDemand,
        fence: Fence,
        source: Source,
        decoder: Decoder,
        tables: ControlTables,
        dead_letters: DeadLetters,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._fence = fence
        self._source = source
        self._decoder = decoder
        self._tables = tables
        self._dead_letters = dead_letters
        self._stopping = threading.Event()
        self._dropping = threading.Event()
        self._thread: threading.Thread | None = None
        self._job_tag = f"tidelake-{settings.changefeed.id}"
        self._stream: _Stream | None = None
        self._concerns = Concerns()
        self._is_worn = False
        self._backlog = BacklogWatch(
            lambda: Source(settings.changefeed.source), concerns=self._concerns
        )
        fence.on_shut(self._cancel)

    def start(self, ownership: Ownership, ended: Callable[[BaseException | None], None]) -> None:
        """See the protocol: everything slow happens on a thread of its own."""
        self._stopping.clear()
        self._dropping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(ownership, ended), name="replication", daemon=True
        )
        self._thread.start()

    def stop(self, *, drop: bool) -> None:
        """See the protocol. Idempotent."""
        if drop:
            self._dropping.set()
        self._stopping.set()
        if drop:
            self._cancel("dropped")
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _session(self) -> SparkSession:
        """Started when it is first needed; raises Stop when asked to stop meanwhile."""
        return self._spark(self._stopping)

    def _cancel(self, reason: str) -> None:
        """A write takes seconds: losing trust ends the Spark jobs that are under way, too."""
        logger.debug("cancelling spark jobs: %s", reason)
        spark, stream = self._spark.started, self._stream
        with suppress(Py4JError, OSError):
            if spark is not None:
                spark.sparkContext.cancelJobsWithTag(self._job_tag)
            if spark is not None and stream is not None:
                spark.sparkContext.cancelJobGroup(str(stream.query.runId))

    def _run(self, ownership: Ownership, ended: Callable[[BaseException | None], None]) -> None:
        error: BaseException | None = None
        try:
            self._replicate(ownership)
        except Stop:
            logger.info("the replication stopped as asked")
        except BaseException as failure:  # noqa: BLE001  # handed on, whole
            error = failure
            self._record_failure(failure)
        finally:
            self._backlog.close()
        ended(error)

    def _record_failure(self, failure: BaseException) -> None:
        """Say in the changefeed's row why nobody runs it, where that is ours to say."""
        if self._stopping.is_set():  # one SIGTERM may have ended a JVM that was just starting
            return
        show_failure(self._tables, self._fence, self._settings.changefeed.id, failure)

    def _warn(self, why: str) -> None:
        show(self._tables, self._fence, self._settings.changefeed.id, "warning", why)

    def _replicate(self, ownership: Ownership) -> None:
        failpoint(Failpoint.BEFORE_CLAIM)
        row = self._claim(ownership)
        failpoint(Failpoint.AFTER_CLAIM)
        patience, checkpoint = Patience(), row.checkpoint_ts
        while True:
            try:
                return self._stream_once(row)
            except SourceChanged as change:
                logger.info("%s", change)
            except PASSING as error:
                self._fence.check()
                self._check_jvm(error)
                stored = self._tables.changefeeds.read(row.changefeed_id)
                if stored is not None and stored.checkpoint_ts > checkpoint:
                    patience.regained()
                wait_s, was_worn = patience.lost(error), self._is_worn
                self._is_worn = patience.is_worn
                if self._is_worn and not was_worn:
                    self._warn(f"it fails, and is tried again: {line(error)}")
                if self._stopping.wait(wait_s):
                    raise Stop("asked to stop") from error
            newest = self._tables.changefeeds.read(row.changefeed_id)
            assert newest is not None
            row = newest if newest.term == row.term else row
            checkpoint = row.checkpoint_ts

    def _concern(self) -> str | None:
        silent_s, ttl_s = self._fence.silent_s, self._settings.session.ttl_s
        self._concerns.say(ETCD, etcd_concern(silent_s, ttl_s))
        return self._concerns.first

    def _check_jvm(self, error: BaseException) -> None:
        """A JVM that is gone never comes back: the next process is the one to go on."""
        spark = self._spark.started
        try:
            assert spark is None or spark.version
        except (Py4JError, OSError):
            if self._stopping.is_set():  # one SIGTERM has ended both of us
                raise Stop("asked to stop") from error
            raise TidelakeError(
                "Spark's JVM has ended: it was killed, or was out of memory (SPARK_DRIVER_MEMORY). "
                "Start the same command again, it goes on where the tables are"
            ) from error

    def _claim(self, ownership: Ownership) -> ChangefeedRow:
        """The next term in all three control tables: every older handle is stale from here on (rule
        6).
        """
        changefeed = self._settings.changefeed
        row = self._tables.changefeeds.claim(
            first_row(changefeed),
            ownership,
            ttl_s=self._settings.session.ttl_s,
            stop=self._stopping,
        )
        self._tables.progress.claim(changefeed.id, row.term)
        self._tables.snapshots.claim(changefeed.id, row.term)
        logger.info(
            "claimed the changefeed term=%d checkpoint_ts=%d state=%s",
            row.term,
            row.checkpoint_ts,
            row.state,
        )
        return row

    def _stream_once(self, claimed: ChangefeedRow) -> None:
        """From resuming to the end of one query; returns when the target-ts is reached.

        First of all it says clearly what is gone, where Spark would only say that a job failed."""
        shape = self._source.shape()
        log = KafkaLog(self._source, watermark_of)
        row = settle(claimed, self._settings.changefeed, shape, log)
        offsets = {TopicPartition.parse(text): at for text, at in row.source_offsets.items()}
        if row.state != "finished":  # it reads nothing more: Kafka may forget what it read
            self._source.check_offsets(offsets, row.checkpoint_ts)
            self._backlog.begin(offsets)
            row = replace(row, **self._backlog.look().columns())
        spans = Spans(self._settings.changefeed.sink, row)
        graveyard = self._graveyard(row)
        record = Record(
            tables=self._tables,
            row=row,
            spans=spans,
            dead=graveyard,
            backlog=self._backlog.look,
            concern=self._concern,
        )
        record.save(row)  # before the first commit to any target
        self._dead_letters.claim(row.changefeed_id, row.term, row.incarnation)
        spans.resume(self._progress_of_ours(row.changefeed_id))
        record.advance_spans(offsets)
        if row.state == "finished":
            record.publish(Ts(row.checkpoint_ts))
            logger.info("finished already checkpoint_ts=%d", row.checkpoint_ts)
            return
        record.publish(Ts(row.checkpoint_ts))
        position = position_at(row, shape, offsets)
        failpoint(Failpoint.BEFORE_STREAM)
        self._watch(self._start_query(shape, spans, record, graveyard, position))

    def _progress_of_ours(self, changefeed_id: str) -> dict[TableName, ProgressRow]:
        """Of the tables that the filter takes: one that is left out must not seem to go on."""
        wanted = TableFilter(self._settings.changefeed.filter)
        rows = self._tables.progress.read(changefeed_id)
        return {name: row for name, row in rows.items() if wanted.selects(name)}

    def _graveyard(self, row: ChangefeedRow) -> Graveyard:
        return Graveyard(
            undertaker=Undertaker(
                changefeed_id=row.changefeed_id,
                incarnation=row.incarnation,
                term=row.term,
                check=self._fence.check,
            ),
            spark=self._session,
            source=self._source,
            dead_letters=self._dead_letters,
            fail=self._settings.changefeed.on_error == "fail",
        )

    def _start_query(
        self,
        shape: SourceShape,
        spans: Spans,
        record: Record,
        graveyard: Graveyard,
        position: Position,
    ) -> _Stream:
        applier = Applier(
            settings=self._settings,
            spark=self._session(),
            permit=OwnersPermit(self._fence, record.row),
            spans=spans,
            graveyard=graveyard,
            job_tag=self._job_tag,
        )
        batch = Batch(
            settings=self._settings,
            fence=self._fence,
            source=self._source,
            shape=shape,
            decoder=self._decoder,
            spans=spans,
            applier=applier,
            record=record,
            position=position,
            backlog=self._backlog,
        )
        self._fence.check()
        self._read_first(batch)
        query = RunningQuery.start(
            self._session(),
            self._source,
            position.offsets,
            max_messages=self._settings.batch.max_messages,
            name=f"tidelake-{self._settings.changefeed.id}",
            batch=batch,
        )
        logger.info("stream started offsets=%s", _shown(position.offsets))
        return _Stream(running=query, batch=batch, applier=applier)

    def _read_first(self, batch: Batch) -> None:
        """Of a large backlog first a little: what comes of it is seen soon, and how fast it is."""
        backlog = self._backlog.look()
        ends = first_read(backlog.read, backlog.ends, self._settings.batch.first_messages)
        if not ends:
            return
        end = {TopicPartition.parse(text): at for text, at in ends.items()}
        begin = {partition: batch.position.offsets[partition] for partition in end}
        spark = self._session()
        expect_rows(spark, self._settings.batch.first_messages)
        with job_tag(spark, self._job_tag):
            batch(self._source.read(spark, begin, end), FIRST_BATCH)

    def _watch(self, stream: _Stream) -> None:
        self._stream = stream
        refresh_s, shown = self._settings.session.ttl_s / 3, NO_CONCERN
        try:
            while stream.query.isActive and not stream.batch.has_ended:
                if (concern := self._concern()) != shown:  # a batch may hang: it says nothing then
                    shown = concern
                    if concern is not None:
                        self._warn(concern)
                if self._stopping.wait(POLL_S):
                    self._end(stream)
                    raise Stop("asked to stop")
                stream.batch.tick(refresh_s)
            if stream.batch.finished.is_set():
                logger.info("target-ts reached checkpoint_ts=%d", stream.batch.position.checkpoint)
                return
            raise (
                stream.batch.failure
                or stream.query.exception()
                or TryAgain("Spark has ended the query, and nobody here has asked it to")
            )
        finally:
            self._stream = None
            self._close(stream)

    def _end(self, stream: _Stream) -> None:
        """Finish the batch that runs, unless trust is lost; leave a row that says that nobody runs
        it.
        """
        stream.batch.stopping.set()
        if self._dropping.is_set():
            return
        deadline = time.monotonic() + STOP_PATIENCE_S
        while time.monotonic() < deadline and not self._dropping.is_set():
            if stream.batch.lock.acquire(timeout=POLL_S):
                with suppress(TidelakeError):
                    self._fence.check()
                    stream.batch.record_stopped()
                stream.batch.lock.release()
                return
        logger.warning("the batch did not end within %.0f s: dropped", STOP_PATIENCE_S)

    def _close(self, stream: _Stream) -> None:
        self._backlog.close()
        with suppress(Py4JError, OSError):
            self._session().sparkContext.cancelJobsWithTag(self._job_tag)
        stream.running.stop()
        stream.applier.close()
        for segment in stream.batch.position.carry:
            with suppress(Py4JError, OSError):
                segment.frame.unpersist()


def _shown(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
