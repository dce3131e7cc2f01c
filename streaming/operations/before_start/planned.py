"""The tables that a start would make, as far as they are known before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.progress import DROPPED
from sinks.control.warehouse import ControlTables
from sinks.target.target_table import table_uri
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.schema_file import definitions_of
from streaming.changefeed.target_forms import write_modes
from streaming.source.binlog.database import Database
from streaming.source.binlog.source import BinlogSource
from streaming.spans.copies.found.left_out import may_be_copied
from streaming.spans.copies.found.readable import found_tables

OF_A_TOPIC: Final = (
    "each table that [filter] selects, at its CREATE TABLE, or at its first row if the messages "
    "tell the types"
)


def planned_tables(changefeed: Changefeed) -> list[str]:
    """A line for each: its target, how that is written, its key, and whether it is copied. Empty
    where that could not be asked: the findings say why. Blocks."""
    try:
        if not isinstance(changefeed.source, BinlogSettings):
            return [*_of_schema_file(changefeed), OF_A_TOPIC]
        with closing(BinlogSource(changefeed.source)) as source:
            source.database.choose()
            return list(_of_database(source.database, changefeed))
    except TidelakeError:
        return []


def _of_schema_file(changefeed: Changefeed) -> Iterator[str]:
    """Its definitions are by target already."""
    for _, found in sorted(definitions_of(changefeed).items()):
        yield _line(changefeed, found.name, found.name, found.schema.key, "not copied")


def _of_database(database: Database, changefeed: Changefeed) -> Iterator[str]:
    assert isinstance(changefeed.source, BinlogSettings)
    routes, forms = changefeed_routes(changefeed), write_modes(changefeed)
    copies = changefeed.source.task_mode != "incremental"
    rows = database.ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    schemas = [name for (name,) in rows if routes.filter.selects(TableName(name, ""))]
    tables = found_tables(database, schemas, routes.filter.selects) if schemas else []
    there = ControlTables.of(changefeed.sink).progress.read(changefeed.id)
    for each in sorted(tables, key=lambda table: table.name):
        target = routes.of(each.name).target
        how = f"about {each.rows} rows are copied" if copies else "not copied"
        if copies and not may_be_copied(each, forms.of(target)):
            how = "cannot be copied"
        if target in there and there[target].state != DROPPED:
            how = "replicated already"
        yield _line(changefeed, each.name, target, each.key, how)


def _line(
    changefeed: Changefeed, origin: TableName, target: TableName, key: tuple[str, ...], how: str
) -> str:
    form, uri = write_modes(changefeed).of(target), table_uri(changefeed.sink.warehouse, target)
    told = f"primary key {', '.join(key)}" if key else "no primary key"
    return f"{origin} → {uri}: {form}, {told}, {how}"
