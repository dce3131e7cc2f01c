"""Every type at its extremes: the cells of the binlog are those of the server's own SELECT."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streaming.protocols.contract import DATA, wire_types
from tests.services.database_editions import EDITIONS
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog.binlogs import recorded, table_of

pytestmark = pytest.mark.mariadb

TEXT = "CAST({c} AS CHAR)"
HEX = "HEX({c})"
NUMBER = "{c} + 0"
SESSION = "SET sql_mode = '', time_zone = '+00:00'"


@dataclass(frozen=True)
class Case:
    """A column with these values. ``shown``: how SELECT is to show it; ``type``: of the cells;
    ``wire``: its type in a block, if that is not the definition."""

    definition: str
    type: pa.DataType
    values: Sequence[str]
    shown: str = TEXT
    wire: str = ""

    @property
    def wire_type(self) -> str:
        return self.wire or self.definition


def integers(definition: str, kind: pa.DataType, bits: int) -> list[Case]:
    half = 1 << (bits - 1)
    unsigned = getattr(pa, f"u{kind}")()
    return [
        Case(definition, kind, [str(-half), "-1", "0", "1", str(half - 1)]),
        Case(f"{definition} unsigned", unsigned, ["0", str(half), str(2 * half - 1)]),
    ]


STRING, BINARY = pa.string(), pa.binary()
US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
NINES = "9" * 35 + "." + "9" * 30
CASES = [
    *integers("tinyint", pa.int8(), 8),
    *integers("smallint", pa.int16(), 16),
    *integers("mediumint", pa.int32(), 24),
    *integers("int", pa.int32(), 32),
    *integers("bigint", pa.int64(), 64),
    Case("year", pa.int16(), ["0", "1901", "2024", "2155"], NUMBER),
    Case("tinyint unsigned", pa.uint8(), ["200"]),  # behind a YEAR: it has a sign bit, too
    Case("bit(1)", pa.uint64(), ["0", "1"], NUMBER),
    Case("bit(12)", pa.uint64(), ["0", "4095", "2730"], NUMBER),
    Case("bit(64)", pa.uint64(), ["0", "18446744073709551615", "1"], NUMBER),
    Case("float", pa.float32(), ["0", "-1.5", "3333333.25", "3.4028235e38", "1e-38"], "{c} + 0e0"),
    Case("double", pa.float64(), ["0", "-1.5", "1e300", "1.7976931348623157e308", "5e-324", "0.1"]),
    Case("float unsigned", pa.float32(), ["0.5"], "{c} + 0e0"),
    Case("decimal(65,30)", pa.decimal256(65, 30), [NINES, f"-{NINES}", "0", f"-0.{'0' * 29}1"]),
    Case("decimal(30,30)", pa.decimal128(30, 30), [f"0.{'123456789' * 3}012", f"-0.{'0' * 29}1"]),
    Case("decimal(38,0)", pa.decimal128(38, 0), ["9" * 38, "-" + "9" * 38, "1" + "0" * 37]),
    Case("decimal(39,0)", pa.decimal256(39, 0), ["9" * 39, "-" + "9" * 39]),
    Case("decimal(18,9)", pa.decimal128(18, 9), ["999999999.999999999", "-0.000000001"]),
    Case("decimal(19,9)", pa.decimal128(19, 9), ["9999999999.999999999", "-1.000000001"]),
    Case("decimal(5,0) unsigned", pa.decimal128(5, 0), ["99999", "0"]),
    Case("decimal(1,1)", pa.decimal128(1, 1), ["0.9", "-0.9"]),
    Case("date", pa.date32(), ["'1000-01-01'", "'1969-12-31'", "'2024-02-29'", "'9999-12-31'"]),
    Case("date", STRING, ["'0000-00-00'", "'2024-00-10'", "'2024-03-00'", "'2024-02-29'"]),
    Case("date", STRING, ["'0000-05-03'"]),
    Case("datetime", STRING, ["'0000-12-31 23:59:59'"]),
    Case("datetime", US, ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"]),
    Case("datetime(6)", US, ["'1000-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"]),
    Case("datetime(1)", US, ["'2024-01-01 00:00:00.9'"]),
    Case("datetime(3)", STRING, ["'0000-00-00'", "'2024-00-10 01:02:03.5'", "'2024-01-01 1:2:3'"]),
    Case("datetime", STRING, ["'2024-00-10 00:00:00'", "'9999-12-31 23:59:59'"]),
    Case(
        "timestamp NULL", UTC, ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"], TEXT, "timestamp"
    ),
    Case("timestamp(6) NULL", UTC, ["'2024-06-30 12:00:00.123456'"], TEXT, "timestamp(6)"),
    Case("timestamp(2) NULL", STRING, ["0", "'2024-06-30 12:00:00.12'"], TEXT, "timestamp(2)"),
    Case("time", pa.duration("us"), ["'838:59:59'", "'-838:59:59'", "'-00:00:01'", "'00:00:00'"]),
    Case("time(3)", pa.duration("us"), ["'-00:00:00.001'", "'-12:34:56.789'", "'23:59:59.999'"]),
    Case("time(6)", pa.duration("us"), ["'-838:59:58.999999'", "'00:00:00.000001'"]),
    Case("time(1)", pa.duration("us"), ["'-00:00:00.5'", "'-01:00:00.0'"]),
    Case("char(10)", STRING, ["''", "'a '", "'中文ß😀'"]),
    Case("char(255)", STRING, ["''", f"'{'😀' * 255}'"]),
    Case("varchar(30)", STRING, ["''", "'a '", f"'{'ß' * 30}'"]),
    Case("varchar(300)", STRING, [f"'{'x' * 300}'", "''"]),
    Case("tinytext", STRING, ["'a'"]),
    Case("text", STRING, ["''", f"'{'y' * 300}'"]),
    Case("mediumtext", STRING, [f"'{'z' * 70_000}'"]),
    Case("longtext", STRING, ["'a'"]),
    Case(
        "varchar(20) character set latin1",
        STRING,
        ["'é€'", "x'8081FF'", "'a'"],
        TEXT,
        "varchar(20)",
    ),
    Case("varchar(20) character set gbk", STRING, ["'中文'", "''"], TEXT, "varchar(20)"),
    Case("varchar(20) character set utf16", STRING, ["'中😀'", "'a'"], TEXT, "varchar(20)"),
    Case("varchar(20) character set koi8r", STRING, ["'привет'"], TEXT, "varchar(20)"),
    Case("char(4) character set utf8mb3", STRING, ["'中文'"], TEXT, "char(4)"),
    Case("text character set cp1251", STRING, ["'Привет'"], TEXT, "text"),
    Case("binary(10)", BINARY, ["''", "'ab'", "x'00FF00'", "'0123456789'"], HEX),
    Case("varbinary(40)", BINARY, ["''", "x'00FF00'"], HEX),
    Case("tinyblob", BINARY, ["x'00'"], HEX),
    Case("blob", BINARY, ["''", "x'00FF'"], HEX),
    Case("mediumblob", BINARY, ["x'00FF'"], HEX),
    Case("longblob", BINARY, ["x'00FF'"], HEX),
    Case("varchar(5) character set binary", BINARY, ["x'00FF'"], HEX, "varbinary(5)"),
    Case("enum('a','é','中')", STRING, ["'a'", "'中'", "''", "99"]),
    Case("enum('x','ö') character set latin1", STRING, ["'ö'"], TEXT, "enum('x','ö')"),
    Case("set('x','y','it''s')", STRING, ["''", "'x,it''s'", "7"]),
    Case(f"set({','.join(repr(f'v{n}') for n in range(64))})", STRING, ["'v0,v63'", "'v8'"]),
    Case(f"enum({','.join(repr(f'v{n}') for n in range(300))})", STRING, ["'v0'", "'v299'"]),
    Case("geometry", BINARY, ["st_geomfromtext('point(1 2)')"], HEX),
    Case("varchar(7)", STRING, ["'behind a geometry'", "'é'"]),
]
ROWS = 1 + max(len(case.values) for case in CASES)  # the last row is all NULL


@pytest.fixture(params=EDITIONS, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest):
    with DatabaseServer(request.param) as running:
        yield running


def test_all_cells_are_those_of_the_servers_select(server: DatabaseServer):
    """Read as the new rows of INSERTs, and as the old and new rows of UPDATEs."""
    definitions = ", ".join(f"c{n} {case.definition}" for n, case in enumerate(CASES))
    created = f"CREATE TABLE d.t (id INT PRIMARY KEY, {definitions}) CHARACTER SET utf8mb4"
    with server.database("d"), recorded(server) as found:
        server.execute(SESSION, created)
        with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
            cursor.execute(SESSION)
            for row in range(ROWS):
                values = [case.values[row] if row < len(case.values) else "NULL" for case in CASES]
                cursor.execute(f"INSERT INTO d.t VALUES ({row}, {', '.join(values)})")
            shown = [case.shown.format(c=f"c{n}") for n, case in enumerate(CASES)]
            cursor.execute(f"SELECT {', '.join(shown)} FROM d.t ORDER BY id")
            expected = list(zip(*cursor.fetchall(), strict=True))
            cursor.execute("UPDATE d.t SET id = -1 - id ORDER BY id DESC")
    body = table_of(found[0], "d.t")
    inserts, updates = body.slice(0, ROWS), body.slice(ROWS)
    types = wire_types(body.schema)
    for n, case in enumerate(CASES):
        name = f"c{n}"
        cells = inserts[DATA].combine_chunks().field(name)
        assert cells.type == case.type, case
        assert types[name].replace(" ", "") == case.wire_type.replace(" ", ""), case
        told = [None if cell is None else shown_as(cell, types[name]) for cell in cells.to_pylist()]
        assert told == [normal(text, case) for text in expected[n]], case
        for part in ("old", DATA):
            again = updates[part].combine_chunks().field(name).to_pylist()
            assert again[::-1] == cells.to_pylist(), case


def shown_as(cell: Any, wire: str) -> object:
    """A cell as SELECT shows it."""
    digits = int(wire[-2]) if wire.endswith(")") and wire[-3] == "(" else 0
    match cell:
        case bytes():
            return cell.hex().upper()
        case Decimal():
            return f"{cell:f}"
        case datetime.datetime():
            return cell.strftime("%Y-%m-%d %H:%M:%S.%f")[
                : 19 + (digits + 1 if digits else 0)
            ].rjust(19, "0")
        case datetime.timedelta():
            return clock(cell, digits)
        case float():
            return cell
    return str(cell)


def normal(text: object, case: Case) -> object:
    if text is None:
        return None
    if case.type == pa.float32():
        return struct.unpack("<f", struct.pack("<f", float(str(text))))[0]
    return float(str(text)) if case.type == pa.float64() else str(text)


def clock(cell: datetime.timedelta, digits: int) -> str:
    us = cell // datetime.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(us), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return ("-" if us < 0 else "") + text[: len(text) - 6 + digits if digits else -7]
