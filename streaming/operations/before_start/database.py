"""What a start would find at a database: the account's rights, the tables, and what of them its
binlog does not tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.warehouse import ControlTables
from sinks.target.write_mode import WriteMode
from streaming.changefeed.preflight import is_dump
from streaming.changefeed.replicated_table import NO_KEY, RULES, not_replicated
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.target_forms import write_modes
from streaming.operations.before_start.notes import Note
from streaming.owner.start_point import first_row
from streaming.source.binlog.database import Database
from streaming.source.binlog.dump import BinlogDump
from streaming.source.binlog.source import BinlogSource
from streaming.spans.copies.found.left_out import sorted_out
from streaming.spans.copies.found.readable import found_tables
from streaming.spans.copies.found.refusals import refusals

DAY_S: Final = 24 * 60 * 60
BESIDE_A_COPY: Final = 3  # connections: questions, the position, the binlog
_KEPT: Final = ("binlog_expire_logs_seconds", "expire_logs_days")
_OWN: Final = "('information_schema', 'mysql', 'performance_schema', 'sys')"


def database_notes(changefeed: Changefeed) -> Iterator[Note]:
    """What `preflight` finds (the login, the server's settings, the warehouse) is not told here
    again. Blocks: each table is asked for its definition."""
    assert isinstance(changefeed.source, BinlogSettings)
    stored: ChangefeedRow | None = None
    with suppress(TidelakeError):  # of the warehouse
        stored = ControlTables.of(changefeed.sink).changefeeds.read(changefeed.id)
    with closing(BinlogSource(changefeed.source)) as source:
        database = source.database
        try:
            database.choose()
        except TidelakeError:
            return
        has_begun = stored is not None and bool(stored.source_positions)
        copies = changefeed.source.task_mode != "incremental" and not has_begun
        for part in (_of_rights, _of_server):
            yield from _told(part(database, changefeed.source))
        if copies:
            yield from _told(_of_tables(database, changefeed))
        elif stored is not None:
            yield from _told(_of_waiting(changefeed))
        yield from _told(_of_the_log(source, changefeed))


def _told(notes: Iterator[Note]) -> Iterator[Note]:
    try:
        yield from notes
    except TidelakeError as error:
        yield Note("refused", "database", str(error))


def _of_rights(database: Database, settings: BinlogSettings) -> Iterator[Note]:
    """Each is used once, since no list of grants tells them surely. Raises where one lacks."""
    end = database.end()
    if settings.task_mode != "dump":
        dump, received = BinlogDump(database.settings, database.facts(), end), bytearray()
        with closing(dump):
            while not len(dump.starts(received, 0)[0]):
                dump.receive(received)
    name = database.name_of(int(end))
    yield Note("ok", "rights", f"the account may read the binlog, which ends at {name} now")


def _of_server(database: Database, settings: BinlogSettings) -> Iterator[Note]:
    facts = database.facts()
    yield Note("ok", "server", f"{database.address} is of version {facts.version}")
    told = database.variables(*_KEPT)
    seconds = int(float(told.get(_KEPT[0]) or 0) or float(told.get(_KEPT[1]) or 0) * DAY_S)
    if 0 < seconds < DAY_S:
        yield Note(
            "note",
            "server",
            f"it keeps its binlog for {seconds} s: a changefeed that stands still for longer has "
            f"to copy its tables anew. SET GLOBAL {_KEPT[0]} = {7 * DAY_S}",
        )
    ((most,),) = database.ask("SELECT @@max_user_connections")
    needed = settings.connections + BESIDE_A_COPY
    if 0 < int(most) < needed:
        yield Note(
            "note",
            "server",
            f"max_user_connections is {most}, and a copy opens up to {needed} (`connections` of "
            "the source URI, and three beside): raise the one, or lower the other",
        )


def _of_tables(database: Database, changefeed: Changefeed) -> Iterator[Note]:
    routes, forms = changefeed_routes(changefeed), write_modes(changefeed)
    rows = database.ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    schemas = [name for (name,) in rows if routes.filter.selects(TableName(name, ""))]

    def form_of(name: TableName) -> WriteMode:
        target = routes.of(name).target
        forms.refuse_origin(name, target)
        return forms.of(target)

    tables = found_tables(database, schemas, routes.filter.selects) if schemas else []
    found = sorted_out(tables, form_of, routes, leaves_out=changefeed.on_no_key == "leave-out")
    row = None if is_dump(changefeed) else first_row(changefeed)
    for each in refusals(changefeed, database, found, row):
        yield Note("refused", "tables", each)
    for left in found.left_out:
        if left.why or changefeed.on_no_key == "leave-out":
            why = left.why or f"it has {NO_KEY}. Give it one, or a rule: {RULES}"
            size = f"about {left.rows} rows" if left.rows else "its rows"
            yield Note("waits", str(left.name), f"{size}: {why}")
    if not tables:
        yield Note(
            "note",
            "tables",
            "none is there that [filter] selects and the account may read: the copy has nothing",
        )
        return
    rows_told = sum(each.rows for each in found.copied)
    copied = len(found.copied)
    which = "1 table is copied" if copied == 1 else f"{copied} tables are copied"
    yield Note("ok", "tables", f"{which}, about {rows_told} rows")


def _of_waiting(changefeed: Changefeed) -> Iterator[Note]:
    for name, row in ControlTables.of(changefeed.sink).progress.read(changefeed.id).items():
        if row.lacks:
            yield Note("waits", str(name), not_replicated(name, row.lacks))


def _of_the_log(source: BinlogSource, changefeed: Changefeed) -> Iterator[Note]:
    """What the server does not write into its binlog."""
    selects, database = changefeed_routes(changefeed).filter.selects, source.database
    for name in filter(selects, source.unlogged()):
        yield Note(
            "note",
            str(name),
            "a foreign key with CASCADE or SET NULL changes its rows, and the server does not "
            "write that into its binlog: the target keeps such rows. The table is in state warning",
        )
    if not database.facts().omits_generated:
        return
    omitted: dict[TableName, list[str]] = defaultdict(list)
    for schema, table, column, extra in database.ask(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, EXTRA "
        f"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA NOT IN {_OWN}"
    ):
        name = TableName(str(schema), str(table))
        if "GENERATED" in str(extra).upper().split() and selects(name):
            omitted[name].append(str(column))
    for name, columns in omitted.items():
        yield Note(
            "note",
            str(name),
            f"MariaDB from 11 on does not tell {', '.join(columns)} in its binlog, as they are "
            "generated: the target has none of them, and a view computes them",
        )


def refused(changefeed: Changefeed) -> list[ConfigError]:
    """What a database has that refuses a start, but for what `preflight` finds. Blocks as
    `database_notes`."""
    if not isinstance(changefeed.source, BinlogSettings):
        return []
    notes = database_notes(changefeed)
    return [ConfigError(note.what) for note in notes if note.verdict == "refused"]
