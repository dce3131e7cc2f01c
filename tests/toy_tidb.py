"""A TiDB and a TiCDC to play with (docs/tutorial.md): SQL in, canal-json in a Kafka topic out.

``python -m tests.toy_tidb serve`` starts a broker with the topic ``shop``, and sends a watermark
each second. ``python -m tests.toy_tidb sql "INSERT …"`` runs one statement in it. SQLite keeps the
rows; the difference that a statement makes to them is sent as TiCDC sends it. A statement that
begins with ``/* filtered */`` is run and not sent, as if TiCDC's filter had left it out.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Client, Listener
from typing import Any

from coordination.model import time_tso
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Table,
    encode_change,
    encode_ddl,
    encode_watermark,
)

TOPIC = "shop"
KAFKA_PORT = int(os.environ.get("TOY_KAFKA_PORT", "9092"))
SQL_ADDRESS = ("127.0.0.1", int(os.environ.get("TOY_SQL_PORT", "4000")))
FILTERED = "/* filtered */"
MODIFY = re.compile(r"ALTER TABLE (\w+) MODIFY COLUMN (\w+) ([\w()]+)", re.IGNORECASE)
DDL = re.compile(r"(CREATE|ALTER|DROP) TABLE (\w+)", re.IGNORECASE)

Rows = dict[tuple[Any, ...], dict[str, Any]]  # by key


class ToyTiDB:
    """Tables in SQLite's memory, and the topic that their changes are sent to."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._rows = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._modified: dict[tuple[str, str], str] = {}  # SQLite cannot change a type, and need not
        self._one_at_a_time = threading.Lock()
        self._last_ts = 0

    def run(self, statement: str) -> str:
        """What a client is shown."""
        is_sent = not statement.startswith(FILTERED)
        statement = statement.removeprefix(FILTERED).strip().rstrip(";")
        with self._one_at_a_time:
            if ddl := DDL.match(statement):
                self._define(statement)
                kind = "CREATE" if ddl[1].upper() == "CREATE" else "ALTER"
                if is_sent:
                    self._send(encode_ddl(Ddl(TOPIC, ddl[2], kind, statement), *self._now()))
                return "ok"
            before = self._all()
            found = self._rows.execute(statement).fetchall()
            changes = list(self._changes(before, self._all()))
            ts, build_ms = self._now()  # one transaction has one commit-ts
            self._send(*(encode_change(each, ts, build_ms) for each in changes))
        shown = "\n".join("\t".join(map(str, row)) for row in found)
        return shown or f"ok, {len(changes)} rows"

    def send_watermark(self) -> None:
        """All that was sent is at or below it: both happen under one lock."""
        with self._one_at_a_time:
            self._send(encode_watermark(*self._now()))

    def _define(self, statement: str) -> None:
        if modified := MODIFY.match(statement):
            self._modified[modified[1], modified[2]] = modified[3]
        else:
            self._rows.execute(statement)

    def _now(self) -> tuple[int, int]:
        now = datetime.now(UTC)
        self._last_ts = max(time_tso(now), self._last_ts + 1)
        return self._last_ts, int(now.timestamp() * 1000)

    def _send(self, *values: bytes) -> None:
        self._broker.produce(TOPIC, [(0, None, value) for value in values])

    def _all(self) -> dict[Table, Rows]:
        names = self._rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {(table := self._table(name)): self._rows_of(table) for (name,) in names.fetchall()}

    def _table(self, name: str) -> Table:
        described = self._rows.execute(f"PRAGMA table_info({name})").fetchall()
        columns = tuple(
            Column(column, self._modified.get((name, column), type_).lower())
            for _, column, type_, _, _, _ in described
        )
        key = tuple(column for _, column, _, _, _, place in described if place)
        return Table(TOPIC, name, columns, key, key)

    def _rows_of(self, table: Table) -> Rows:
        names = [column.name for column in table.columns]
        found = self._rows.execute(f"SELECT * FROM {table.name}").fetchall()
        rows = (dict(zip(names, row, strict=True)) for row in found)
        return {tuple(row[each] for each in table.handle_key): row for row in rows}

    def _changes(self, before: dict[Table, Rows], after: dict[Table, Rows]) -> Iterator[Change]:
        old = {table.name: rows for table, rows in before.items()}
        for table, rows in after.items():
            was = old.get(table.name, {})
            for key in was.keys() - rows.keys():
                yield Change(table=table, op="DELETE", row=was[key])
            for key, row in rows.items():
                if key not in was:
                    yield Change(table=table, op="INSERT", row=row)
                elif row != was[key]:
                    yield Change(table=table, op="UPDATE", row=row, old=was[key])


def serve() -> None:
    """Until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ended = threading.Event()
    with suppress(KeyboardInterrupt), KafkaBroker(port=KAFKA_PORT) as broker:
        broker.create_topic(TOPIC, partitions=1)
        tidb = ToyTiDB(broker)

        def send_watermarks() -> None:
            while not ended.wait(1):
                tidb.send_watermark()

        sender = threading.Thread(target=send_watermarks)
        sender.start()
        try:
            with Listener(SQL_ADDRESS) as listener:
                print(f"the topic {TOPIC} is at {broker.bootstrap}", flush=True)
                while True:
                    with listener.accept() as client:
                        try:
                            client.send(tidb.run(client.recv()))
                        except sqlite3.Error as error:
                            client.send(f"error: {error}")
        finally:
            ended.set()
            sender.join()


def main() -> None:
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["sql", statement]:
            with Client(SQL_ADDRESS) as server:
                server.send(statement)
                print(server.recv())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
