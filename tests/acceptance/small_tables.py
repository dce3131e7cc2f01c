"""Small tables by hand, with small timestamps, for claims about single messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.acceptance.one_process import Lives, NewEngine
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Op,
    Row,
    Table,
    encode_change,
    encode_ddl,
    encode_watermark,
)
from tests.shop.feed import Message
from tests.shop.tables import create_table

PARTITIONS = 3
MakeLives = Callable[..., Lives]
KEYLESS = Table(
    schema="shop", name="log", columns=(Column("x", "int"),), primary_key=(), handle_key=()
)
CREATE_KEYLESS = Ddl("shop", "log", "CREATE", "CREATE TABLE `shop`.`log` (`x` INT)")


@contextmanager
def new_topics(new_engine: NewEngine, broker: KafkaBroker, folder: Path) -> Iterator[MakeLives]:
    """Makes lives over new topics of so many partitions each."""
    topics: list[str] = []

    def make(*counts: int, **settings: Any) -> Lives:
        partitions = counts or (PARTITIONS,)
        names = [f"path-{uuid4().hex[:8]}" for _ in partitions]
        for name, count in zip(names, partitions, strict=True):
            broker.create_topic(name, partitions=count)
        topics.extend(names)
        return Lives(new_engine, broker, folder, topics=names, **settings)

    yield make
    for topic in topics:
        broker.delete_topic(topic)


def small_table(name: str) -> Table:
    columns = (Column("id", "bigint"), Column("n", "int"), Column("v", "varchar(20)"))
    return Table(schema="shop", name=name, columns=columns, primary_key=("id",), handle_key=("id",))


A, B, IDLE = small_table("a"), small_table("b"), small_table("idle")


def row(ts: int, id: int, v: str, *, table: Table = A, op: Op = "INSERT", n: int = 0) -> bytes:
    data: Row = {"id": id, "n": n, "v": v}
    old = data if op == "UPDATE" else None
    return encode_change(Change(table=table, op=op, row=data, old=old), ts, 0)


def key_only(message: bytes, **tidb: Any) -> bytes:
    """A row as TiCDC sends it with its key alone: a DELETE where it is told so
    (``delete-only-output-handle-key-columns``), and with ``onlyHandleKey`` any large row."""
    fields = json.loads(message)
    for part in ("mysqlType", "sqlType"):
        fields[part] = {"id": fields[part]["id"]}
    fields["data"] = [{"id": fields["data"][0]["id"]}]
    fields["_tidb"] |= tidb
    return json.dumps(fields, separators=(",", ":")).encode()


def made(ts: int, *tables: Table) -> list[Message]:
    return [(0, None, encode_ddl(create_table(table), ts + n, 0)) for n, table in enumerate(tables)]


def marks(ts: int, partitions: int = PARTITIONS) -> list[Message]:
    return [(partition, None, encode_watermark(ts, 0)) for partition in range(partitions)]


def values(lives: Lives, table: str) -> dict[int, str]:
    return {found["id"]: found["v"] for found in lives.rows(table)}


def advised_ts(refusal: Exception) -> int:
    """The ts from which on a start where Kafka has deleted messages is accepted, as it says."""
    (ts,) = re.findall(r"--start-ts (\d+) at least", str(refusal))
    return int(ts)
