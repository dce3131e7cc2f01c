"""The binlog of MySQL or MariaDB as a source: it is one part, and a place in it is a position.

Positions are of one server's log; its identity is the server's own ID. In the log of another server
it goes on by GTID, which stand in the tokens (`failover/`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pymysql.constants import ER

from conf.sources.binlog_uri import BinlogSettings
from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from streaming.source.binlog.database import Database, ServerSays, moved
from streaming.source.binlog.failover.decision import shown
from streaming.source.binlog.failover.switch import first_fit, place_of_gtids, switched
from streaming.source.binlog.kept_files import PreparedWatch, kept, refuse_a_hole
from streaming.source.binlog.log_tail import event_bytes
from streaming.source.binlog.position import BinlogPosition, file_number
from streaming.source.contract import (
    RAW,
    Identities,
    Kept,
    Places,
    RecordedPlace,
    SourceAway,
    SourceClock,
    SourceLost,
    SourceMoved,
    SourceShape,
)
from streaming.source.positions import Positions
from streaming.source.resolved.commit_clock import MOST_PINS, from_token, to_token
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.pinned_limits import PinnedLimits

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs
    from streaming.source.binlog.reader import BinlogReader

logger = logging.getLogger(__name__)

PART: Final = "binlog"
EVENT_BYTES: Final = 100  # about: for a count of what lies between two positions
IDLE_MS: Final = 5_000  # between two steps of an idle log's checkpoint
OWN_TIME_MS: Final = 1_000  # MariaDB's own times are whole seconds
FAILOVER_S: Final = 10.0  # a server is away for so long before another one is looked for
_OF_INNODB: Final = "innodb_native_foreign_keys"  # MySQL from 9.6 on; OFF: its log has the rows
_NAMED: Final = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"")
_CHANGES: Final = re.compile(
    r"\s*CONSTRAINT  FOREIGN KEY .*\bON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)\b"
)


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
        self._away_since_s: float | None = None

    def close(self) -> None:
        self._database.close()

    @property
    def database(self) -> Database:
        return self._database

    def keep_to(self, identities: Identities) -> None:
        self._database.keep_to(identities.get(PART))

    def shape(self) -> SourceShape:
        self._database.choose()
        self._database.check_binlog()
        return SourceShape({PART: self._database.facts().identity})

    def goes_on(self, place: RecordedPlace, shape: SourceShape, reached_ts: int) -> RecordedPlace:
        before = place.identities.get(PART)
        if before in (None, shape.identities[PART]):
            return place
        mark = place.marks.get(PART)
        pins = from_token(mark.token) if mark is not None else ()
        if mark is None or not pins or PART not in place.positions:
            self.check_identities(place.identities, shape)
        self._database, found = first_fit(
            self._database, lambda each: switched(each, pins, place.positions[PART], reached_ts)
        )
        assert mark is not None
        log = logger.warning if reached_ts else logger.debug  # it is asked once before the seal
        log(
            "going on in the binlog of %s, by GTID, at %s: behind %s",
            *(self._database.address, self._named(found.position), shown(found.pins[0].gtids)),
        )
        return RecordedPlace(
            positions={PART: found.position},
            identities={PART: found.identity},
            marks={
                PART: replace(mark, position=found.position, token=to_token(found.pins)),
            },
        )

    def check_unchanged(self, start: SourceShape) -> None:
        before, now = start.identities[PART], self._database.facts().identity
        if before != now:
            raise moved(self._database.settings, before, now)

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        before, now = recorded.get(PART), shape.identities[PART]
        if before is not None and before != now:
            raise SourceLost(
                f"{self._database.address} is not the server whose binlog this changefeed has "
                f"read: its ID is {now}, and was {before}. Give the earlier server; or begin anew "
                "with another changefeed-id and warehouse"
            )

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:  # noqa: ARG002
        if PART not in positions:
            return
        at, (first, end) = positions[PART], self._span()
        if at < int(first):
            raise SourceLost(
                f"the binlog {self._named(at)} is needed, and {self._database.address} has deleted "
                f"it: its first file is {self._named(int(first))}. Let the server keep its binlog "
                "for longer (binlog_expire_logs_seconds), and copy the tables anew into another "
                "warehouse"
            )
        self._check_end(at, int(end))

    def _check_end(self, at: int, end: int) -> None:
        if at > end:
            raise SourceLost(
                f"the binlog {self._named(at)} is needed, and {self._database.address} ends at "
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
        is_placed = self._settings.binlog_name or self._settings.binlog_gtid
        if PART in first and checkpoint_ts and not is_placed:
            refuse_a_hole(self._database, BinlogPosition.of(first[PART]), checkpoint_ts)

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        """Where an incremental task begins: at ``binlog-name`` and ``binlog-pos``, at
        ``binlog-gtid``, or else at the first event that the server has."""
        if not set(parts):
            return {}
        if (gtids := self._settings.binlog_gtid) is not None:
            return {PART: place_of_gtids(self._database, gtids)}
        if (name := self._settings.binlog_name) is not None:
            return {PART: int(BinlogPosition(file_number(name), self._settings.binlog_pos))}
        return {PART: int(self._database.beginning())}

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        at_ms = time.time() * 1e3
        try:
            end = int(self._database.end())
        except SourceAway as error:
            self._look_for_another(error)
            raise
        self._away_since_s = None
        self._check_end(self._read_to, end)
        self._looked = end, at_ms
        return dict.fromkeys(parts, end)

    def _look_for_another(self, error: SourceAway) -> None:
        """Raise SourceMoved where the server does not come back and there are others."""
        now_s = time.monotonic()
        since_s = self._away_since_s = self._away_since_s or now_s
        if self._database.others and now_s - since_s >= FAILOVER_S:
            raise SourceMoved(
                f"{error}. It is away for more than {FAILOVER_S:.0f} s: another server of the "
                "source-uri is looked for"
            ) from error

    def limits(self, shape: SourceShape, recorded: Marks) -> PinnedLimits:  # noqa: ARG002
        return PinnedLimits.of(frozenset((PART,)), recorded, most_needed=2 * MOST_PINS)

    def settled(
        self,
        shape: SourceShape,  # noqa: ARG002
        limits: Limits,
        position: Positions,
        stored: Stored,
    ) -> Limits:
        """At the end of an idle log, the time of the look that found nothing more."""
        assert isinstance(limits, PinnedLimits)
        limits = limits.with_stored(stored)
        if not stored.is_ours:
            return limits
        end, at_ms = self._looked
        self._read_to = position.get(PART, 0)
        if self._read_to != end or at_ms < self._proposed_ms + IDLE_MS:
            return limits
        self._proposed_ms = at_ms
        return limits.idle_at({PART: Ts(int(at_ms - OWN_TIME_MS) << TSO_LOGICAL_BITS)})

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
        found = kept(self._database, BinlogPosition.of(positions[PART]))
        prepared = self._prepared.concern(self._database, time.monotonic())
        if prepared is None:
            return found
        concern = f"{found.concern}. {prepared}" if found and found.concern else prepared
        return Kept(left_s=found.left_s if found else None, concern=concern)

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        self.keep_to(identities)
        self.check_identities(identities, self.shape())
        for at in sorted(set(places.get(PART, ()))):
            facts = self._database.facts()
            event = event_bytes(self._database.settings, facts, BinlogPosition.of(at))
            yield pa.table([[PART], [at], [event]], schema=RAW)

    def place(self, part: str, position: int) -> str:  # noqa: ARG002
        return self._named(position)

    def tell_of(self, shape: SourceShape, begin: Positions) -> None:  # noqa: ARG002
        facts = self._database.facts()
        logger.info(
            "reading the binlog of %s, version %s, from %s",
            *(self._database.address, facts.version, self._named(begin[PART])),
        )
        older = self._settings.task_mode == "incremental" and self._database.identifiers()
        if older:
            logger.warning(
                "a binlog does not tell UUID, INET4 and INET6 from BINARY: if the CREATE TABLE is "
                "not read, the bytes are shown. Give it with --schema-file. The columns: %s",
                ", ".join(older),
            )

    def unlogged(self) -> Sequence[TableName]:
        return cascading(self._database)

    def held_back(self, parts: Iterable[str]) -> str | None: ...

    def end_ts(self) -> None:
        return None

    def reader(self, jobs: Jobs, *, start_ts: int, name: str) -> BinlogReader:
        from streaming.source.binlog.reader import BinlogReader  # Spark is up by then

        return BinlogReader(self._database, jobs, part=PART, start_ts=start_ts, name=name)

    def _span(self) -> tuple[BinlogPosition, BinlogPosition]:
        """The first position that the server has, and the end."""
        end = self._database.end()
        number = self._database.facts().files.number
        self._sizes = {number(name): size for name, size in self._database.files()}
        return BinlogPosition(min(self._sizes, default=end.number), 0), end

    def _named(self, position: int) -> str:
        return self._database.name_of(position)


def cascading(database: Database) -> list[TableName]:
    """The tables whose rows a foreign key may delete or change, where the server writes no such
    change to its binlog. Raises as ``ask`` does.

    MariaDB shows the rules in REFERENTIAL_CONSTRAINTS only to an account that may write the table,
    and in INNODB_SYS_FOREIGN to one with PROCESS. One that may read it sees the names of foreign
    keys, and the table's definition."""
    if database.variables(_OF_INNODB).get(_OF_INNODB, "ON").upper() == "OFF":
        return []
    return sorted(_defined_so(database) if database.facts().is_mariadb else _told(database))


def _told(database: Database) -> Iterator[TableName]:
    for schema, table in database.ask(
        "SELECT DISTINCT CONSTRAINT_SCHEMA, TABLE_NAME "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')"
    ):
        yield TableName(str(schema), str(table))


def _defined_so(database: Database) -> Iterator[TableName]:
    for schema, table in database.ask(
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE "
        "WHERE REFERENCED_TABLE_NAME IS NOT NULL"
    ):
        name = TableName(str(schema), str(table))
        try:
            rows = database.ask(f"SHOW CREATE TABLE {_quoted(name.schema)}.{_quoted(name.table)}")
        except ServerSays as error:
            if error.errno != ER.NO_SUCH_TABLE:  # it was dropped meanwhile
                raise
            continue
        if any(_CHANGES.match(_NAMED.sub("", line)) for line in str(rows[0][1]).splitlines()):
            yield name


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
