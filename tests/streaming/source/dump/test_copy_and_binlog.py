"""The copy, and the binlog since before its first chunk, by key: the table as the server has it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from streaming.protocols.contract import DATA, OLD, OP_DELETE, Kind
from streaming.source.dump.moment import SnapshotPosition, settled_position
from streaming.source.dump.session import Session
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog import binlogs
from tests.streaming.source.dump.copied import one_copy, rows_of, table_of, to

pytestmark = pytest.mark.mariadb

ROWS = 2_000
KEYS: dict[str, Callable[[int], object]] = {"INT": lambda n: n, "VARCHAR(20)": lambda n: f"Key {n}"}


def writes(server: DatabaseServer, key: Callable[[int], object], seed: int, ended: Any) -> None:
    """Transactions of a few changes of any kind, keys changed and given away among them."""
    chance = random.Random(seed)
    with server.connect(database="copied", autocommit=False) as connection:
        cursor = connection.cursor()
        while not ended.is_set():
            one, other = (key(chance.randrange(int(ROWS * 1.2))) for _ in range(2))
            statements = [
                ("REPLACE INTO t VALUES (%s, %s)", (one, chance.randrange(10**6))),
                ("UPDATE t SET v = v + 1 WHERE a = %s", (one,)),
                ("DELETE FROM t WHERE a = %s", (one,)),
                ("UPDATE IGNORE t SET a = %s WHERE a = %s", (one, other)),
            ]
            try:
                for _ in range(chance.randint(1, 5)):
                    cursor.execute(*chance.choice(statements))
                if chance.random() < 0.9:
                    connection.commit()
                else:
                    connection.rollback()
            except pymysql.err.OperationalError:  # a deadlock
                connection.rollback()


def after(server: DatabaseServer, at: SnapshotPosition) -> binlogs.Binlog:
    """The one file's events from there on."""
    raw = (server.folder / "data" / at.file).read_bytes()
    return binlogs.Binlog(raw[at.offset :], server.edition.is_mariadb, binlogs.charsets(server))


@pytest.mark.parametrize("definition", KEYS)
@pytest.mark.seeds(1, 2)
def test_a_copy_and_the_binlog_since_are_the_table(
    server: DatabaseServer, schema: str, tmp_path: Path, definition: str, seed: int
):
    key = KEYS[definition]
    server.execute(f"CREATE TABLE t (a {definition} PRIMARY KEY, v INT)", database=schema)
    server.insert(f"{schema}.t", [(key(n), n) for n in range(ROWS)])
    server.execute("FLUSH BINARY LOGS")
    ended = threading.Event()
    writers = [
        threading.Thread(target=writes, args=(server, key, 10 * seed + n, ended)) for n in range(3)
    ]
    for each in writers:
        each.start()
    try:
        table = table_of(server, schema, "t")
        session = Session(to(server))
        begin = settled_position(session, [table.name])
        session.close()
        copied = one_copy(server, table, tmp_path, rows_per_chunk=50, connections=3)
    finally:
        ended.set()
        for each in writers:
            each.join()
    found = {row["a"]: row["v"] for row in rows_of(copied).to_pylist()}
    changes = [
        change
        for block in binlogs.blocks_of(after(server, begin), f"{schema}.t", key=("a",))
        if block.kind is Kind.ROW and block.name == table.name
        for change in block.table().to_pylist()
    ]
    changes.sort(key=lambda change: (change["commit_ts"], change["position"], change["index"]))
    assert len(changes) > 50
    for change in changes:
        old = change.get(OLD)
        if old is not None:
            found.pop(old["a"], None)
        found.pop(change[DATA]["a"], None)
        if change["op"] != OP_DELETE:
            found[change[DATA]["a"]] = change[DATA]["v"]
    assert found == dict(server.query(f"SELECT a, v FROM {schema}.t"))
