"""The first copy of real tables: loaded once, and as if the changefeed had run until then."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.load import load_settings
from conf.settings import Changefeed, TableRule
from coordination import failpoint
from coordination.errors import ConfigError, Stop, TidelakeError
from coordination.model import TableName
from sinks.control.warehouse import ControlTables
from streaming.changefeed.awaited import awaited
from streaming.source.binlog.position import BinlogPosition, file_number
from streaming.source.resolved.commit_clock import from_token
from streaming.spans.copies.first_copy import FirstCopy, TableProgress
from streaming.spans.copies.settled_copy import only_one
from tests.acceptance.processes import await_
from tests.own_lines import own_text
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.held_commits import held_commit, log_end

pytestmark = pytest.mark.mariadb

NAME = "first_copy"


@contextmanager
def tables_of(mariadb: DatabaseServer) -> Iterator[None]:
    with mariadb.database(NAME):
        mariadb.execute(
            f"CREATE TABLE {NAME}.orders (id INT PRIMARY KEY, v VARCHAR(20), at DATETIME(3))",
            f"CREATE TABLE {NAME}.events (what VARCHAR(20))",
            f"CREATE TABLE {NAME}.other (id INT PRIMARY KEY)",
        )
        mariadb.insert(f"{NAME}.orders", [(n, f"v{n}", "2024-01-01") for n in range(1_000)])
        mariadb.insert(f"{NAME}.events", [("a",), ("a",), ("b",)])
        yield


@pytest.fixture
def server(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    with tables_of(mariadb):
        yield mariadb


@pytest.fixture
def changefeed(server: DatabaseServer, tmp_path: Path) -> Changefeed:
    return changefeed_of(server, tmp_path)


def changefeed_of(server: DatabaseServer, tmp_path: Path) -> Changefeed:
    file = tmp_path / "changefeed.toml"
    file.write_text(
        f"[filter]\nrules = ['{NAME}.*', '!{NAME}.other']\n"
        f"[[sink.tables]]\nmatcher = ['{NAME}.events']\nwrite-mode = 'append'\n"
    )
    uri = f"mysql://root@{server.host}:{server.port}/?task-mode=all&chunk-rows=100"
    arguments: dict[str, Any] = {
        "source-uri": uri,
        "sink-uri": f"delta://{tmp_path / 'lake'}",
        "changefeed-id": "shop",
    }
    return load_settings(config=file, environment={}, arguments=arguments).changefeed


def copied(changefeed: Changefeed, tmp_path: Path, **given: Any) -> None:
    with closing(FirstCopy(changefeed, tmp_path / "staging", **given)) as copy:
        copy.run()


def rows(tmp_path: Path, table: str) -> list[dict[str, Any]]:
    return read_rows(tmp_path / "lake" / NAME / table)


def test_all_tables_of_the_filter_are_there_at_their_moment(
    changefeed: Changefeed, tmp_path: Path
) -> None:
    told: list[TableProgress] = []
    copied(changefeed, tmp_path, progress=told.append)
    assert sorted(row["id"] for row in rows(tmp_path, "orders")) == list(range(1_000))
    assert sorted(row["what"] for row in rows(tmp_path, "events")) == ["a", "a", "b"]
    assert not (tmp_path / "lake" / NAME / "other").exists()
    assert not (tmp_path / "staging").exists()
    assert {each.table.table for each in told if each.is_done} == {"orders", "events"}
    tables = ControlTables.of(changefeed.sink)
    row = tables.changefeeds.read("shop")
    assert row is not None
    assert row.checkpoint_ts == row.start_ts <= row.max_published_ts  # an idle log
    assert row.term == 0
    progress = tables.progress.read("shop")
    assert progress.keys() == {TableName(NAME, "orders"), TableName(NAME, "events")}
    pins = dict((pin.position, pin.ts) for pin in from_token(row.watermarks["binlog"].token))
    assert pins[row.source_positions["binlog"]] == row.checkpoint_ts
    for each in progress.values():
        assert each.identity_ts == each.checkpoint_ts == pins[each.source_positions["binlog"]]
        assert each.delta_version is not None


def test_a_copy_is_made_once(changefeed: Changefeed, tmp_path: Path) -> None:
    with closing(FirstCopy(changefeed, tmp_path / "staging")) as copy:
        assert not copy.is_done
    copied(changefeed, tmp_path)
    with closing(FirstCopy(changefeed, tmp_path / "staging")) as copy:
        assert copy.is_done
    with pytest.raises(TidelakeError, match="already"):
        copied(changefeed, tmp_path)


def test_a_copy_that_was_stopped_goes_on(changefeed: Changefeed, tmp_path: Path) -> None:
    seen: list[int] = []

    def is_stopped() -> bool:
        seen.append(0)
        return len(seen) > 4

    with pytest.raises(Stop):
        copied(changefeed, tmp_path, is_stopped=is_stopped)
    copied(changefeed, tmp_path)
    assert len(rows(tmp_path, "orders")) == 1_000
    assert len(rows(tmp_path, "events")) == 3


@pytest.mark.parametrize("dies_at", ["orders", "events", "begin"])
def test_a_load_that_was_broken_off_goes_on(
    changefeed: Changefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    from sinks.control.changefeeds import Changefeeds
    from sinks.merge_on_write.engine import MergeOnWriteEngine

    load, begin = MergeOnWriteEngine.load, Changefeeds.begin

    def broken_load(self: Any, order: Any) -> Any:
        done = load(self, order)
        if order.target.name.table == dies_at:
            raise KeyboardInterrupt
        return done

    def broken_begin(self: Any, row: Any) -> None:
        if dies_at == "begin":
            raise KeyboardInterrupt
        begin(self, row)

    with monkeypatch.context() as patched:
        patched.setattr(MergeOnWriteEngine, "load", broken_load)
        patched.setattr(Changefeeds, "begin", broken_begin)
        with pytest.raises(KeyboardInterrupt):
            copied(changefeed, tmp_path)
    copied(changefeed, tmp_path)
    assert len(rows(tmp_path, "orders")) == 1_000
    assert len(rows(tmp_path, "events")) == 3


def test_a_table_that_is_altered_meanwhile_is_copied_again(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer
) -> None:
    done: list[str] = []

    def alter(progress: TableProgress) -> None:
        if progress.is_done and not done:
            done.append(str(progress.table))
            server.execute(f"ALTER TABLE {NAME}.orders ADD COLUMN x INT NOT NULL DEFAULT 7")

    copied(changefeed, tmp_path, progress=alter)
    assert {row["x"] for row in rows(tmp_path, "orders")} == {7}
    progress = ControlTables.of(changefeed.sink).progress.read("shop")
    assert progress[TableName(NAME, "orders")].checkpoint_ts > 0


def test_a_folder_with_rows_of_others_is_refused(changefeed: Changefeed, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "lake" / NAME / "orders"), pa.table({"id": [1]}))
    with pytest.raises(TidelakeError, match="orders"):
        copied(changefeed, tmp_path)


def test_a_value_that_delta_has_not_is_said_at_once(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer
) -> None:
    server.execute("SET sql_mode = ''", f"INSERT INTO {NAME}.orders VALUES (5000, 'z', 0)")
    strict, staging = replace(changefeed, zero_date="fail"), tmp_path / "staging"
    said = rf"orders cannot be copied: 1 of its rows.*zero-date.*delete {staging}, since"
    for _ in range(2):
        with pytest.raises(ConfigError, match=said):
            copied(strict, tmp_path)
    server.execute(f"UPDATE {NAME}.orders SET at = '2024-01-01' WHERE id = 5000")
    shutil.rmtree(staging)
    copied(strict, tmp_path)
    assert len(rows(tmp_path, "orders")) == 1_001


def test_a_transaction_that_is_in_the_binlog_and_not_shown_yet_is_read_there(
    tmp_path: Path,
) -> None:
    """Its commit waits for a replica, say. A copy from the binlog's end on would never have it."""
    with DatabaseServer() as own:
        own.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.orders (id INT PRIMARY KEY)")
        file, offset = log_end(own)
        with held_commit(own, f"INSERT INTO {NAME}.orders VALUES (1)"):
            changefeed = changefeed_of(own, tmp_path)
            copied(changefeed, tmp_path)
    assert rows(tmp_path, "orders") == []
    row = ControlTables.of(changefeed.sink).changefeeds.read("shop")
    assert row is not None
    assert row.source_positions["binlog"] <= int(BinlogPosition(file_number(file), offset))
    progress = ControlTables.of(changefeed.sink).progress.read("shop")
    begins = progress[TableName(NAME, "orders")].source_positions["binlog"]
    assert begins <= int(BinlogPosition(file_number(file), offset))


def test_where_tables_swap_their_names_the_copy_begins_anew(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer
) -> None:
    """The stream would swap once more the rows that were copied behind the swap."""
    server.execute(
        f"CREATE TABLE {NAME}.shadow LIKE {NAME}.orders",
        f"INSERT INTO {NAME}.shadow SELECT * FROM {NAME}.orders WHERE id < 5",
    )
    done: list[str] = []

    def swap(progress: TableProgress) -> None:
        if not done:
            done.append(str(progress.table))
            server.execute(
                f"RENAME TABLE {NAME}.orders TO {NAME}.x, {NAME}.shadow TO {NAME}.orders, "
                f"{NAME}.x TO {NAME}.shadow"
            )

    copied(changefeed, tmp_path, progress=swap)
    assert (len(rows(tmp_path, "orders")), len(rows(tmp_path, "shadow"))) == (5, 1_000)
    tables = ControlTables.of(changefeed.sink)
    row = tables.changefeeds.read("shop")
    assert row is not None
    progress = tables.progress.read("shop")
    for table in ("orders", "shadow"):
        assert progress[TableName(NAME, table)].checkpoint_ts == row.start_ts  # behind the swap


def test_a_table_that_is_altered_while_it_is_loaded_is_loaded_as_it_was(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer
) -> None:
    """The stream has the DDL."""
    failpoint.configure("after-load-one=raise:1,after-load-one=raise:2")
    try:
        for column in ("x", "y"):
            with pytest.raises(failpoint.FailpointHit):
                copied(changefeed, tmp_path)
            server.execute(f"ALTER TABLE {NAME}.orders ADD COLUMN {column} INT")
            server.execute(f"ALTER TABLE {NAME}.events ADD COLUMN {column} INT")
    finally:
        failpoint.configure("")
    copied(changefeed, tmp_path)
    assert rows(tmp_path, "orders")[0].keys() == {"id", "v", "at"}
    assert len(rows(tmp_path, "orders")) == 1_000
    assert len(rows(tmp_path, "events")) == 3


def test_a_copy_whose_binlog_is_gone_begins_anew(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer, caplog: Any
) -> None:
    with pytest.raises(Stop):
        copied(changefeed, tmp_path, is_stopped=lambda: True)
    server.execute("FLUSH BINARY LOGS")
    ((newest, *_),) = server.query("SHOW MASTER STATUS")

    def is_gone() -> bool:
        """A file that a connection still reads is not deleted."""
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    await_("the old binlog is gone", is_gone)
    copied(changefeed, tmp_path)
    assert "begins anew" in own_text(caplog)
    assert len(rows(tmp_path, "orders")) == 1_000


def test_another_process_that_copies_is_named(changefeed: Changefeed, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    with only_one(staging), pytest.raises(TidelakeError, match="another process"):
        copied(changefeed, tmp_path)


def test_many_tables_that_need_a_moment_of_their_own(
    changefeed: Changefeed, tmp_path: Path, server: DatabaseServer
) -> None:
    """Each may have another position in the log: more than there are pins."""
    server.execute(*(f"CREATE TABLE {NAME}.k{n} (a INT)" for n in range(80)))
    stop = threading.Event()

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for n in itertools.count(10_000):
                cursor.execute(f"INSERT INTO {NAME}.orders (id) VALUES ({n})")
                if stop.is_set():
                    break

    writer = threading.Thread(target=write)
    writer.start()
    try:
        log = TableRule(matcher=(f"{NAME}.*",), write_mode="append")
        sink = replace(changefeed.sink, tables=(log,))
        copied(replace(changefeed, sink=sink), tmp_path)
    finally:
        stop.set()
        writer.join()
    tables = ControlTables.of(changefeed.sink)
    row, progress = tables.changefeeds.read("shop"), tables.progress.read("shop")
    assert row is not None
    begin = row.source_positions["binlog"]
    assert begin in {pin.position for pin in from_token(row.watermarks["binlog"].token)}
    by_place = sorted((p.source_positions["binlog"], p.checkpoint_ts) for p in progress.values())
    assert len({at for at, _ in by_place}) > 1
    stamps = [ts for _, ts in by_place]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= row.max_published_ts


def test_the_row_says_that_tables_are_loading_and_then_what_was_loaded(
    changefeed: Changefeed, tmp_path: Path
) -> None:
    table = ControlTables.of(changefeed.sink).changefeeds
    with closing(FirstCopy(changefeed, tmp_path / "staging")) as copy:
        copy.show("loading", 30.0)
        row = table.read("shop")
        assert row is not None
        assert (row.state, row.fresh_for_s, row.term) == ("loading", 30.0, 0)
        assert "being copied" in awaited(row)
        copy.run()
        copy.show("loading", 30.0)  # too late
        row = table.read("shop")
        assert row is not None
        assert row.state == "stopped"
        assert row.source_positions
