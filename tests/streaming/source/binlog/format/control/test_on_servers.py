"""What real servers write around the rows: GTIDs, statements, transactions of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from streaming.source.binlog.format.control.files import format_description, rotate
from streaming.source.binlog.format.control.gtids import (
    AlterStep,
    MariaGtid,
    MySQLGtid,
    maria_gtid,
    mysql_gtid,
    xid,
)
from streaming.source.binlog.format.control.statements import Query, query
from streaming.source.binlog.format.control.transactions import GroupKind, transactions
from streaming.source.binlog.format.control.xa import Xid, payload_xa, xa_prepare, xa_statement
from streaming.source.binlog.format.events import event_at
from streaming.source.binlog.format.type_codes import GTIDS, EventType
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST
from tests.streaming.source.binlog.binlogs import Binlog, recorded, written

pytestmark = pytest.mark.mariadb


@pytest.fixture(params=BOTH_FIRST, ids=lambda edition: edition.name, scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as server:
        yield server


@pytest.fixture
def server(running: DatabaseServer) -> Iterator[DatabaseServer]:
    with running.database("d"):
        running.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(200))")
        yield running


def kinds(binlog: Binlog) -> list[GroupKind]:
    return [GroupKind(kind) for kind in binlog.transactions().kind]


def gtids(binlog: Binlog) -> list[MariaGtid | MySQLGtid]:
    read = maria_gtid if binlog.is_mariadb else mysql_gtid
    return [read(event) for event in binlog.each() if event.kind in GTIDS]


def queries(binlog: Binlog) -> list[Query]:
    """The statements that are no BEGIN and no end."""
    each = binlog.each()
    return [query(each[n], binlog.charsets) for n in binlog.transactions().statements]


def test_a_transaction_a_statement_and_their_names(server: DatabaseServer):
    begun = time.time()
    binlog = written(
        server,
        "INSERT INTO d.t VALUES (1, 'a')",
        "BEGIN",
        "INSERT INTO d.t VALUES (2, 'b')",
        "SAVEPOINT s",
        "INSERT INTO d.t VALUES (3, 'c')",
        "ROLLBACK TO s",
        "DELETE FROM d.t WHERE id = 1",
        "COMMIT",
        "ALTER TABLE d.t ADD w INT",
    )
    assert kinds(binlog) == [GroupKind.ROWS, GroupKind.ROWS, GroupKind.STATEMENT]
    names = gtids(binlog)
    numbers = [each.sequence if isinstance(each, MariaGtid) else each.number for each in names]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    for each in names:
        if isinstance(each, MariaGtid):
            assert (each.domain, each.server_id, each.time_s) == (
                0,
                1,
                pytest.approx(begun, abs=60),
            )
            assert str(each) == f"0-1-{each.sequence}"
        else:
            assert each.original_us == each.immediate_us == pytest.approx(begun * 1e6, abs=60e6)
            (uuid,) = server.query("SELECT @@server_uuid")[0]
            assert str(each) == f"{uuid}:{each.number}"
            assert each.length
    last = names[-1]
    if isinstance(last, MariaGtid):
        assert (last.is_ddl, last.is_standalone) == (True, True)
        assert (names[0].is_ddl, names[0].is_standalone) == (False, False)  # type: ignore[union-attr]
    assert [xid(event) > 0 for event in binlog.each() if event.kind == EventType.XID]


def test_a_statement_and_its_session(server: DatabaseServer):
    with (
        recorded(server) as binlogs,
        server.connect(charset="gbk", database="d") as one,
        one.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ANSI_QUOTES', time_zone = '+05:30'")
        cursor.execute("CREATE TABLE n (id INT COMMENT '中文')")
    binlog = binlogs[0]
    (found,) = queries(binlog)
    assert found.sql == "CREATE TABLE n (id INT COMMENT '中文')"
    assert (found.schema, found.error_code) == ("d", 0)
    assert found.sql_mode == 4  # ANSI_QUOTES
    assert found.thread_id > 0
    charset = binlog.charsets[found.client_collation or 0]
    assert charset.codec == "gbk"


def test_a_long_statement_that_mariadb_compressed(server: DatabaseServer):
    if not server.edition.is_mariadb:
        pytest.skip("MySQL compresses whole transactions alone")
    comment = "é" * 400
    server.execute("SET GLOBAL log_bin_compress = ON")
    try:
        with recorded(server) as found, server.connect(charset="utf8mb4") as one:
            one.cursor().execute(f"CREATE TABLE d.n (id INT COMMENT '{comment}')")
    finally:
        server.execute("SET GLOBAL log_bin_compress = OFF")
    assert EventType.QUERY_COMPRESSED in found[0].events().kind
    assert kinds(found[0]) == [GroupKind.STATEMENT]
    assert queries(found[0])[0].sql == f"CREATE TABLE d.n (id INT COMMENT '{comment}')"


def test_create_table_as_select_is_a_transaction_with_a_statement(server: DatabaseServer):
    binlog = written(server, "CREATE TABLE d.q AS SELECT 1 AS a", "INSERT INTO d.t VALUES (1, 'a')")
    assert kinds(binlog) == [GroupKind.ROWS, GroupKind.ROWS]
    (statement,) = binlog.transactions().statements
    assert binlog.transactions().first[0] < statement < binlog.transactions().last[0]
    assert queries(binlog)[0].sql.startswith("CREATE TABLE")


def test_a_change_in_statement_format_shows(server: DatabaseServer):
    binlog = written(server, "SET binlog_format = 'STATEMENT'", "INSERT INTO d.t VALUES (1, 'a')")
    assert kinds(binlog) == [GroupKind.ROWS]
    assert [each.sql for each in queries(binlog)] == ["INSERT INTO d.t VALUES (1, 'a')"]


def test_xa(server: DatabaseServer):
    """The rows are prepared; another group, perhaps much later, commits them or does not."""
    name = "'tid','branch',7"
    prepared = [f"XA START {name}", "INSERT INTO d.t VALUES (1, 'a')", f"XA END {name}"]
    for end, kind in (("ROLLBACK", GroupKind.XA_ROLLBACK), ("COMMIT", GroupKind.XA_COMMIT)):
        binlog = written(server, *prepared, f"XA PREPARE {name}", f"XA {end} {name}")
        assert kinds(binlog) == [GroupKind.XA_PREPARED, kind]
        each, found = binlog.each(), binlog.transactions()
        expected = Xid(7, b"tid", b"branch")
        told = xa_prepare(each[found.last[0]])
        assert (told.xid, told.is_one_phase) == (expected, False)
        last = query(each[found.last[1]], binlog.charsets)
        assert xa_statement(last.sql.encode()) == (end, expected)
        assert str(expected) in last.sql.lower().replace("x'", "X'")
        if binlog.is_mariadb:
            first, second = gtids(binlog)
            assert (first.xa_prepared, second.xa_completed) == (expected, expected)  # type: ignore[union-attr]
        assert not len(found.statements)


def test_xa_in_one_phase_is_a_commit(server: DatabaseServer):
    binlog = written(
        server,
        "XA START 'x'",
        "INSERT INTO d.t VALUES (9, 'a')",
        "XA END 'x'",
        "XA COMMIT 'x' ONE PHASE",
    )
    assert kinds(binlog) == [GroupKind.ROWS]


def test_compressed_transactions_of_mysql(server: DatabaseServer):
    if server.edition.is_mariadb:
        pytest.skip("MariaDB compresses single events")
    on = "SET binlog_transaction_compression = ON"
    rows = [f"INSERT INTO d.t VALUES ({n}, REPEAT('x', 200))" for n in range(30)]
    binlog = written(
        server, on, "BEGIN", *rows, "COMMIT",
        *("XA START 'x'", "DELETE FROM d.t", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"),
        *("XA START 'y'", "DELETE FROM d.t", "INSERT INTO d.t VALUES (99, '')", "XA END 'y'"),
        "XA COMMIT 'y' ONE PHASE",
    )  # fmt: skip
    expected = [GroupKind.ROWS, GroupKind.XA_PREPARED, GroupKind.XA_COMMIT, GroupKind.ROWS]
    assert kinds(binlog) == expected
    payloads = [event for event in binlog.each() if event.kind == EventType.TRANSACTION_PAYLOAD]
    told = [payload_xa(payload.body) for payload in payloads]
    assert [each and (each.xid.gtrid, each.is_one_phase) for each in told] == [
        *(None, (b"x", False), (b"y", True)),
    ]


def test_tables_without_transactions(server: DatabaseServer):
    server.execute("CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE = MyISAM")
    statements = ("INSERT INTO d.m VALUES (1)", "BEGIN", "INSERT INTO d.m VALUES (2)", "ROLLBACK")
    assert kinds(written(server, *statements)) == [GroupKind.ROWS, GroupKind.ROWS]


def test_an_alter_in_two_phases(server: DatabaseServer):
    if not server.edition.is_mariadb:
        pytest.skip("MariaDB alone logs an ALTER TABLE twice")
    binlog = written(server, "SET binlog_alter_two_phase = 1", "ALTER TABLE d.t ADD x INT")
    assert kinds(binlog) == [GroupKind.STATEMENT, GroupKind.STATEMENT]
    steps = [each.alter for each in gtids(binlog)]  # type: ignore[union-attr]
    assert steps == [AlterStep.START, AlterStep.COMMIT]
    assert {each.sql for each in queries(binlog)} == {"ALTER TABLE d.t ADD x INT"}


def test_a_gtid_with_a_tag(server: DatabaseServer):
    if server.edition.is_mariadb:
        pytest.skip("MariaDB has no tags")
    binlog = written(
        server, "SET gtid_next = 'AUTOMATIC:tag'", "INSERT INTO d.t VALUES (1, 'a')",
        "SET original_commit_timestamp = 12345678", "INSERT INTO d.t VALUES (2, 'a')",
    )  # fmt: skip
    assert kinds(binlog) == [GroupKind.ROWS, GroupKind.ROWS]
    (uuid,) = server.query("SELECT @@server_uuid")[0]
    first, second = gtids(binlog)
    assert (str(first), str(second)) == (f"{uuid}:tag:1", f"{uuid}:tag:2")
    assert isinstance(first, MySQLGtid)
    assert isinstance(second, MySQLGtid)
    assert first.original_us == first.immediate_us == pytest.approx(time.time() * 1e6, abs=60e6)
    assert (second.original_us, second.immediate_us) == (
        *(12345678, pytest.approx(time.time() * 1e6, abs=60e6)),
    )
    sizes = [event.end_offset for event in binlog.each() if event.kind == EventType.XID]
    assert second.length == sizes[1] - sizes[0]


def test_the_first_and_the_last_event_of_a_file(server: DatabaseServer):
    binlog = written(server)
    at = binlog.at.tolist()
    first = format_description(event_at(binlog.data, at[0], checksum=False))
    (version,) = server.query("SELECT VERSION()")[0]
    assert first.server_version == version
    assert (first.checksum, first.is_mariadb) == (True, server.edition.is_mariadb)
    going_on = rotate(event_at(binlog.data, at[-1], checksum=True))
    assert going_on.file == server.query("SHOW BINARY LOGS")[-1][0]
    assert going_on.offset == 4
    file = server.query("SHOW BINARY LOGS")[-1][0]
    live = (server.folder / "data" / file).read_bytes()  # its flag says that it is in use
    event_at(live, 4, checksum=True)


def test_a_block_may_begin_and_end_within_a_transaction(server: DatabaseServer):
    binlog = written(
        server, "BEGIN", *[f"INSERT INTO d.t VALUES ({n}, 'a')" for n in range(3)], "COMMIT",
        "ALTER TABLE d.t ADD w INT", "INSERT INTO d.t VALUES (9, 'a', 1)",
    )  # fmt: skip
    events = binlog.events()
    whole = transactions(events)
    for cut in range(int(whole.first[0]), len(events)):
        if events.kind[cut - 1] in GTIDS:
            continue
        head = transactions(events.take(np.arange(cut)))
        rest = events.take(np.arange(cut, len(events)))
        tail = transactions(rest, is_inside=head.open < cut)
        ends = [*head.last.tolist(), *(tail.last + cut).tolist()]
        assert ends == whole.last.tolist(), cut
        assert [*head.kind, *tail.kind] == [*whole.kind]
