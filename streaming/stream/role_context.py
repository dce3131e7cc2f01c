"""The parts of which a role (replica or control writer) of one changefeed on one capture is built,
and the thread that each role has of its own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from conf.settings import Changefeed
from coordination.errors import Stop, TryAgain
from coordination.model import TableName
from coordination.ports import Wake
from coordination.secrets import revealed_options
from coordination.trust.fence import CaptureIdentity
from coordination.trust.watchdog import Watch
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.dead_letters import DeadLetters, LetterWriter
from sinks.control.progress import ProgressRow
from sinks.control.warehouse import ControlTables
from streaming.apply.applier import Applier
from streaming.apply.carry import Carry
from streaming.apply.commit_guard import CommitGuard
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.apply.letters.row_bytes import rows_alone
from streaming.apply.values.row_errors import CHECKSUM_ERROR
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.schema_file import definitions_of
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import hides, write_modes
from streaming.source.contract import NO_IDENTITIES, Identities, Source
from streaming.source.resolved.limits import Marks
from streaming.source.sources import open_source
from streaming.spark.session import compiling
from streaming.stream.retry import PASSING, RetryBackoff
from streaming.stream.schema_cache import PastSchemaCache
from streaming.stream.shared_stream import SharedStream


def job_tag(role: str, changefeed_id: str, identity: CaptureIdentity) -> str:
    """The tag of a role's Spark jobs, by which they are cancelled."""
    return f"tidelake-{role}-{changefeed_id}-{identity.capture_id}"


def recorded_marks(changefeed: Changefeed) -> Marks:
    """The watermarks in the changefeed's row."""
    row = ControlTables.of(changefeed.sink).changefeeds.read(changefeed.id)
    return {} if row is None else row.watermarks


class RoleContext:
    """The parts with which the replica or the control writer of one changefeed works."""

    def __init__(
        self,
        *,
        role: str,
        stream: SharedStream,
        ttl_s: int,
        start_epoch: int | None,
        wake: Wake,
        watch: Watch,
    ) -> None:
        """``ttl_s``: of the etcd session's lease. ``start_epoch``: None for a `run`, whose
        arguments say where to start."""
        shared = stream.context
        self.stream = stream
        self.changefeed = shared.changefeed
        self.batch = shared.batch
        self.trust = shared.trust
        self.concerns = shared.concerns
        self.check_jvm = shared.check_jvm
        self.ttl_s = ttl_s
        self.start_epoch = start_epoch
        self.wake = wake
        self.watch = watch
        self.name = job_tag(role, self.changefeed.id, self.trust.identity)
        self.source = self.new_source()
        self.routes = changefeed_routes(self.changefeed)
        self.tables = ControlTables.of(self.changefeed.sink)

    def new_source(self, identities: Identities = NO_IDENTITIES) -> Source:
        """Another connection to the source, for another thread. Its caller closes it.
        ``identities``: to be kept to."""
        source = open_source(self.changefeed.source)
        source.keep_to(identities)
        return source

    def row(self, incarnation: int | None = None) -> ChangefeedRow:
        """The changefeed's row. Raises TryAgain before an owner has claimed the changefeed. With
        ``incarnation`` it also raises TryAgain when another incarnation has begun: then a replica
        of the new epoch is opened, and this one is closed."""
        row = self.tables.changefeeds.read(self.changefeed.id)
        if row is None:
            raise TryAgain(f"changefeed {self.changefeed.id} has no row yet")
        if incarnation not in (None, row.incarnation):
            raise TryAgain(
                f"changefeed {row.changefeed_id} has begun incarnation {row.incarnation}, this is "
                f"incarnation {incarnation}"
            )
        return row

    def progress(self) -> Mapping[TableName, ProgressRow]:
        """The progress rows of the tables that filter and routes select."""
        rows = self.tables.progress.read(self.changefeed.id)
        return {name: row for name, row in rows.items() if self.routes.may_make(name)}

    def spans(self, row: ChangefeedRow) -> TableRegistry:
        changefeed = self.changefeed
        forms = write_modes(changefeed)
        return TableRegistry(changefeed.sink, row, forms, definitions_of(changefeed))

    def dead_letters(self, row: ChangefeedRow, *, term: int | None = None) -> DeadLetterWriter:
        """With a term it is the owner's writer: the term is claimed, and from then on owners of
        older terms can add no dead letters."""
        sink = self.changefeed.sink
        dead_letters = DeadLetters(sink.warehouse, revealed_options(sink.storage_options))
        if term is not None:
            dead_letters.claim(row.changefeed_id, term, row.incarnation)
        return DeadLetterWriter(
            by=LetterWriter(
                changefeed_id=row.changefeed_id,
                incarnation=row.incarnation,
                term=term,
                check=self.trust.check,
                capture_id=self.trust.identity.capture_id,
            ),
            dead_letters=dead_letters,
            values=lambda places: self.source.raw(places, self.stream.identities),
            identities=lambda: self.stream.identities,
            alone=rows_alone(self.changefeed.source.protocol),
            place=self.source.place,
            fail=self.changefeed.on_error == "fail",
            fatal=(CHECKSUM_ERROR,) if self.changefeed.corruption_handle_level == "error" else (),
            most=self.changefeed.max_dead_letters,
            hides=hides(sink, case_sensitive=self.changefeed.filter.case_sensitive),
            say=self.concerns.say,
        )

    def carry(self) -> Carry:
        return Carry(folder=Path(tempfile.mkdtemp(prefix="tidelake-carry-")))

    def applier(
        self,
        spans: TableRegistry,
        dead_letters: DeadLetterWriter,
        permit: CommitGuard,
        older: PastSchemaCache,
    ) -> Applier:
        return Applier(
            changefeed=self.changefeed,
            batch=self.batch,
            compiling=lambda: compiling(self.stream.context.engine.session()),
            permit=permit,
            spans=spans,
            dead_letters=dead_letters,
            letter_shapes=lambda name: older.all_of(spans[name]),
            job_tag=self.name,
        )

    def cancel(self) -> None:
        """Cancel the jobs of this role."""
        self.stream.context.engine.cancel(self.name)


class RoleWorker:
    """A role's own thread, beside the stream's threads: it does what blocks, and ends the role."""

    def __init__(self, context: RoleContext, *, thread: str) -> None:
        """``thread``: its name. A subclass starts the thread at the end of its own constructor."""
        self._context = context
        self._stream = context.stream
        self._step = context.watch(f"the worker of {context.name}")
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._dropping = threading.Event()
        self._failure: BaseException | None = None  # of another thread's work for this role
        self._failure_lock = threading.Lock()
        self._backoff = RetryBackoff()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def close(self, *, drop: bool) -> None:
        if drop and not self._dropping.is_set():
            self._dropping.set()
            threading.Thread(target=self._context.cancel, name="cancel", daemon=True).start()
        self._closing.set()
        self._woken.set()

    def is_closed(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError

    def _fail(self, error: BaseException) -> None:
        """Another thread calls this when its work for this role has failed. The worker raises the
        error on its next turn (`_raise_failure`). The first lasting error stays. A later passing
        error would make the worker wait for a stream that has ended."""
        with self._failure_lock:
            if self._failure is None or isinstance(self._failure, (*PASSING, Stop)):
                self._failure = error
        self._woken.set()

    def _raise_failure(self) -> None:
        with self._failure_lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _release(self) -> None:
        """The worker's last act, after the role has left the stream."""
        self._context.source.close()
        self._context.wake()
