"""Binlogs of real servers: what some statements write, read from the server's own files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coordination.model import TableName, Ts
from streaming.protocols.contract import DATA, OLD, Block, Kind, WantedTable
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.charsets import Charset, charsets_of
from streaming.source.binlog.format.control.transactions import Transactions, transactions
from streaming.source.binlog.format.events import Event, Events, event_at, events_of
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import first_of

MAGIC = b"\xfebin"
# ``ID`` of information_schema.COLLATIONS is NULL for MariaDB's collations of many character sets.
_COLLATIONS = {
    True: "SELECT a.ID, a.CHARACTER_SET_NAME, s.MAXLEN FROM "
    "information_schema.COLLATION_CHARACTER_SET_APPLICABILITY a "
    "JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME)",
    False: "SELECT c.ID, c.CHARACTER_SET_NAME, s.MAXLEN FROM information_schema.COLLATIONS c "
    "JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME) WHERE c.ID IS NOT NULL",
}


def event_starts(raw: bytes) -> np.ndarray:
    """Where the events begin in the bytes of a file."""
    at, found = len(MAGIC) if raw.startswith(MAGIC) else 0, []
    while at + 19 <= len(raw):
        found.append(at)
        at += struct.unpack_from("<I", raw, at + 9)[0]
    assert at == len(raw)
    return np.array(found, np.int64)


@dataclass(frozen=True)
class Binlog:
    """``data``: a binlog's file, or events alone."""

    data: bytes
    is_mariadb: bool
    charsets: Mapping[int, Charset] = field(default_factory=dict)
    checksum: bool = True

    @property
    def at(self) -> np.ndarray:
        return event_starts(self.data)

    def each(self) -> list[Event]:
        return [event_at(self.data, at, checksum=self.checksum) for at in self.at.tolist()]

    def events(self) -> Events:
        events, bad = events_of(self.data, self.at, checksum=self.checksum, checks_crc=True)
        assert not bad
        return events

    def transactions(self) -> Transactions:
        return transactions(self.events())

    def slice(self) -> Slice:
        """All events; the commit-ts is the number of the transaction, from 1."""
        at, found = self.at, self.transactions()
        commit_ts = np.searchsorted(found.first, np.arange(len(at)), side="right")
        return Slice(
            data=self.data,
            at=at,
            position=1 << 40 | at,
            commit_ts=commit_ts.astype(np.int64),
            checksum=self.checksum,
            is_mariadb=self.is_mariadb,
            charsets=self.charsets,
        )


def made_event(kind: int, body: bytes, *, checksum: bool = True) -> bytes:
    """A whole event."""
    size = 19 + len(body) + (4 if checksum else 0)
    raw = struct.pack("<IBIIIH", 1000, kind, 7, size, 99, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw)) if checksum else raw


@contextmanager
def recorded(server: DatabaseServer) -> Iterator[list[Binlog]]:
    """In the list is, afterwards, the binlog of the statements that ran meanwhile."""
    found: list[Binlog] = []
    server.execute("FLUSH BINARY LOGS")
    file = server.query("SHOW BINARY LOGS")[-1][0]
    yield found
    server.execute("FLUSH BINARY LOGS")
    raw = (server.folder / "data" / file).read_bytes()
    found.append(Binlog(raw, server.edition.is_mariadb, charsets(server)))


def written(server: DatabaseServer, *statements: str, database: str | None = None) -> Binlog:
    """The binlog of some statements of one session."""
    with recorded(server) as found:
        server.execute(*statements, database=database)
    return found[0]


def charsets(server: DatabaseServer) -> Mapping[int, Charset]:
    version = server.query("SELECT VERSION()")[0][0]
    return charsets_of(server.query(_COLLATIONS[version.startswith("11.")]))


def wanted(*names: str, key: tuple[str, ...] | None = None) -> dict[TableName, WantedTable]:
    """``schema.table``."""
    return {TableName(*name.split(".")): WantedTable(above_ts=Ts(0), key=key) for name in names}


def blocks_of(
    binlog: Binlog, *names: str, key: tuple[str, ...] | None = None, checks_crc: bool = True
) -> list[Block]:
    given = wanted(*names, key=key)
    return list(row_blocks(binlog.slice(), "0", given, checks_crc=checks_crc))


def table_of(binlog: Binlog, name: str, key: tuple[str, ...] | None = None) -> pa.Table:
    """The body of the one block of rows that the table has."""
    blocks = [b for b in blocks_of(binlog, name, key=key) if b.name == TableName(*name.split("."))]
    assert [block.kind for block in blocks] == [Kind.ROW]
    return blocks[0].table()


def rows_of(table: pa.Table, field_name: str = DATA) -> list[dict[str, object] | None]:
    """``data`` or ``old``, row by row."""
    assert field_name in (DATA, OLD)
    return table[field_name].to_pylist()


def on(*editions: Edition) -> pytest.MarkDecorator:
    """Parametrizes ``server`` of format/conftest.py; further editions are ``more``."""
    found = editions if len(editions) == 1 else first_of(editions, [MARIADB_10_11, MYSQL_9_7])
    return pytest.mark.parametrize("server", found, ids=lambda edition: edition.name, indirect=True)


def rows_by_place(blocks: Iterable[Block]) -> list[tuple[TableName, dict[str, Any]]]:
    """The rows of row blocks, in their order. In ``d.odd`` whether a cell is a text or a moment
    depends on the others in its block: these are left out."""
    found = []
    for block in blocks:
        assert block.kind == Kind.ROW
        for row in block.table().to_pylist():
            row.setdefault("old", None)
            for image in (row["data"], row["old"]):
                if block.name == TableName("d", "odd") and image:
                    image |= dict.fromkeys("cde")
            found.append((block.name, row))
    return found
