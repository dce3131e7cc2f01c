"""A database and a lake beside it, whose table is written by hand to what a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from conf.settings import DeltaSink
from conf.sources.binlog_uri import BinlogSettings
from coordination.model import Ownership, TableName, Ts
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.progress import Progress, ProgressRow
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, TableWrite, Target, app_id
from sinks.target.target_table import table_uri
from sinks.target.write_mode import ROW_DELETED, WriteMode
from sinks.types.casts.columns import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from sinks.types.text_arrays import CastRules
from streaming.operations.diff.comparison import DiffLimits, compare_tables
from streaming.operations.diff.database_rows import DatabaseRows
from streaming.operations.diff.findings import DiffReport, TableFinding
from streaming.operations.diff.patience import KeptSession
from streaming.operations.diff.shape import compared
from streaming.source.binlog.database import connected
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceTable, read_tables
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

CHANGEFEED = "shop"
OWNER = Ownership(capture_id="c", epoch="e", etcd_cluster_id="etcd", election_revision=7)
RULES = CastRules(time_zone="UTC", zero_date="null")


class Rig:
    """``schema``: a database of the server, and the tables' schema."""

    def __init__(self, server: DatabaseServer, schema: str, warehouse: Path) -> None:
        self.server = server
        self.schema = schema
        self.sink = DeltaSink(warehouse=str(warehouse))
        settings = BinlogSettings(host=server.host, port=server.port, user="root")
        self.log = BinlogSource(settings)
        self._engine = MergeOnWriteEngine({}, keeps_up=False)
        self._changefeeds = Changefeeds(str(warehouse))
        self._progress = Progress(str(warehouse))
        first = ChangefeedRow(
            changefeed_id=CHANGEFEED,
            start_ts=1,
            checkpoint_ts=1,
            resolved_ts=1,
            row_rules=json.dumps({"zero_date": "null"}),
        )
        self.row = self._changefeeds.claim(first, OWNER, ttl_s=1.0, stop=threading.Event())
        self._progress.claim(CHANGEFEED, self.row.term)
        self._limit = 10
        self._targets: dict[str, Target] = {}
        self.told: Callable[[int, int], None] = lambda _done, _total: None

    def close(self) -> None:
        self._engine.close()
        self.log.close()

    def sql(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.schema)

    def connect(self) -> Any:
        return connected(BinlogSettings(host=self.server.host, port=self.server.port, user="root"))

    def make(self, table: str, *, form: WriteMode | None = None, **types: str) -> None:
        """A target with the table's columns and key; ``types``: columns that have another type
        there."""
        source = self._source_table(table)
        columns = tuple(
            Column(
                name=each.name,
                type=MySQLType.parse(types[each.name]) if each.name in types else each.type,
                nullable=each.nullable,
            )
            for each in source.columns
        )
        name = TableName(self.schema, table)
        form = form or WriteMode()
        schema = form.keyed(TableSchema(columns=columns, key=source.key))
        target = Target(
            name=name,
            uri=table_uri(self.sink.warehouse, name),
            schema=schema,
            app_id=app_id(CHANGEFEED, 1, name),
            form=form,
        )
        create(target, properties={})
        self._targets[table] = target
        self.passed(table)

    def copy(self, table: str) -> None:
        """The table's rows as they are now, and how far that is."""
        ends = self.log.ends([PART])
        session = KeptSession(lambda: Session(self.connect))
        try:
            rows = DatabaseRows(session, self._source_table(table), RULES, rows_per_chunk=1000)
            target = self._targets[table]
            types = {column.name: "" for column in target.schema.columns}
            shape = compared(target.schema, types, rows.columns)
            for batch in rows.batches(shape):
                names = [column.name for column in shape.columns]
                arrays = [*batch.key, *batch.cells]
                found = pa.table(dict(zip(names, arrays, strict=True)))
                self._apply(table, found.group_by(names).aggregate([]), "U")
        finally:
            session.close()
        self.passed(table, ends)

    def put(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Rows of the lake alone, by all their columns."""
        self._apply(table, self._rows(table, rows), "U")

    def delete(self, table: str, *rows: Mapping[str, Any]) -> None:
        self._apply(table, self._rows(table, rows), "D")

    def follow(self, table: str, but: Mapping[str, Any] | None = None) -> None:
        """Brings the table, whose key is ``id``, to the database's rows; ``but``: a row that is
        wrong there."""
        ends = self.log.ends([PART])
        target = self._targets[table]
        names = [column.name for column in target.schema.columns]
        found = self.server.query(f"SELECT {', '.join(names)} FROM {table}", self.schema)
        wanted = {row[0]: dict(zip(names, row, strict=True)) for row in found}
        if but is not None:
            wanted[but["id"]] = dict(but)
        there = {row["id"]: row for row in read_rows(target.uri)}
        self.put(table, *(row for key, row in wanted.items() if there.get(key) != row))
        self.delete(table, *(row for key, row in there.items() if key not in wanted))
        self.passed(table, ends)

    def passed(self, table: str, ends: Mapping[str, int] | None = None, **row: Any) -> None:
        """The control tables say that the table has everything before ``ends``."""
        ends = ends or {}
        self.row = replace(self.row, **{"source_identities": self.log.shape().identities, **row})
        self._changefeeds.save(self.row)
        progress = ProgressRow(
            changefeed_id=CHANGEFEED,
            incarnation=1,
            schema_name=self.schema,
            table_name=table,
            generation=1,
            state="replicating",
            checkpoint_ts=self._limit,
            resolved_ts=self._limit,
            source_positions=ends,
            capture_id="c",
            epoch="e",
            fence=self.row.term << 32,
        )
        self._progress.advance([progress], self.row.term)

    def diff(self, *names: str, wait_s: float = 5.0, **limits: Any) -> DiffReport:
        session = KeptSession(lambda: Session(self.connect))
        try:
            return compare_tables(
                self.sink,
                None,
                [f"{self.schema}.{name}" for name in names],
                session,
                self.log,
                limits=DiffLimits(wait_s=wait_s, **limits),
                told=self.told,
            )
        finally:
            session.close()

    def one(self, name: str, wait_s: float = 5.0, **limits: Any) -> TableFinding:
        (found,) = self.diff(name, wait_s=wait_s, **limits).tables
        return found

    def _source_table(self, table: str) -> SourceTable:
        session = Session(self.connect)
        try:
            found = read_tables(session.query, [self.schema])
        finally:
            session.close()
        return next(each for each in found if each.name.table == table)

    def _rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        target = self._targets[table]
        columns = {
            each.name: pa.array([row.get(each.name) for row in rows], arrow_type(each.type))
            for each in target.schema.delivered
        }
        if target.form.soft_delete:
            columns[ROW_DELETED] = pa.array([row.get(ROW_DELETED, False) for row in rows])
        return pa.table(columns)

    def _apply(self, table: str, rows: pa.Table, op: str) -> None:
        if not rows.num_rows:
            return
        self._limit += 1
        self._engine.apply(
            TableWrite(
                target=self._targets[table],
                checkpoint=Ts(self._limit - 1),
                limit=Ts(self._limit),
                changes=rows.append_column(OP_COLUMN, pa.array([op] * rows.num_rows)),
                user_metadata="{}",
                before_commit=lambda: None,
            )
        )
