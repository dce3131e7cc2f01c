"""What a replica and a control writer of one changefeed are built from, and with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from conf.settings import Settings
from coordination.errors import TryAgain
from coordination.model import TableName
from coordination.ports import CaptureIdentity, Wake
from coordination.secrets import revealed_options
from coordination.watchdog import Watch
from sinks.changefeeds import ChangefeedRow
from sinks.dead_letters import DeadLetters, Undertaker
from sinks.progress import ProgressRow
from streaming.apply.applier import Applier
from streaming.apply.carry import Carry
from streaming.apply.dead_letter_writer import DeadLetterWriter
from streaming.cluster.shared_reading import SharedReading
from streaming.cluster.trust import Trust
from streaming.concerns import etcd_concern
from streaming.control_tables import ControlTables
from streaming.filter import TableFilter
from streaming.permit import Permit
from streaming.sink_tables import SinkTables
from streaming.source.kafka import Source
from streaming.source.message_reader import values_at


def job_tag(role: str, changefeed_id: str, identity: CaptureIdentity) -> str:
    """Of a role's Spark jobs."""
    return f"tidelake-{role}-{changefeed_id}-{identity.capture_id}"


class RoleContext:
    """One changefeed, as one role of one capture works on it."""

    def __init__(
        self,
        *,
        settings: Settings,
        shared: SharedReading,
        identity: CaptureIdentity,
        trust: Trust,
        wake: Wake,
        role: str,
        start_epoch: int | None,
        check_jvm: Callable[[], None],
        watch: Watch,
    ) -> None:
        """``check_jvm`` raises Stop where Spark is found to be gone."""
        changefeed = settings.changefeed
        self.settings = settings
        self.changefeed = changefeed
        self.start_epoch = start_epoch
        self.shared = shared  # kept: it goes with the last role that has it
        self.stream = shared.stream
        self.identity = identity
        self.trust = trust
        self.wake = wake
        self.check_jvm = check_jvm
        self.watch = watch
        self.concerns = shared.concerns
        self.name = job_tag(role, changefeed.id, identity)
        self.source = Source(changefeed.source)
        self.filter = TableFilter(changefeed.filter)
        self.tables = ControlTables.of(changefeed.sink)

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

    def spans(self, row: ChangefeedRow) -> SinkTables:
        return SinkTables(self.changefeed.sink, row)

    def dead_letters(self, row: ChangefeedRow, *, term: int | None = None) -> DeadLetterWriter:
        """With a term it is an owner's, and nobody of an older one adds any more."""
        sink = self.changefeed.sink
        dead_letters = DeadLetters(sink.warehouse, revealed_options(sink.storage_options))
        if term is not None:
            dead_letters.claim(row.changefeed_id, term, row.incarnation)
        return DeadLetterWriter(
            by=Undertaker(
                changefeed_id=row.changefeed_id,
                incarnation=row.incarnation,
                term=term,
                check=self.trust.check,
            ),
            dead_letters=dead_letters,
            values=lambda offsets: values_at(self.changefeed.source, offsets, row.topic_ids),
            fail=self.changefeed.on_error == "fail",
        )

    def carry(self) -> Carry:
        return Carry(folder=Path(tempfile.mkdtemp(prefix="tidelake-carry-")))

    def applier(self, spans: SinkTables, dead_letters: DeadLetterWriter, permit: Permit) -> Applier:
        return Applier(
            settings=self.settings,
            spark=self.shared.sessions,
            permit=permit,
            spans=spans,
            dead_letters=dead_letters,
            job_tag=self.name,
        )

    def cancel(self) -> None:
        """The Spark jobs of this role."""
        self.shared.sessions.cancel(self.name)

    def close(self) -> None:
        self.source.close()
