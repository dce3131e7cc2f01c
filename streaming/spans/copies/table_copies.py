"""The tables of a first copy, copied until each is whole and was not altered meanwhile.

    P0 ─► round: which tables are there ─► copy what is new or altered ─┐
               ▲                                                       │
               └── altered, or its rows were moved by a DDL ◄── P1 ◄───┘ none is
                                                                └─► SettledCopy

The binlog from a table's position on mends what its chunks have read at different moments. It does
not where a DDL has moved values to another column: they would be moved once more, so the table is
copied again. Where a table was renamed, or has exchanged a partition, all begins anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.target.write_mode import WriteMode
from streaming.changefeed.preflight import is_dump
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.target_forms import write_modes
from streaming.source.binlog.failover.log_search import LogSearch
from streaming.source.binlog.log_scan import Scanned, scan
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import SourceLost, SourceMoved
from streaming.source.dump.copy_tables import CopiedTable, CopyProgress, copy_tables
from streaming.source.dump.manifest import described
from streaming.source.dump.moment import SnapshotPosition, settled_position
from streaming.source.dump.session import Connection, Session, TableChanged, UnreadableValue
from streaming.source.dump.source_table import SourceTable
from streaming.source.dump.staging import StagedTable
from streaming.source.resolved.commit_clock import Pin, pin_at, with_pins
from streaming.source.resolved.gtid_sets import Trail
from streaming.spans.copies.copied_server import connection_to, is_there
from streaming.spans.copies.ddls_amid import late_shards, moved, renamed_by
from streaming.spans.copies.found.left_out import LeftOut, sorted_out
from streaming.spans.copies.found.readable import definitions_now, found_tables
from streaming.spans.copies.found.refusals import refusals
from streaming.spans.copies.moments import Begins, Moment
from streaming.spans.copies.settled_copy import (
    BEGINS,
    CopiedFrom,
    SettledCopy,
    chosen_by,
    forget_copy,
)

logger = logging.getLogger(__name__)

MOST_TIMES: Final = 5  # all is copied
MOST_ROUNDS: Final = 20  # tables that were altered meanwhile are copied again


@dataclass(frozen=True, slots=True)
class _Anew:
    """All is to be copied once more, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a changefeed stands that copied tables are to join: its stored position and pins."""

    checkpoint_ts: Ts
    position: int
    pins: tuple[Pin, ...]

    @property
    def begin(self) -> Moment:
        """No table begins before: what lies before is not read again."""
        return Moment(self.position, self.checkpoint_ts)

    @property
    def numbering(self) -> Pin:
        """From where the log is numbered as the changefeed will number it."""
        pin = pin_at(self.pins, self.position)
        assert pin is not None, "numbering begins at or before every position that is stored"
        return pin


class TableCopies:
    """Copies the tables that ``selects`` takes. ``folder`` keeps what is copied; ``joins``: the
    changefeed that the tables join; ``is_anew``: what the targets have is to go. For one thread."""

    def __init__(
        self,
        changefeed: Changefeed,
        folder: Path,
        *,
        source: BinlogSource,
        selects: Callable[[TableName], bool],
        row: ChangefeedRow,
        joins: Standing | None,
        progress: Callable[[CopyProgress], None],
        is_stopped: Callable[[], bool],
        is_anew: bool = False,
    ) -> None:
        """``row``: of the changefeed, as it is or will begin."""
        assert isinstance(changefeed.source, BinlogSettings)
        self._changefeed, self._settings = changefeed, changefeed.source
        self._database = source.database
        self._source = source
        self._selects = selects
        self._routes = changefeed_routes(changefeed)
        self._forms = write_modes(changefeed)
        self._chosen = chosen_by(changefeed)
        self._row = None if is_anew or is_dump(changefeed) else row
        self._joins = joins
        self._folder = folder
        self._progress = progress
        self._is_stopped = is_stopped
        self._leaves_out = changefeed.on_no_key == "leave-out" and not is_anew
        self._left_out: tuple[LeftOut, ...] = ()  # as they were seen last
        self._hindered: dict[TableName, str] = {}  # tables with values that cannot be read
        self._is_asked = False

    def run(self) -> SettledCopy:
        """Raises SourceAway and other TryAgains, after which the same call goes on; Stop; and
        errors that say what to do."""
        why = ""
        for _ in range(MOST_TIMES):
            try:
                done = self._run()
            except SourceMoved as error:
                if self._joins is not None:
                    raise
                done = _Anew(str(error))
            if isinstance(done, SettledCopy):
                return done
            why = done.why
            logger.warning("the copy begins anew, since %s", why)
            forget_copy(self._folder)
        raise TidelakeError(
            f"the copy began anew {MOST_TIMES} times, at last since {why}. Let no table be "
            "renamed, and no partition be exchanged, while tables are copied, and start again"
        )

    def _run(self) -> SettledCopy | _Anew:
        begins = Begins(self._folder / BEGINS)
        if self._joins is None and begins.server is None:
            self._source.keep_to({})
        elif self._joins is None and not is_there(self._source, begins.server or ""):
            return _Anew(f"{self._database.address} answers in the place of the server before")
        elif begins.server is not None:
            self._source.keep_to({PART: begins.server})
            self._database.facts()  # that one, though others may answer
        shape = self._source.shape()
        server, begin = begins.first(shape.identities[PART], self._begin)
        if self._joins is not None and begin != self._joins.begin:
            return _Anew("the changefeed has gone on")
        self._source.check_identities({PART: server}, shape)
        try:
            self._source.check({PART: begin.position})
        except SourceLost as error:
            if self._joins is not None:
                raise
            return _Anew(f"it has waited for too long: {error}")
        found: dict[TableName, CopiedFrom] = {}
        rounds = 0
        while rounds < MOST_ROUNDS + len(self._hindered):
            rounds += 1
            tables = self._tables()
            todo = [each for each in tables if not _is_same(found.get(each.name), each)]
            found = {each.name: found[each.name] for each in tables if each not in todo}
            if todo:
                self._copy(todo, begins, found)
            elif (settled := self._settled(server, begin, begins, found)) is not None:
                return settled
        raise TidelakeError(
            "tables are altered again and again while they are copied: "
            f"{', '.join(str(each.name) for each in todo)}. Let no DDL run on them for a while, "
            "and start again"
        )

    def _tables(self) -> list[SourceTable]:
        """Those that can be copied, as they are defined now. Raises ConfigError where several go
        into one target and cannot."""
        rows = self._database.ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        schemas = [name for (name,) in rows if self._selects(TableName(name, ""))]
        if not schemas:
            return []
        tables = found_tables(self._database, schemas, self._selects)
        leaves_out = self._leaves_out
        tables = [replace(t, hindered=t.hindered or self._hindered.get(t.name, "")) for t in tables]
        both = sorted_out(tables, self._form, self._routes, leaves_out=leaves_out)
        if not self._is_asked:
            both.refused[:] = refusals(self._changefeed, self._database, both, self._row)
        both.refuse()
        self._is_asked = True
        self._left_out = tuple(both.left_out)
        return both.copied

    def _form(self, name: TableName) -> WriteMode:
        target = self._routes.of(name).target
        self._forms.refuse_origin(name, target)
        return self._forms.of(target)

    def _copy(
        self, todo: Sequence[SourceTable], begins: Begins, found: dict[TableName, CopiedFrom]
    ) -> None:
        """As far as no table is altered meanwhile."""
        now = self._shown([each.name for each in todo])
        begin = {each.name: begins.of(described(each), now) for each in todo}
        try:
            for copied in self._copied(todo):
                name = copied.table.name
                at = copied.position
                position = begin[name] if at is None else self._position(at)
                found[name] = CopiedFrom(copied=copied, begin=Moment(position, Ts(0)))
        except UnreadableValue as error:
            self._note(error, todo)
        except TableChanged as error:
            logger.info("a table was altered while it was copied, and is copied again: %s", error)

    def _note(self, error: UnreadableValue, todo: Sequence[SourceTable]) -> None:
        """Its table is left out, unless it was altered meanwhile: then it is copied again."""
        before = next(each for each in todo if each.name == error.table)
        if any(described(each) == described(before) for each in self._tables()):
            logger.warning("a table is left out of the copy: %s table=%s", error, error.table)
            self._hindered[error.table] = str(error)

    def _copied(self, tables: Sequence[SourceTable]) -> Iterator[CopiedTable]:
        settings = self._settings
        return copy_tables(
            self._connect,
            tables,
            self._folder,
            connections=settings.connections,
            rows_per_chunk=settings.chunk_rows,
            rows_per_s=settings.copy_rows_per_s,
            in_one_moment=self._needs_one_moment,
            progress=self._progress,
            is_stopped=self._is_stopped,
        )

    def _needs_one_moment(self, table: SourceTable) -> bool:
        return self._form(table.name).needs_one_moment

    def _settled(
        self, server: str, begin: Moment, begins: Begins, found: dict[TableName, CopiedFrom]
    ) -> SettledCopy | _Anew | None:
        """None if tables were altered, or must be copied again: they are not in ``found``."""
        definitions = definitions_now(self._database, list(found))
        end = int(self._database.end())
        tables = self._tables()
        if (
            definitions is None
            or len(tables) != len(found)
            or not all(_is_same(found.get(of.name), of) for of in tables)
        ):
            return None
        places = [end, *(each.begin.position for each in found.values())]
        joins = self._joins
        first = self._first_pin(begin) if joins is None else joins.numbering
        known = () if joins is None else joins.pins
        scanned = scan(self._database, first, places, known)
        for name in (name for ddl in scanned.ddls for name in renamed_by(ddl.effects)):
            if self._selects(name):
                return self._after_renaming(name)
        late = late_shards(scanned, found.values(), self._routes)
        for name in {*moved(scanned, found.values()), *late}:
            logger.info("a DDL has run: the table is copied again table=%s", name)
            table = found.pop(name).copied.table
            StagedTable(self._folder, table).forget()
            begins.forget(described(table))
        if len(found) < len(places) - 1:
            return None
        return SettledCopy(
            server=server,
            chosen=self._chosen,
            begin=begin,
            end=self._placed(end, scanned),
            pins=with_pins([first], scanned.pins),
            definitions=definitions,
            tables=tuple(
                CopiedFrom(copied=each.copied, begin=self._placed(each.begin.position, scanned))
                for each in found.values()
            ),
            left_out=self._left_out,
            is_mariadb=self._database.facts().is_mariadb,
            omits_generated=self._database.facts().omits_generated,
        )

    def _first_pin(self, begin: Moment) -> Pin:
        """With its GTIDs, and so those of the copy's end are known: another server may go on."""
        gtids = LogSearch(self._database).before(begin.position)
        trail = None if gtids is None else Trail(gtids)
        return Pin(*begin, above_ts=begin.ts, is_needed=True, trail=trail)

    def _after_renaming(self, name: TableName) -> _Anew:
        """The stream must begin behind that, and with it every copy."""
        if self._joins is None:
            return _Anew(f"table {name} was renamed, or has exchanged a partition")
        raise TidelakeError(
            f"table {name} was renamed, or has exchanged a partition, in the binlog that the "
            "changefeed has not read yet, so it cannot join there. Once the changefeed has caught "
            "up (`tidelake progress`), order it again; if it is a wider [filter] that takes it, "
            "start with the earlier one until then"
        )

    def _placed(self, position: int, scanned: Scanned) -> Moment:
        """No changefeed is joined below its checkpoint."""
        least = self._joins.checkpoint_ts if self._joins is not None else Ts(0)
        return Moment(position, max(scanned.ts_at[position], least))

    def _connect(self) -> Connection:
        return connection_to(self._database)

    def _position(self, at: SnapshotPosition) -> int:
        return int(self._database.position(at.file, at.offset))

    def _shown(self, tables: Iterable[TableName] = ()) -> int:
        """A position such that each later read of these tables shows all that lies before it."""
        session = Session(self._connect, is_stopped=self._is_stopped)
        try:
            return self._position(settled_position(session, tables))
        finally:
            session.close()

    def _begin(self) -> Moment:
        """A position, and a time that is no earlier."""
        if self._joins is not None:
            return self._joins.begin
        position = self._shown()
        return Moment(position, Ts(int(time.time() * 1e3) << TSO_LOGICAL_BITS))


def _is_same(found: CopiedFrom | None, table: SourceTable) -> bool:
    return found is not None and described(found.copied.table) == described(table)
