"""Every type at its extremes, read from real servers as the cell that the docstring of ``cells``
promises. The expected values are written by hand from what was inserted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sinks.types.mysql_type import MySQLType
from streaming.source.dump.cells import UnreadableCells, cell_type, cells_of, selected
from streaming.source.dump.session import Session
from streaming.source.dump.source_table import SourceTable, read_tables
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST
from tests.streaming.source.dump.copied import to

pytestmark = pytest.mark.mariadb


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc(text: str) -> datetime:
    return moment(text).replace(tzinfo=UTC)


LONGEST = timedelta(hours=838, minutes=59, seconds=59)
STORED = -9.99999999995449e-06  # what the servers make of -0.00001 in a DOUBLE(20,5)
ONE_TWO = bytes(4) + bytes.fromhex("0101000000000000000000f03f0000000000000040")
MOST = Decimal("9" * 35 + "." + "9" * 30)
# type -> (literal, cell) …; every column has a NULL too
TYPES: dict[str, list[tuple[str, Any]]] = {
    "TINYINT": [("-128", -128), ("127", 127)],
    "TINYINT UNSIGNED": [("255", 255), ("0", 0)],
    "SMALLINT": [("-32768", -32768), ("32767", 32767)],
    "SMALLINT UNSIGNED": [("65535", 65535)],
    "MEDIUMINT": [("-8388608", -8388608), ("8388607", 8388607)],
    "MEDIUMINT UNSIGNED": [("16777215", 16777215)],
    "INT": [("-2147483648", -(1 << 31)), ("2147483647", (1 << 31) - 1)],
    "INT(6) UNSIGNED ZEROFILL": [("7", 7), ("4294967295", (1 << 32) - 1)],
    "BIGINT": [("-9223372036854775808", -(1 << 63)), ("9223372036854775807", (1 << 63) - 1)],
    "BIGINT UNSIGNED": [("18446744073709551615", (1 << 64) - 1)],
    "YEAR": [("1901", 1901), ("2155", 2155), ("0", 0)],
    "FLOAT": [("3333333.25", 3333333.25), ("-3.4028234e38", float.fromhex("-0x1.fffffep127"))],
    "FLOAT(9,2)": [("3333333.25", 3333333.25), ("0.1", float.fromhex("0x1.99999ap-4"))],
    "DOUBLE": [
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("-2.2250738585072014e-308", -2.2250738585072014e-308),
        ("0.1", 0.1),
        ("123456789.123456789", 123456789.123456789),
    ],
    "DOUBLE(20,5)": [("1234567.12345", 1234567.12345), ("-0.00001", STORED)],
    "DECIMAL(65,30)": [
        (str(MOST), MOST),
        (f"-{MOST}", MOST.copy_negate()),
        ("0." + "0" * 29 + "1", Decimal("1e-30")),
    ],
    "DECIMAL(30,30)": [("0." + "9" * 30, Decimal("0." + "9" * 30))],
    "DECIMAL(38,0)": [("9" * 38, Decimal("9" * 38)), ("-" + "9" * 38, Decimal("-" + "9" * 38))],
    "DECIMAL(12,2)": [("-0.01", Decimal("-0.01")), ("9999999999.99", Decimal("9999999999.99"))],
    "DECIMAL": [("-9999999999", Decimal("-9999999999"))],
    "BIT": [("b'1'", 1), ("b'0'", 0)],
    "BIT(12)": [("b'101010101011'", 0b101010101011)],
    "BIT(64)": [("18446744073709551615", (1 << 64) - 1)],
    "DATE": [("'1000-01-01'", date(1000, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))],
    "TIME": [("'-838:59:59'", -LONGEST), ("'838:59:59'", LONGEST), ("'00:00:00'", timedelta(0))],
    "TIME(3)": [
        ("'-00:00:00.001'", -timedelta(milliseconds=1)),
        ("'99:00:00'", timedelta(hours=99)),
    ],
    "TIME(6)": [
        ("'838:59:59.000000'", LONGEST),
        ("'-25:00:00.999999'", -timedelta(hours=25, microseconds=999_999)),
    ],
    "DATETIME": [
        ("'1000-01-01 00:00:00'", moment("1000-01-01 00:00:00")),
        ("'9999-12-31 23:59:59'", moment("9999-12-31 23:59:59")),
    ],
    "DATETIME(1)": [("'2024-02-29 12:00:00.5'", moment("2024-02-29 12:00:00.500000"))],
    "DATETIME(6)": [("'9999-12-31 23:59:59.999999'", moment("9999-12-31 23:59:59.999999"))],
    # 02:30 in the session's zone, +02:00
    "TIMESTAMP": [
        ("'1970-01-01 02:00:01'", utc("1970-01-01 00:00:01")),
        ("'2038-01-19 05:14:07'", utc("2038-01-19 03:14:07")),
    ],
    "TIMESTAMP(6)": [("'2024-07-01 02:30:00.000001'", utc("2024-07-01 00:30:00.000001"))],
    "CHAR(5)": [("'ab  '", "ab"), ("''", ""), ("'äöü€😀'", "äöü€😀")],
    "CHAR(5) CHARACTER SET gbk": [("'中文'", "中文")],
    "VARCHAR(30)": [("'ab  '", "ab  "), ("REPEAT('😀', 30)", "😀" * 30)],
    "VARCHAR(30) CHARACTER SET latin1": [("'é€ÿ'", "é€ÿ")],
    "VARCHAR(30) CHARACTER SET gbk": [("'中文'", "中文")],
    "VARCHAR(30) CHARACTER SET utf16": [("'a😀'", "a😀")],
    "TEXT": [("REPEAT('x', 65535)", "x" * 65535), ("'line\\nend\\0'", "line\nend\0")],
    "LONGTEXT": [("REPEAT('y', 1000000)", "y" * 1_000_000)],
    "ENUM('a','ü','it''s')": [("'ü'", "ü"), ("'it''s'", "it's"), ("'no'", "")],
    "ENUM('中') CHARACTER SET gbk": [("'中'", "中")],
    "SET('x','y','z')": [("'z,x'", "x,z"), ("''", "")],
    "JSON": [('\'{"a": [1, "ü"]}\'', '{"a": [1, "ü"]}')],
    "BINARY(5)": [("'ab'", b"ab\0\0\0"), ("0x00ff000000", b"\0\xff\0\0\0")],
    "VARBINARY(30)": [("0x00ff00", b"\0\xff\0"), ("''", b"")],
    "BLOB": [("REPEAT(0xff, 65535)", b"\xff" * 65535)],
    "POINT": [("ST_GeomFromText('POINT(1 2)')", ONE_TWO)],
}
# type -> (literal, text): the column of a block with one that is in no calendar comes as string
NO_DATES: dict[str, list[tuple[str, str]]] = {
    "DATE": [
        ("'0000-00-00'", "0000-00-00"),
        ("'2024-00-10'", "2024-00-10"),
        ("'2024-01-02'", "2024-01-02"),
    ],
    "DATETIME(3)": [
        ("'0000-00-00'", "0000-00-00 00:00:00.000"),
        ("'2024-02-00 01:02:03.4'", "2024-02-00 01:02:03.400"),
    ],
    "TIMESTAMP": [
        ("'0000-00-00'", "0000-00-00 00:00:00"),
        ("'2024-07-01 02:30:00'", "2024-07-01 00:30:00"),
    ],
}


@pytest.fixture(params=BOTH_FIRST, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param, {"default-time-zone": "+02:00"}) as running:
        running.execute("CREATE DATABASE t CHARACTER SET utf8mb4")
        yield running


@pytest.fixture
def session(server: DatabaseServer) -> Iterator[Session]:
    opened = Session(to(server))
    yield opened
    opened.close()


def rows_of(session: Session, table: SourceTable) -> pa.Table:
    """All rows, by the key."""
    columns = ", ".join(selected(column.name, column.type) for column in table.columns)
    statement = f"SELECT {columns} FROM `{table.name.schema}`.`{table.name.table}` ORDER BY 1"
    parts = [
        pa.table(
            [cells_of(t, c.type) for t, c in zip(texts, table.columns, strict=True)],
            [column.name for column in table.columns],
        )
        for texts in session.blocks(statement, len(table.columns))
    ]
    return pa.concat_tables(parts)


def inserted(server: DatabaseServer, name: str, definition: str, literals: list[str]) -> None:
    with server.connect(database="t") as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"DROP TABLE IF EXISTS `{name}`")
        cursor.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, value {definition} NULL)")
        for number, literal in enumerate([*literals, "NULL"]):
            cursor.execute(f"INSERT INTO `{name}` VALUES ({number}, {literal})")


@pytest.mark.parametrize("definition", TYPES)
def test_a_cell_is_what_was_stored(server: DatabaseServer, session: Session, definition: str):
    values = TYPES[definition]
    inserted(server, "one", definition, [literal for literal, _ in values])
    (table,) = [each for each in read_tables(session.query, ["t"]) if each.name.table == "one"]
    read = rows_of(session, table).column("value")
    assert read.type == cell_type(table.columns[1].type)
    assert read.to_pylist() == [*(value for _, value in values), None]


@pytest.mark.parametrize("definition", NO_DATES)
def test_dates_of_no_calendar_are_texts(server: DatabaseServer, session: Session, definition: str):
    values = NO_DATES[definition]
    inserted(server, "no_date", definition, [literal for literal, _ in values])
    (table,) = [each for each in read_tables(session.query, ["t"]) if each.name.table == "no_date"]
    read = rows_of(session, table).column("value")
    assert read.type == pa.string()
    assert read.to_pylist() == [*(value for _, value in values), None]


def test_invisible_and_generated_columns_are_read(server: DatabaseServer, session: Session):
    server.execute(
        "DROP TABLE IF EXISTS t.`odd ``name`",
        "CREATE TABLE t.`odd ``name` (`a ``b` INT PRIMARY KEY, hidden INT INVISIBLE DEFAULT 7,"
        " `% d` INT GENERATED ALWAYS AS (`a ``b` + 1) VIRTUAL,"
        " kept INT GENERATED ALWAYS AS (`a ``b` * 2) STORED)",
        "INSERT INTO t.`odd ``name` (`a ``b`) VALUES (1)",
    )
    tables = {each.name.table: each for each in read_tables(session.query, ["t"])}
    table = tables["odd `name"]
    columns = ", ".join(selected(column.name, column.type) for column in table.columns)
    ((texts),) = session.blocks(f"SELECT {columns} FROM t.`odd ``name`", len(table.columns))
    found = {c.name: t.to_pylist() for c, t in zip(table.columns, texts, strict=True)}
    assert found == {"a `b": [b"1"], "hidden": [b"7"], "% d": [b"2"], "kept": [b"2"]}


def test_a_row_of_more_than_one_packet(server: DatabaseServer):
    server.execute("SET GLOBAL max_allowed_packet = 67108864")
    server.execute(
        "DROP TABLE IF EXISTS t.large",
        "CREATE TABLE t.large (id INT PRIMARY KEY, value LONGBLOB)",
        "INSERT INTO t.large VALUES (1, 'a'), (2, REPEAT('b', 40000000)), (3, 'c')",
    )
    again = Session(to(server))  # the limit is that of new connections
    blocks = list(again.blocks("SELECT value FROM t.large ORDER BY id", 1))
    again.close()
    values = [value for (texts,) in blocks for value in texts.to_pylist()]
    assert [(value[:1], len(value)) for value in values] == [
        (b"a", 1),
        (b"b", 40_000_000),
        (b"c", 1),
    ]


def test_the_session_serves_one_statement_after_the_other(session: Session):
    for _ in range(3):
        assert [t[0].to_pylist() for t in session.blocks("SELECT 1", 1)] == [[b"1"]]
        assert list(session.blocks("SELECT 1 FROM DUAL WHERE 1 = 0", 1)) == []
        assert session.query("SELECT @@session.time_zone") == [("+00:00",)]


def test_a_lost_network_is_noticed(session: Session):
    """No such network is here; the system does the rest."""
    own = session._connection._sock
    assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, between, count = (
        own.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert idle + between * count == 60


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("int", b"12x"),
        ("tinyint", b"128"),
        ("decimal(4,2)", b"123.45"),
        ("time", b"1:2:3"),
        ("time", b""),
        ("bit(12)", b"1"),
        ("varchar(5)", b"\xff"),
        ("double", b""),
        ("year", b"x"),
    ],
)
def test_a_text_of_another_type_is_refused(mysql_type: str, text: bytes):
    with pytest.raises(UnreadableCells, match="does not fit the type"):
        cells_of(
            pa.array([b"1" if mysql_type == "int" else None, text], pa.large_binary()),
            MySQLType.parse(mysql_type),
        )
