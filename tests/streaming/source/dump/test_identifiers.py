"""UUID, INET4 and INET6 of MariaDB: copied and streamed cells are equal, and become the text with
which the server answers."""

from __future__ import annotations

import ipaddress
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sinks.types.casts.columns import cast_column
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastRules
from streaming.protocols.contract import DATA
from streaming.source.dump.session import Session
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import second
from tests.streaming.source.binlog import binlogs
from tests.streaming.source.dump import copied
from tests.streaming.source.dump.test_types import rows_of

DICE = random.Random(7)
RULES = CastRules(time_zone="UTC", zero_date="fail")


def address(words: list[int]) -> str:
    return str(ipaddress.IPv6Address(b"".join(word.to_bytes(2) for word in words)))


LITERALS = {
    "uuid": [
        *(str(uuid.UUID(int=DICE.getrandbits(128), version=n % 5 + 1)) for n in range(200)),
        *("8b0fff12-e99e-11f1-b2c5-02fc00000001", "ffffffff-ffff-7fff-bfff-000000000000"),
        *("00000000-0000-0000-0000-000000000000", "00112233445516770899AABBCCDDEEFF"),
    ],
    "inet4": [
        *(str(ipaddress.IPv4Address(DICE.getrandbits(32))) for _ in range(50)),
        *("0.0.0.0", "255.255.255.255", "1.2.0.0"),
    ],
    "inet6": [
        *(address([DICE.choice((0, 0, 1, 0xFFFF, 0xAB0)) for _ in range(8)]) for _ in range(400)),
        *(address([0] * 5 + [DICE.choice((0, 0xFFFF)), n, n]) for n in (0, 1, 0x102, 0xFFFF)),
        *("::", "::1", "2001:db8::", "::1.2.3.4", "::ffff:1.2.3.4", "::ffff:0:0"),
    ],
}  # fmt: skip


def cast(cells: pa.Array, name: str) -> pa.Array:
    found = cast_column(cells, Column(name="v", type=MySQLType(name=name)), RULES, are_typed=True)
    assert found.failed is None
    return found.values


@pytest.fixture(
    scope="module", params=[MARIADB_10_11, *second(MARIADB_11_8)], ids=lambda edition: edition.name
)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        running.execute("CREATE DATABASE t CHARACTER SET utf8mb4")
        yield running


@pytest.mark.mariadb
@pytest.mark.parametrize("name", LITERALS)
def test_cells_and_texts(server: DatabaseServer, name: str) -> None:
    rows = ", ".join(f"({n}, '{value}')" for n, value in enumerate(LITERALS[name]))
    binlog = binlogs.written(
        server,
        f"CREATE TABLE t.{name} (id INT PRIMARY KEY, v {name} NULL)",
        f"INSERT INTO t.{name} VALUES {rows}, (-1, NULL)",
    )
    streamed = binlogs.table_of(binlog, f"t.{name}", key=("id",))
    session = Session(copied.to(server))
    try:
        selected = rows_of(session, copied.table_of(server, "t", name)).combine_chunks()
    finally:
        session.close()
    there = dict(server.query(f"SELECT id, v FROM t.{name}"))
    for table in (streamed.column(DATA).combine_chunks().flatten(), selected.columns):
        ids, cells = (pa.chunked_array(each).combine_chunks() for each in table)
        assert cells.type == pa.binary()
        assert dict(zip(ids.to_pylist(), cast(cells, name).to_pylist(), strict=True)) == there


@pytest.mark.mariadb
@pytest.mark.parametrize("name", LITERALS)
def test_a_copy_by_such_a_key(server: DatabaseServer, tmp_path: Path, name: str) -> None:
    rows = ", ".join(f"('{value}')" for value in LITERALS[name])
    server.execute(
        f"CREATE TABLE t.k_{name} (k {name} PRIMARY KEY)", f"INSERT IGNORE t.k_{name} VALUES {rows}"
    )
    table = copied.table_of(server, "t", f"k_{name}")
    found = copied.rows_of(copied.one_copy(server, table, tmp_path, rows_per_chunk=20))
    values = cast(found["k"].combine_chunks(), name).to_pylist()
    assert sorted(values) == sorted(key for (key,) in server.query(f"SELECT k FROM t.k_{name}"))


def test_texts_of_defaults_and_what_is_none() -> None:
    assert cast(pa.array(["00112233445566778899AABBCCDDEEFF", None]), "uuid").to_pylist() == [
        "00112233-4455-6677-8899-aabbccddeeff",
        None,
    ]
    assert cast(pa.array(["0:0:0::1"]), "inet6").to_pylist() == ["::1"]
    for name, cells in (("uuid", ["x"]), ("inet4", ["1.2.3"]), ("inet6", [b"\0" * 4])):
        found = cast_column(
            pa.array([*cells, None]), Column(name="v", type=MySQLType(name=name)), RULES
        )
        assert found.values.to_pylist() == [None, None]
        assert found.failed is not None
        assert found.failed.to_pylist() == [True, False]
