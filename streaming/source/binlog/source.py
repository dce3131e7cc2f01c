"""The binlog of MySQL or MariaDB as a source: it is one part, and a place in it is a position.

Positions are of one server's log; its identity is the server's own ID.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from conf.sources.binlog_uri import BinlogSettings
from coordination.model import TSO_LOGICAL_BITS, Ts
from streaming.source.binlog.database import Database
from streaming.source.binlog.kept_files import PreparedWatch, kept, refuse_a_hole
from streaming.source.binlog.limits import BinlogLimits
from streaming.source.binlog.log_tail import event_bytes
from streaming.source.binlog.position import BinlogPosition, file_number
from streaming.source.contract import (
    RAW,
    Identities,
    Kept,
    Places,
    SourceClock,
    SourceLost,
    SourceShape,
)
from streaming.source.limits import Limits, Marks, Stored
from streaming.source.positions import Positions

if TYPE_CHECKING:
    from pyspark import SparkContext

    from streaming.source.binlog.reader import BinlogReader

logger = logging.getLogger(__name__)

PART: Final = "binlog"
EVENT_BYTES: Final = 100  # about: for a count of what lies between two positions
IDLE_MS: Final = 5_000  # between two steps of an idle log's checkpoint
OWN_TIME_MS: Final = 1_000  # MariaDB's own times are whole seconds


class BinlogSource:
    """See `contract.Source`."""

    server = "the database"
    has_end = False
    is_numbered = True

    def __init__(self, settings: BinlogSettings) -> None:
        self._settings = settings
        self._database = Database(settings)
        self._sizes: dict[int, int] = {}  # bytes of a binlog file, by its number
        self._looked = 0, 0.0  # the log's end, and the time just before it was asked for
        self._read_to = 0
        self._prepared = PreparedWatch()
        self._proposed_ms = 0.0  # of the last proposal of an idle log

    def close(self) -> None:
        self._database.close()

    def shape(self) -> SourceShape:
        self._database.check_binlog()
        return SourceShape({PART: self._database.facts().identity})

    def check_unchanged(self, start: SourceShape) -> None:
        now = SourceShape({PART: self._database.facts().identity})
        self.check_identities(start.identities, now)

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        before, now = recorded.get(PART), shape.identities[PART]
        if before is not None and before != now:
            raise SourceLost(
                f"{self._settings.address} is not the server whose binlog this changefeed has "
                f"read: its ID is {now}, and was {before}. Give the earlier server; or begin anew "
                "with another changefeed-id and warehouse"
            )

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:  # noqa: ARG002
        if PART not in positions:
            return
        at, (first, end) = positions[PART], self._span()
        if at < int(first):
            raise SourceLost(
                f"the binlog {self._named(at)} is needed, and {self._settings.address} has deleted "
                f"it: its first file is {self._named(int(first))}. Let the server keep its binlog "
                "for longer (binlog_expire_logs_seconds), and copy the tables anew into another "
                "warehouse"
            )
        self._check_end(at, int(end))

    def _check_end(self, at: int, end: int) -> None:
        if at > end:
            raise SourceLost(
                f"the binlog {self._named(at)} is needed, and {self._settings.address} ends at "
                f"{self._named(end)}: its log was begun anew (RESET MASTER, or a restored "
                "backup). Copy the tables anew into another warehouse"
            )

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        if PART in low_water:
            return {PART: low_water[PART]}
        return self.beginnings(shape.parts)

    def refuse_a_hole(
        self,
        first: Positions,
        *,
        checkpoint_ts: int,
        reached_ts: int | None,  # noqa: ARG002
    ) -> None:
        """A start without a time takes what the server has, and one with a position what is
        there."""
        if PART in first and checkpoint_ts and self._settings.binlog_name is None:
            at = BinlogPosition.of(first[PART])
            refuse_a_hole(self._settings, self._database, at, checkpoint_ts)

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        """Where an incremental task begins: at ``binlog-name`` and ``binlog-pos``, or else at the
        first event that the server has."""
        if not set(parts):
            return {}
        if (name := self._settings.binlog_name) is not None:
            return {PART: int(BinlogPosition(file_number(name), self._settings.binlog_pos))}
        return {PART: int(self._database.beginning())}

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        at_ms = time.time() * 1e3
        end = int(self._database.end())
        self._check_end(self._read_to, end)
        self._looked = end, at_ms
        return dict.fromkeys(parts, end)

    def limits(self, shape: SourceShape, recorded: Marks) -> BinlogLimits:  # noqa: ARG002
        return BinlogLimits.of(PART, recorded.get(PART))

    def settled(
        self,
        shape: SourceShape,  # noqa: ARG002
        limits: Limits,
        position: Positions,
        stored: Stored,
    ) -> Limits:
        """At the end of an idle log, the time of the look that found nothing more."""
        assert isinstance(limits, BinlogLimits)
        limits = limits.with_stored(stored.marks.get(PART))
        if not stored.is_ours:
            return limits
        end, at_ms = self._looked
        self._read_to = position.get(PART, 0)
        if self._read_to != end or at_ms < self._proposed_ms + IDLE_MS:
            return limits
        self._proposed_ms = at_ms
        return limits.idle_at(Ts(int(at_ms - OWN_TIME_MS) << TSO_LOGICAL_BITS))

    def reach(self, ends: Positions, stored: Stored) -> Positions:
        if stored.is_ours or PART not in ends:
            return ends
        mark = stored.marks.get(PART)
        return {PART: min(ends[PART], mark.position if mark else 0)}

    def distance(self, begin: Positions, end: Positions) -> int:
        if PART not in begin or PART not in end:
            return 0
        before, after = BinlogPosition.of(begin[PART]), BinlogPosition.of(end[PART])
        files = range(before.number, after.number)
        between = sum(self._sizes.get(number, 0) for number in files)
        size = between + after.offset - before.offset
        return max(size // EVENT_BYTES, int(end[PART] > begin[PART]))

    def clock(self) -> SourceClock:
        ((now_s,),) = self._database.ask("SELECT UNIX_TIMESTAMP(NOW(3))")
        return SourceClock(newest_ms=float(now_s) * 1e3)

    def kept(self, positions: Positions) -> Kept | None:
        if PART not in positions:
            return None
        found = kept(self._settings, self._database, BinlogPosition.of(positions[PART]))
        prepared = self._prepared.concern(self._database, time.monotonic())
        if prepared is None:
            return found
        concern = f"{found.concern}. {prepared}" if found and found.concern else prepared
        return Kept(left_s=found.left_s if found else None, concern=concern)

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        self.check_identities(identities, self.shape())
        for at in sorted(set(places.get(PART, ()))):
            facts = self._database.facts()
            event = event_bytes(self._settings, facts, BinlogPosition.of(at))
            yield pa.table([[PART], [at], [event]], schema=RAW)

    def place(self, part: str, position: int) -> str:  # noqa: ARG002
        return self._named(position)

    def tell_of(self, shape: SourceShape, begin: Positions) -> None:  # noqa: ARG002
        facts = self._database.facts()
        logger.info(
            "reading the binlog of %s, version %s, from %s",
            *(self._settings.address, facts.version, self._named(begin[PART])),
        )
        older = self._settings.task_mode == "incremental" and self._database.identifiers()
        if older:
            logger.warning(
                "a binlog does not tell UUID, INET4 and INET6 from BINARY: if the CREATE TABLE is "
                "not read, the bytes are shown. Give it with --schema-file. The columns: %s",
                ", ".join(older),
            )
        if cascading := self._database.cascades():
            logger.warning(
                "foreign keys change rows of %s by CASCADE or SET NULL, and MariaDB and MySQL "
                "before 9 write no such change to their binlog: the targets keep those rows as "
                "they were. Let the application change them, and see `tidelake diff`",
                ", ".join(cascading),
            )

    def end_ts(self) -> None:
        return None

    def reader(self, spark: SparkContext, *, start_ts: int, name: str) -> BinlogReader:
        from streaming.source.binlog.reader import BinlogReader  # Spark is up by then

        return BinlogReader(
            self._settings, self._database, spark, part=PART, start_ts=start_ts, name=name
        )

    def _span(self) -> tuple[BinlogPosition, BinlogPosition]:
        """The first position that the server has, and the end."""
        end = self._database.end()
        self._sizes = {file_number(name): size for name, size in self._database.files()}
        return BinlogPosition(min(self._sizes, default=end.number), 0), end

    def _named(self, position: int) -> str:
        return self._database.name_of(position)
