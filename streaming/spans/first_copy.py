"""The first copy of a database's tables, before its changefeed begins: afterwards the warehouse is
as if the changefeed had run until then.

    P0 ─► copy by chunks, each table from its own position on ─► P1 ─► load, one commit a table
                                                                   └─► control rows: begin at P0

A table that is read in chunks shows rows of different moments between its position and P1. The
binlog from that position on, applied by key, mends that (rule 4): at P1 it is exact. So no snapshot
is published at or below P1, and the changefeed's state is `loading` until then. A table that is
read in one moment (no key, or every event counts) is exact at once.

A pin says which commit-ts each position has: what lies before it is at or below.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.target.table_properties import DdlIdentity
from streaming.apply.applier import with_null_dates
from streaming.apply.table_task import change_rules
from streaming.changefeed.filter import TableFilter, WriteModes
from streaming.changefeed.replicated_table import NO_DDL
from streaming.changefeed.schema_file import Definitions, read_definitions
from streaming.changefeed.table_registry import TableRegistry
from streaming.owner.progress_rows import first_progress
from streaming.owner.start_point import first_row
from streaming.source.binlog.commit_clock import Pin, to_token, with_pins
from streaming.source.binlog.database import Database, connected
from streaming.source.binlog.position import BinlogPosition, file_number
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.dump.copy_tables import CopiedTable, CopyProgress, copy_tables
from streaming.source.dump.manifest import described
from streaming.source.dump.moment import SnapshotPosition, settled_position
from streaming.source.dump.session import Connection, Session
from streaming.source.dump.source_table import SourceTable, read_tables
from streaming.spans.load_table import load_table
from streaming.spans.moments import Moment, Moments

logger = logging.getLogger(__name__)

TableProgress = CopyProgress  # how far the copy of a table is

MOMENTS: Final = "moments.json"
MOST_ROUNDS: Final = 5  # a table is copied again if it was altered meanwhile
ANSWER_S: Final = 3_600.0  # for a row of a large table
PLACES: Final = "moments.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFrom:
    """A whole copy of a table. The changes from ``begin`` on are to be applied."""

    copied: CopiedTable
    begin: Moment


class FirstCopy:
    """The copy of one changefeed. ``folder``: for staged files, kept over restarts until the copy
    has ended. For one thread."""

    def __init__(
        self,
        changefeed: Changefeed,
        folder: Path,
        *,
        progress: Callable[[CopyProgress], None] = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        assert isinstance(changefeed.source, BinlogSettings)
        self._changefeed = changefeed
        self._settings = changefeed.source
        self._folder = folder
        self._progress = progress
        self._is_stopped = is_stopped
        self._database = Database(self._settings)
        self._source = BinlogSource(self._settings)
        self._filter = TableFilter(changefeed.filter)
        case_sensitive = changefeed.filter.case_sensitive
        self._forms = WriteModes(changefeed.sink.tables, case_sensitive=case_sensitive)
        self._tables = ControlTables.of(changefeed.sink)

    def close(self) -> None:
        self._database.close()
        self._source.close()

    @property
    def is_done(self) -> bool:
        row = self._tables.changefeeds.read(self._changefeed.id)
        return row is not None and bool(row.source_positions)

    def run(self) -> None:
        """Copy and load what is not yet; afterwards the changefeed can begin. Raises SourceAway and
        other TryAgains, after which the same call goes on; Stop; and errors that say what to do."""
        self._database.check_binlog()
        self._folder.mkdir(parents=True, exist_ok=True)
        moments = Moments(self._folder / MOMENTS)
        begin = moments.at("begin", self._settled)
        self._source.check({PART: begin.position})
        found = self._copy(moments)
        end = moments.at("end", self._now)
        if any(each.begin.position > end.position for each in found):
            end = moments.put("end", self._now())  # a table was altered after an earlier end
        settled = moments.settle([begin, *(each.begin for each in found), end])
        copied = [replace(each, begin=settled[each.begin.position]) for each in found]
        row = self._row(settled, settled[begin.position], settled[end.position])
        self._load(copied, row)
        logger.info(
            "copied and loaded tables=%d rows=%d; goes on in the binlog at %s",
            *(len(copied), sum(each.copied.rows for each in copied)),
            self._database.name_of(begin.position),
        )
        self._tables.changefeeds.begin(row)
        shutil.rmtree(self._folder)

    def _copy(self, moments: Moments) -> list[CopiedFrom]:
        """All tables, each as it is defined now. A table that was altered while it was copied is
        copied again, and so is one that is new."""
        found: dict[TableName, CopiedFrom] = {}
        for _ in range(MOST_ROUNDS):
            tables = self._selected()
            todo = [each for each in tables if not _is_same(found.get(each.name), each)]
            found = {each.name: found[each.name] for each in tables if each not in todo}
            if not todo:
                return list(found.values())
            for copied in self._copied(todo, moments):
                found[copied.copied.table.name] = copied
        names = ", ".join(str(each.name) for each in todo)
        raise TidelakeError(
            f"tables are altered again and again while they are copied: {names}. Let no DDL run "
            "on them for a while, and start again"
        )

    def _selected(self) -> list[SourceTable]:
        """The tables that the filter selects and that can be copied."""
        rows = self._database.ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        schemas = [name for (name,) in rows if self._filter.selects(TableName(name, ""))]
        if not schemas:
            return []
        found = []
        for table in read_tables(self._database.ask, schemas):
            if not self._filter.selects(table.name):
                continue
            form = self._forms.of(table.name)
            if not (table.key or form.is_log or form.all_columns):
                logger.warning(
                    "the table has no primary key and no NOT NULL unique key: it is not copied, "
                    "and its rows go to dead_letters, unless [[sink.tables]] has write-mode append "
                    "or key all-columns for it table=%s",
                    table.name,
                )
                continue
            found.append(table)
        return found

    def _copied(self, tables: Sequence[SourceTable], moments: Moments) -> Iterable[CopiedFrom]:
        settled = cache(partial(self._settled, [each.name for each in tables]))
        begin = {each.name: moments.of(described(each), settled) for each in tables}
        settings = self._settings
        for copied in copy_tables(
            self._connect,
            tables,
            self._folder,
            connections=settings.connections,
            rows_per_chunk=settings.chunk_rows,
            in_one_moment=self._needs_one_moment,
            progress=self._progress,
            is_stopped=self._is_stopped,
        ):
            name, moment = copied.table.name, begin[copied.table.name]
            if (at := copied.position) is not None:
                moment = self._clock(binlog_position(at))
                moment = moments.at(f"{name} {moment.position}", partial(Moment, *moment))
            yield CopiedFrom(copied=copied, begin=moment)

    def _needs_one_moment(self, table: SourceTable) -> bool:
        form = self._forms.of(table.name)
        return form.is_log or form.is_history or form.all_columns

    def _settled(self, tables: Iterable[TableName] = ()) -> Moment:
        """A position such that each later read of these tables shows all that lies before it."""
        session = Session(self._connect)
        try:
            return self._clock(binlog_position(settled_position(session, tables)))
        finally:
            session.close()

    def _connect(self) -> Connection:
        return connected(self._settings, read_timeout_s=ANSWER_S)

    def _now(self) -> Moment:
        """The log's end, and a time that is no earlier."""
        return self._clock(int(self._database.end()))

    def _clock(self, position: int) -> Moment:
        return Moment(position, Ts(int(time.time() * 1e3) << TSO_LOGICAL_BITS))

    def _row(self, settled: Mapping[int, Moment], begin: Moment, end: Moment) -> ChangefeedRow:
        """The row of a changefeed that stands at the copy's begin."""
        pins = with_pins((), [Pin(*each, is_needed=True) for each in settled.values()])
        row = first_row(self._changefeed)
        return replace(
            row,
            start_ts=begin.ts,
            state="stopped",  # nobody replicates it yet
            checkpoint_ts=begin.ts,
            resolved_ts=begin.ts,
            max_published_ts=end.ts,
            source_positions={PART: begin.position},
            source_identities=dict(self._source.shape().identities),
            watermarks={
                PART: RecordedWatermark(
                    ts=begin.ts + 1, position=begin.position, token=to_token(pins)
                )
            },
        )

    def _load(self, copied: Sequence[CopiedFrom], row: ChangefeedRow) -> None:
        sink = self._changefeed.sink
        registry = TableRegistry(sink, row, self._forms, self._definitions(copied))
        engine = MergeOnWriteEngine(revealed_options(sink.storage_options), keeps_up=False)
        rows = []
        try:
            for each in copied:
                registry = self._loaded(each, registry, engine)
                table = registry[each.copied.table.name]
                rows.append(first_progress(table, row, {PART: each.begin.position}))
        finally:
            engine.close()
        self._tables.progress.claim(row.changefeed_id, row.term)
        self._tables.progress.advance(rows, row.term)

    def _loaded(
        self, each: CopiedFrom, registry: TableRegistry, engine: MergeOnWriteEngine
    ) -> TableRegistry:
        name, at_ts = each.copied.table.name, each.begin.ts
        schema = registry.defined.schema(name)
        assert schema is not None, f"{name} is defined"
        no_ddl = DdlIdentity(commit_ts=NO_DDL, order=0, query="")
        registry.create(name, schema, no_ddl, at_ts, shape_ts=at_ts)
        target = registry[name].target
        if target is None:
            return registry
        began_s = time.monotonic()
        loaded = load_table(
            engine,
            each.copied,
            target,
            at_ts,
            change_rules(self._changefeed),
            part=PART,
            position=each.begin.position,
        )
        found = with_null_dates(registry[name], loaded.nulled)
        registry.put(replace(found, version=loaded.version, identity=at_ts, engine=engine.name))
        logger.info(
            "loaded table=%s rows=%d version=%d took_s=%.1f",
            *(name, each.copied.rows, loaded.version, time.monotonic() - began_s),
        )
        return registry

    def _definitions(self, copied: Sequence[CopiedFrom]) -> Definitions:
        text = ""
        for each in copied:
            name = each.copied.table.name
            quoted = ".".join(f"`{part.replace('`', '``')}`" for part in (name.schema, name.table))
            ((_, statement, *_),) = self._database.ask(f"SHOW CREATE TABLE {quoted}")
            text += f"USE `{name.schema.replace('`', '``')}`;\n{statement};\n"
        return read_definitions(text, self._filter.selects)


def _is_same(found: CopiedFrom | None, table: SourceTable) -> bool:
    return found is not None and described(found.copied.table) == described(table)


def binlog_position(at: SnapshotPosition) -> int:
    return int(BinlogPosition(file_number(at.file), at.offset))
