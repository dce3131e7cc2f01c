"""Tables of real servers into files, whatever their key, and whatever happens meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coordination.errors import Stop
from coordination.model import TableName
from streaming.source.dump.chunk_files import StagingFailed, StagingFull
from streaming.source.dump.copy_tables import CopiedTable, CopyProgress, copy_tables
from streaming.source.dump.moment import SnapshotPosition
from streaming.source.dump.session import SourceAway, SourceRefuses, TableChanged
from streaming.source.dump.staging import MANIFEST, StagedTable
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog import binlogs
from tests.streaming.source.dump.copied import one_copy, rows_of, table_of, tables_of, to
from tests.streaming.source.dump.keyed_table import KEYS, ROWS, make

pytestmark = pytest.mark.mariadb

ROOT = Path(__file__).resolve().parents[4]


def test_empty_tables_and_odd_names(server: DatabaseServer, schema: str, tmp_path: Path):
    server.execute(
        "CREATE TABLE `a/b ``c` (`k ``%s` VARCHAR(9) PRIMARY KEY)",
        "INSERT INTO `a/b ``c` VALUES (''), ('it''s'), ('%s')",
        "CREATE TABLE empty_int (a INT PRIMARY KEY)",
        "CREATE TABLE empty_text (a VARCHAR(9) PRIMARY KEY)",
        "CREATE TABLE empty_bare (a INT)",
        "CREATE VIEW seen AS SELECT 1",
        database=schema,
    )
    copied = {
        each.table.name.table: rows_of(each).to_pylist()
        for each in copy_tables(to(server), tables_of(server, schema), tmp_path)
    }
    assert copied == {
        "a/b `c": [{"k `%s": ""}, {"k `%s": "%s"}, {"k `%s": "it's"}],
        "empty_int": [],
        "empty_text": [],
        "empty_bare": [],
    }


def test_dates_of_no_calendar_make_a_file_of_their_own(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("dates") as schema, mariadb.connect(database=schema) as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE t (a INT PRIMARY KEY, d DATE)")
        cursor.execute("INSERT INTO t VALUES (1, '2024-01-02'), (2, '0000-00-00')")
        copied = one_copy(mariadb, table_of(mariadb, schema, "t"), tmp_path)
        assert rows_of(copied).column("d").to_pylist() == ["2024-01-02", "0000-00-00"]


def test_rows_that_nobody_touches_are_there_once_while_the_table_grows(
    server: DatabaseServer, schema: str, tmp_path: Path
):
    """What is inserted, changed and deleted meanwhile comes by the binlog."""
    make(server, "a INT", "a", "n * 10")
    ended = threading.Event()

    def write() -> None:
        with server.connect(database=schema) as connection, connection.cursor() as cursor:
            number = 0
            while not ended.is_set():
                number += 1
                cursor.execute(f"REPLACE INTO t VALUES ({30_000 + number}, 8), ({-number}, 8)")
                cursor.execute(f"REPLACE INTO t VALUES ({number % 3000 * 10 + 5}, 8)")
                cursor.execute(f"DELETE FROM t WHERE a = {number % 3000 * 10 + 5}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        table = table_of(server, schema, "t")
        copied = one_copy(server, table, tmp_path, rows_per_chunk=100, connections=3)
    finally:
        ended.set()
        writer.join()
    keys = [row["a"] for row in rows_of(copied).to_pylist() if row["v"] == 7]
    assert sorted(keys) == [n * 10 for n in range(ROWS)]


@pytest.mark.parametrize("key", ["int", pytest.param("varchar", marks=pytest.mark.more)])
def test_a_copy_that_is_killed_goes_on_with_the_next_chunk(
    mariadb: DatabaseServer, tmp_path: Path, key: str
):
    with mariadb.database("copied", "CHARACTER SET utf8mb4") as schema:
        make(mariadb, *KEYS[key])
        arguments = [mariadb.host, str(mariadb.port), schema, str(tmp_path), "50"]
        command = [sys.executable, "-m", "tests.streaming.source.dump.copied", *arguments]
        manifest = tmp_path / "copied.t" / MANIFEST
        noted = lives = 0
        while True:
            life = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
            lives += 1
            while life.poll() is None and lines(manifest) < noted + 12:
                time.sleep(0.001)
            life.kill()
            life.communicate()
            if life.returncode == 0:
                break
            assert lines(manifest) > noted, "a life without a chunk"
            noted = lines(manifest)
        assert lives > 2
        table = table_of(mariadb, schema, "t")
        copied = one_copy(mariadb, table, tmp_path)
        keys = rows_of(copied).column("a").to_pylist()
        assert (len(keys), len(set(keys))) == (ROWS, ROWS)
        named = {MANIFEST, *(file.name for file in copied.files)}
        assert {path.name for path in manifest.parent.iterdir()} == named


def lines(manifest: Path) -> int:
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def test_a_full_disk_is_one_sentence_and_the_copy_goes_on(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied", "CHARACTER SET utf8mb4") as schema:
        make(mariadb, *KEYS["int"])
        table = table_of(mariadb, schema, "t")
        fine: list[CopyProgress] = []

        def fill(seen: CopyProgress) -> None:
            fine.append(seen)
            for number in range(8, 14):  # these chunks find no room
                path = tmp_path / "copied.t" / f"{number:06d}-0.parquet.part"
                if path.parent.exists() and not path.exists():
                    path.symlink_to("/dev/full")

        with pytest.raises(StagingFull, match=r"no room in the staging folder .*free some space"):
            one_copy(mariadb, table, tmp_path, rows_per_chunk=100, progress=fill)
        noted = lines(tmp_path / "copied.t" / MANIFEST)
        assert noted > 3
        copied = one_copy(mariadb, table, tmp_path)
        assert len(set(rows_of(copied).column("a").to_pylist())) == copied.rows == ROWS


def test_a_folder_that_cannot_be_written_is_one_sentence(mariadb: DatabaseServer, tmp_path: Path):
    (tmp_path / "file").touch()
    with mariadb.database("copied") as schema:
        mariadb.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=schema)
        with pytest.raises(StagingFailed, match=r"file/copied\.t cannot be used: .*directory"):
            one_copy(mariadb, table_of(mariadb, schema, "t"), tmp_path / "file")


def test_an_altered_table_is_copied_anew(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied") as schema:
        mariadb.execute(
            "CREATE TABLE t (a INT PRIMARY KEY, b INT)",
            "INSERT INTO t VALUES (1, 2)",
            database=schema,
        )
        before = table_of(mariadb, schema, "t")
        assert one_copy(mariadb, before, tmp_path).rows == 1
        mariadb.execute("ALTER TABLE t CHANGE b c BIGINT", "INSERT INTO t VALUES (2, 3)",
                        database=schema)  # fmt: skip
        with pytest.raises(TableChanged, match="Unknown column 'b'"):
            one_copy(mariadb, before, tmp_path / "other")
        copied = one_copy(mariadb, table_of(mariadb, schema, "t"), tmp_path)
        assert rows_of(copied).to_pylist() == [{"a": 1, "c": 2}, {"a": 2, "c": 3}]


def test_rights_that_lack_are_named(server: DatabaseServer, schema: str, tmp_path: Path):
    server.execute(
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "DROP USER IF EXISTS 'weak'@'%'",
        "CREATE USER 'weak'@'%'",
        database=schema,
    )
    table = table_of(server, schema, "t")
    with pytest.raises(SourceRefuses, match=r"SELECT command denied .*grant the account"):
        list(copy_tables(to(server, "weak"), [table], tmp_path))
    server.execute(f"GRANT SELECT ON {schema}.* TO 'weak'@'%'")
    assert len(list(copy_tables(to(server, "weak"), [table], tmp_path))) == 1


def test_too_few_connections_are_named_and_a_copy_goes_on(
    server: DatabaseServer, schema: str, tmp_path: Path
):
    make(server, *KEYS["varchar"])
    server.execute(
        "DROP USER IF EXISTS 'few'@'%'",
        "CREATE USER 'few'@'%' WITH MAX_USER_CONNECTIONS 1",
        f"GRANT SELECT ON {schema}.* TO 'few'@'%'",
    )
    table = table_of(server, schema, "t")

    def copied() -> list[CopiedTable]:
        return list(copy_tables(to(server, "few"), [table], tmp_path, rows_per_chunk=100))

    with pytest.raises(SourceAway, match=r"1226\)\. ALTER USER 'few'@.* WITH MAX_USER_CONNECT"):
        copied()
    server.execute("ALTER USER 'few'@'%' WITH MAX_USER_CONNECTIONS 9")
    assert copied()[0].rows == ROWS


def test_a_server_that_dies_is_gone_on_with(tmp_path: Path):
    with DatabaseServer() as own:
        own.execute("CREATE DATABASE copied CHARACTER SET utf8mb4")
        make(own, *KEYS["varchar"])
        table = table_of(own, "copied", "t")

        def kill(seen: CopyProgress) -> None:
            if seen.rows > ROWS / 3 and not seen.is_done:
                own.kill()

        with pytest.raises(SourceAway):
            one_copy(own, table, tmp_path, rows_per_chunk=100, progress=kill)
        with pytest.raises(SourceAway, match="no connection to the source"):
            one_copy(own, table, tmp_path)
        own.restart()
        copied = one_copy(own, table, tmp_path)
        assert len(set(rows_of(copied).column("a").to_pylist())) == copied.rows == ROWS
        assert len(copied.files) > 20  # the chunks of before


def test_progress_and_stop(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied", "CHARACTER SET utf8mb4") as schema:
        make(mariadb, *KEYS["int"])
        table = table_of(mariadb, schema, "t")
        seen: list[CopyProgress] = []
        with pytest.raises(Stop, match="goes on with the next chunk"):
            one_copy(mariadb, table, tmp_path, rows_per_chunk=100, progress=seen.append,
                     is_stopped=lambda: bool(seen) and seen[-1].rows > 500)  # fmt: skip
        assert 500 < StagedTable(tmp_path, table).rows < ROWS
        seen.clear()
        copied = one_copy(mariadb, table, tmp_path, progress=seen.append)
        assert [each.rows for each in seen] == sorted(each.rows for each in seen)
        last = seen[-1]
        assert (last.is_done, last.rows, last.of_rows) == (True, ROWS, ROWS)
        assert copied.bytes == sum(file.stat().st_size for file in copied.files)


def test_a_table_without_a_key_is_read_at_one_position(
    server: DatabaseServer, schema: str, tmp_path: Path
):
    """Each INSERT is a transaction, and nothing else writes: its GTID counts the rows, and so does
    the binlog up to there."""
    server.execute("FLUSH BINARY LOGS", "CREATE TABLE t (a INT)", database=schema)
    ended = threading.Event()
    gtid = "@@gtid_binlog_pos" if server.edition.is_mariadb else "@@GLOBAL.gtid_executed"
    ((begun,),) = server.query(f"SELECT {gtid}")

    def write() -> None:
        with server.connect(database=schema) as connection, connection.cursor() as cursor:
            number = 0
            while not ended.is_set():
                number += 1
                cursor.execute(f"INSERT INTO t VALUES ({number})")

    writers = [threading.Thread(target=write) for _ in range(2)]
    for each in writers:
        each.start()
    try:
        table = table_of(server, schema, "t")
        for attempt in range(5):
            copied = one_copy(server, table, tmp_path / str(attempt))
            assert copied.position is not None
            assert sequence(copied.position.gtid) == sequence(begun) + copied.rows
            assert rows_before(server, copied.position) == copied.rows
    finally:
        ended.set()
        for each in writers:
            each.join()
    again = one_copy(server, table, tmp_path / "4")
    assert again.position == copied.position


def rows_before(server: DatabaseServer, at: SnapshotPosition) -> int:
    raw = (server.folder / "data" / at.file).read_bytes()[: at.offset]
    log = binlogs.Binlog(raw, server.edition.is_mariadb, binlogs.charsets(server))
    blocks = binlogs.blocks_of(log, "copied.t")
    return sum(block.rows for block in blocks if block.name == TableName("copied", "t"))


def sequence(gtid: str) -> int:
    """The last number of ``0-1-27`` and of ``uuid:1-27``."""
    return int(gtid.replace(":", "-").rpartition("-")[2])


def test_a_thousand_small_tables(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied") as schema:
        mariadb.execute(
            *(
                statement
                for n in range(1000)
                for statement in (
                    f"CREATE TABLE t{n} (a INT PRIMARY KEY, b VARCHAR(20))",
                    f"INSERT INTO t{n} VALUES (1, 'x'), (2, 'table {n}')",
                )
            ),
            database=schema,
        )
        threads = threading.active_count()  # those of other tests in this process
        started = time.monotonic()
        tables = tables_of(mariadb, schema)
        copied = list(copy_tables(to(mariadb), tables, tmp_path))
        took_s = time.monotonic() - started
        assert len(copied) == 1000
        assert sum(each.rows for each in copied) == 2000
        assert threading.active_count() < threads + 10
        print(f"1,000 tables in {took_s:.1f} s")
        started = time.monotonic()
        assert len(list(copy_tables(to(mariadb), tables, tmp_path))) == 1000
        assert time.monotonic() - started < took_s
        assert took_s < 60


def test_a_copy_keeps_its_pace(mariadb: DatabaseServer, tmp_path: Path):
    """No more rows have come at any time than the pace allows, a chunk a connection aside."""
    seen: list[tuple[float, int]] = []
    with mariadb.database("copied") as schema:
        mariadb.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=schema)
        mariadb.insert("copied.t", [(n,) for n in range(600)])
        began_s = time.monotonic()
        copied = one_copy(
            mariadb,
            table_of(mariadb, schema, "t"),
            tmp_path,
            rows_per_s=200,
            rows_per_chunk=100,
            connections=2,
            progress=lambda each: seen.append((time.monotonic() - began_s, each.rows)),
        )
    assert copied.rows == 600
    assert all(rows <= 200 * at_s + 2 * 100 for at_s, rows in seen)
    assert seen[-1][0] > 1.5, "the last chunk may begin when its time has come"


def test_no_connection_is_left_behind(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied") as schema:
        mariadb.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=schema)
        ((before,),) = mariadb.query("SELECT COUNT(*) FROM information_schema.PROCESSLIST")
        one_copy(mariadb, table_of(mariadb, schema, "t"), tmp_path)
        deadline = time.monotonic() + 10
        while mariadb.query("SELECT COUNT(*) FROM information_schema.PROCESSLIST")[0][0] > before:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_table_with_a_history_cannot_be_read_whole(mariadb: DatabaseServer):
    with mariadb.database("copied") as schema:
        mariadb.execute(
            "CREATE TABLE fine (a INT PRIMARY KEY)",
            "CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING",
            "CREATE SEQUENCE numbers",
            database=schema,
        )
        fine, versioned = tables_of(mariadb, schema)
        assert (fine.unread, fine.name.table) == ("", "fine")
        assert versioned.unread.startswith("it is system-versioned")


def test_a_table_without_snapshots_is_copied_by_its_key(mariadb: DatabaseServer, tmp_path: Path):
    with mariadb.database("copied") as schema:
        mariadb.execute(
            "CREATE TABLE t (a INT PRIMARY KEY) ENGINE = MyISAM",
            "INSERT INTO t VALUES (1), (2)",
            database=schema,
        )
        assert one_copy(mariadb, table_of(mariadb, schema, "t"), tmp_path).rows == 2
