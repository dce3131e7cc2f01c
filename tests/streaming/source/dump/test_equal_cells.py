"""A row that is copied and the same row out of the binlog have equal cells, in type and in bits."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from streaming.protocols.contract import DATA
from streaming.source.dump.session import Session
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import MARIADB_FIRST
from tests.streaming.source.binlog import binlogs
from tests.streaming.source.dump.copied import table_of, to
from tests.streaming.source.dump.test_types import NO_DATES, TYPES, rows_of

pytestmark = pytest.mark.mariadb


def floats(count: int, form: str, seed: int) -> list[str]:
    """Random bits as numbers of a server."""
    chance = random.Random(seed)
    size = struct.calcsize(form)
    found = [struct.unpack(form, chance.randbytes(size))[0] for _ in range(count)]
    return [repr(value) for value in found if abs(value) < 3e38]


def texts(codec: str, codes: Sequence[int], width: int) -> list[str]:
    """Characters of a set as literals of their bytes, those that Python knows too."""
    found = []
    for code in codes:
        raw = code.to_bytes(width, "big")
        try:
            raw.decode(codec)
        except UnicodeDecodeError:
            continue
        found.append(raw)
    return [f"0x{b''.join(found[at : at + 60]).hex()}" for at in range(0, len(found), 60)]


DOUBLE_BYTES = [high << 8 | low for high in range(0x81, 0xFF) for low in range(0x40, 0xFF)]
MORE = {
    "FLOAT": floats(300, "<f", 1),
    "DOUBLE": [*floats(300, "<d", 2), "-0e0", "5e-324"],
    "DOUBLE(30,10)": ["0.1", "1234567890.1234567891", "-0.0000000001", "99999999999.9999999999"],
    "VARCHAR(60) CHARACTER SET latin1": texts("latin-1", range(1, 256), 1),
    "VARCHAR(60) CHARACTER SET cp1251": texts("cp1251", range(1, 256), 1),
    "VARCHAR(60) CHARACTER SET gbk": texts("gbk", DOUBLE_BYTES, 2),
    "VARCHAR(60) CHARACTER SET sjis": texts("shift_jis", DOUBLE_BYTES, 2),
    "VARCHAR(60) CHARACTER SET utf16": ["'a😀€'", "'\\0'"],
    "VARBINARY(300)": [f"0x{bytes(range(256)).hex()}"],
    "BIT(64)": [str(random.Random(3).getrandbits(64)) for _ in range(50)],
    "DECIMAL(40,20)": [f"{n}.{n:020d}" for n in (0, 1, 10**19, 10**18 + 7)],
    "TIME(6)": [f"'{sign}{hour}:59:01.{n:06d}'" for sign in ("", "-") for hour in ("00", "838")
                for n in (0, 1, 999_999)],
    "DATETIME(6)": ["'0001-01-01 00:00:00.000001'", "'1582-10-10'", "'1969-12-31 23:59:59.9'"],
    "DATE": ["'0001-01-01'", "'0000-01-01'", "'1582-10-10'"],
    "GEOMETRY": ["ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))', 4326)", "POINT(1, 2)"],
    "JSON": [
        "'{}'", "'[]'", "'null'", "'\"ü\\\\u0001\"'", "'[1.5, -0.1, 1e300, 18446744073709551615]'",
        "'{\"b\": {\"a\": [true, false, null]}, \"a\": \"\"}'",
    ],
}  # fmt: skip
# (definition, literals): each is a table
COLUMNS = [
    *((definition, [literal for literal, _ in values]) for definition, values in TYPES.items()),
    *MORE.items(),
    *((definition, [literal for literal, _ in values]) for definition, values in NO_DATES.items()),
    ("DATE", ["'2023-02-31'"]),  # by ALLOW_INVALID_DATES
    ("DATETIME", ["'2023-02-29 01:02:03'"]),
]


@dataclass(frozen=True)
class Filled:
    """A server with a table for each of COLUMNS, and the binlog of what was inserted."""

    server: DatabaseServer
    binlog: binlogs.Binlog


@pytest.fixture(params=MARIADB_FIRST, ids=lambda edition: edition.name, scope="module")
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    with DatabaseServer(request.param) as server:
        server.execute("CREATE DATABASE t CHARACTER SET utf8mb4")
        with (
            binlogs.recorded(server) as found,
            server.connect(database="t", charset="utf8mb4") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+02:00'")
            for number, (definition, literals) in enumerate(COLUMNS):
                cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {definition} NULL)")
                rows = ", ".join(f"({n}, {value})" for n, value in enumerate([*literals, "NULL"]))
                cursor.execute(f"INSERT INTO t{number} VALUES {rows}")
        yield Filled(server, found[0])


@pytest.mark.parametrize("number", range(len(COLUMNS)), ids=lambda n: f"{n}-{COLUMNS[n][0]}")
def test_a_copied_cell_is_the_binlogs(filled: Filled, number: int):
    streamed = binlogs.table_of(filled.binlog, f"t.t{number}", key=("id",)).column(DATA)
    session = Session(to(filled.server))
    try:
        copied = rows_of(session, table_of(filled.server, "t", f"t{number}")).combine_chunks()
    finally:
        session.close()
    for name in ("id", "v"):
        one = copied.column(name).combine_chunks()
        other = streamed.combine_chunks().field(name)
        assert one.type == other.type
        if pa.types.is_floating(one.type):  # -0.0 is equal to 0.0, but not in its bits
            bits = pa.int32() if one.type == pa.float32() else pa.int64()
            one, other = one.view(bits), other.view(bits)
        assert one.equals(other), f"{one} is not {other}"
