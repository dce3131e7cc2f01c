"""What the tests of the copy share: a connection, a copy, its rows beside the server's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from conf.sources.binlog_uri import BinlogSettings
from streaming.source.binlog.database import connected
from streaming.source.dump.copy_tables import CopiedTable, copy_tables
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceTable, read_tables
from tests.services.database_server import DatabaseServer


def connecting(host: str, port: int, user: str = "root") -> Callable[[], Any]:
    return lambda: connected(BinlogSettings(host=host, port=port, user=user))


def to(server: DatabaseServer, user: str = "root") -> Callable[[], Any]:
    return connecting(server.host, server.port, user)


def tables_of(server: DatabaseServer, schema: str) -> list[SourceTable]:
    session = Session(to(server))
    try:
        return read_tables(session.query, [schema])
    finally:
        session.close()


def table_of(server: DatabaseServer, schema: str, name: str) -> SourceTable:
    (found,) = [each for each in tables_of(server, schema) if each.name.table == name]
    return found


def one_copy(
    server: DatabaseServer, table: SourceTable, folder: Path, **settings: Any
) -> CopiedTable:
    (copied,) = copy_tables(to(server), [table], folder, **settings)
    return copied


def rows_of(copied: CopiedTable) -> pa.Table:
    parts = [pq.ParquetFile(file).read() for file in copied.files]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def main(host: str, port: str, schema: str, folder: str, rows: str) -> None:
    """A copy in a process that can be killed."""
    session = Session(connecting(host, int(port)))
    tables = read_tables(session.query, [schema])
    for copied in copy_tables(
        connecting(host, int(port)), tables, Path(folder), rows_per_chunk=int(rows), connections=2
    ):
        print(copied.table.name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
