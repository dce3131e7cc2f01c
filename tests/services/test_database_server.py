"""What the other tests rely on in the databases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.services import database_editions
from tests.services.database_editions import EDITIONS, MARIADB_10_11, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer, needs

pytestmark = pytest.mark.mariadb


@pytest.fixture(params=EDITIONS, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest):
    with DatabaseServer(request.param) as running:
        yield running


def test_it_is_the_edition_that_was_asked_for(server: DatabaseServer):
    ((version,),) = server.query("SELECT VERSION()")
    assert server.edition.name.split("-")[1] in version
    assert ("MariaDB" in version) == server.edition.is_mariadb


def test_a_row_arrives_in_the_binlog_with_names(server: DatabaseServer):
    server.execute(
        "DROP DATABASE IF EXISTS kept",
        "CREATE DATABASE kept",
        "CREATE TABLE kept.t (id INT PRIMARY KEY, a_name VARCHAR(20))",
        "INSERT INTO kept.t VALUES (1, 'a-value')",
    )
    (file,) = {row[0] for row in server.query("SHOW BINARY LOGS")}
    events = [row[2] for row in server.query(f"SHOW BINLOG EVENTS IN '{file}'")]
    assert any(name.startswith("Write_rows") for name in events)
    written = (server.folder / "data" / file).read_bytes()
    assert b"a-value" in written
    assert b"\x06a_name" in written  # binlog_row_metadata=FULL


@pytest.mark.parametrize("edition", [MARIADB_10_11, MYSQL_9_7], ids=lambda edition: edition.name)
def test_data_and_port_survive_kill_restart_and_pause(edition: Edition):
    with DatabaseServer(edition) as own:
        port = own.port
        own.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        own.insert("d.t", [[n] for n in range(1000)])
        own.kill()
        own.restart({"binlog-row-metadata": "MINIMAL"})
        assert own.query("SELECT COUNT(*) FROM d.t") == [(1000,)]
        assert own.query("SELECT @@binlog_row_metadata") == [("MINIMAL",)]
        own.pause()
        own.resume()
        own.insert("d.t", [[1000]])
        own.restart()
        assert own.query("SELECT COUNT(*), @@port FROM d.t") == [(1001, port)]
        folder = own.folder
    assert not folder.exists()


def test_it_starts_quickly():
    """On a quiet machine in half a second; a test may have one of its own."""
    best_s = 60.0
    for _ in range(3):
        started = time.monotonic()
        with DatabaseServer(MARIADB_10_11):
            best_s = min(best_s, time.monotonic() - started)
    assert best_s < 3


def test_a_server_that_is_not_there_skips_its_tests_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_editions, "SERVERS", tmp_path)
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match=r"no mysql-9\.7 in .*: run make servers"):
        needs(MYSQL_9_7)
    (tmp_path / "mysql-9.7.absent").write_text("Debian's sid has mysql-server-core 10.1 now\n")
    with pytest.raises(pytest.skip.Exception, match="sid has mysql-server-core 10"):
        DatabaseServer(MYSQL_9_7).start()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception):
        needs(MYSQL_9_7)
    with pytest.raises(pytest.fail.Exception, match=r"no mariadb-10\.11"):
        needs(MARIADB_10_11)
