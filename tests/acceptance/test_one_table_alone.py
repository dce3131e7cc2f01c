"""What concerns one table holds that table: the others are copied and followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from conf.route_rules import RouteRule
from conf.settings import TableRule
from coordination.errors import ConfigError
from streaming.changefeed.freshness import Freshness
from streaming.operations.check import Finding, verdict
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.progress_report import read_progress
from streaming.process.copy_first import copy_first
from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7, Edition
from tests.services.database_server import DatabaseServer, needs
from tests.services.second_editions import first_of

pytestmark = pytest.mark.mariadb
BESIDE = "CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)"


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, DatabaseServer]]:
    found: dict[str, DatabaseServer] = {}
    yield found
    for each in found.values():
        each.stop()


@pytest.fixture
def server(
    request: pytest.FixtureRequest, running: dict[str, DatabaseServer]
) -> Iterator[DatabaseServer]:
    needs(request.param)
    if request.param.name not in running:
        running[request.param.name] = DatabaseServer(request.param).start()
        make_account(running[request.param.name])
    with running[request.param.name].database("c"):
        yield running[request.param.name]


def on(*editions: Edition) -> pytest.MarkDecorator:
    found = editions if len(editions) == 1 else first_of(editions, [editions[0]])
    return pytest.mark.parametrize("server", found, ids=lambda each: each.name, indirect=True)


@on(MARIADB_10_11, MARIADB_11_8)
def test_a_key_without_overlaps(server: DatabaseServer, tmp_path: Path) -> None:
    """Its rows are told apart by the period's columns."""
    of = "(id INT, s DATE, e DATE, v INT, PERIOD FOR p(s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS))"
    rows = "(1, '2026-01-01', '2026-12-31', 1), (2, '2026-01-01', '2026-02-01', 2)"
    insert = f"INSERT INTO c.{{0}} VALUES {rows}"
    changes = (
        "UPDATE c.{0} FOR PORTION OF p FROM '2026-03-01' TO '2026-04-01' SET v = 9",
        "DELETE FROM c.{0} FOR PORTION OF p FROM '2026-06-01' TO '2026-07-01'",
        "UPDATE c.{0} SET e = '2026-02-02' WHERE id = 2",
    )
    server.execute(BESIDE, f"CREATE TABLE c.o {of}", insert.format("o"))
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute(*(each.format("o") for each in changes), f"CREATE TABLE c.made {of}")
        server.execute(insert.format("made"), *(each.format("made") for each in changes))
        database.wait_beside(life)
        life.wait_until(database.is_same("c.o"))
        life.wait_until(database.is_same("c.made"))
        assert len(database.delta_rows("c.o")) == 5


@on(MYSQL_9_7, MARIADB_11_8)
def test_vectors(server: DatabaseServer, tmp_path: Path) -> None:
    """Of MySQL they are arrays, of MariaDB bytes; copied, streamed or made by a DDL."""
    text = "VEC_FromText" if server.edition.is_mariadb else "STRING_TO_VECTOR"
    insert = f"INSERT INTO c.{{0}} VALUES (1, {text}('[1,-2.5,0.1]')), (2, NULL)"
    for table in (
        "beside (id INT PRIMARY KEY AUTO_INCREMENT)",
        "v (id INT PRIMARY KEY, x VECTOR(3))",
    ):
        server.execute(f"CREATE TABLE c.{table}")
    server.execute(insert.format("v"))
    if server.edition.is_mariadb:
        of = "(id INT PRIMARY KEY, x VECTOR(3) NOT NULL, VECTOR INDEX (x))"
        server.execute(
            f"CREATE TABLE c.indexed {of}", "INSERT INTO c.indexed SELECT * FROM c.v WHERE id = 1"
        )
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute(
            f"INSERT INTO c.v VALUES (3, {text}('[1,-2.5,0.1]'))",
            "UPDATE c.v SET id = 4 WHERE id = 2",
            "CREATE TABLE c.made (id INT PRIMARY KEY, x VECTOR(3))",
            insert.format("made"),
        )
        database.wait_beside(life)
        life.wait_until(lambda: len(database.delta_rows("c.made")) == 2)
        copied, streamed, none = database.delta_rows("c.v")
        made, _ = database.delta_rows("c.made")
        limits = DiffLimits()
        told = compare_with_database(
            database.sink, None, (), database.source, limits=limits, told=lambda *_: None
        )
    assert {each.result for each in told.tables} == {"equal"}
    assert copied["x"] == streamed["x"] == made["x"]
    assert (copied["id"], streamed["id"], none) == (1, 3, {"id": 4, "x": None})
    if server.edition.is_mariadb:
        ((stored,),) = server.query("SELECT x FROM c.v WHERE id = 1")
        assert copied["x"] == stored
        assert copied == database.delta_rows("c.indexed")[0]
    else:
        assert copied["x"] == pytest.approx([1, -2.5, 0.1])


@on(MARIADB_10_11, MYSQL_9_7)
def test_a_text_that_is_none_holds_its_table(server: DatabaseServer, tmp_path: Path) -> None:
    """A lone half of a character of UTF-16, as Java's and Oracle's CESU-8 has them."""
    charset, raw = ("utf8mb3", "EDA0BD") if server.edition.is_mariadb else ("ucs2", "D83D")
    server.execute(
        BESIDE,
        f"CREATE TABLE c.t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET {charset})",
        "CREATE TABLE c.u (a INT, b CHAR(9), w CHAR(9) CHARACTER SET ucs2, PRIMARY KEY (b, a))",
        "CREATE TABLE c.o (id INT PRIMARY KEY)",
        "INSERT INTO c.o VALUES (1)",
        f"INSERT INTO c.t VALUES (1, 'ok'), (2, _{charset} x'{raw}')",
        "INSERT INTO c.u VALUES (7, 'x', _ucs2 x'D83D'), (8, 'y', 'z')",
    )
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute("INSERT INTO c.o VALUES (2)", "INSERT INTO c.t VALUES (5, 'y')")
        database.wait_beside(life)
        life.wait_until(database.is_same("c.o"))
        progress = database.progress()
        first, second = (progress[table].error or "" for table in ("c.t", "c.u"))
        assert "column v of its row id = '2' has bytes that are no text of " in first
        assert f"{charset}: 0xeda0bd" in first
        assert "column w of its row b = 'x', a = '7' has" in second
        assert {progress[table].state for table in ("c.t", "c.u")} == {"warning"}
        assert database.delta_rows("c.t") == []
    database.copy()  # nothing has changed: it waits on
    server.execute("UPDATE c.t SET v = 'mended' WHERE id = 2")
    database.copy()
    with database.followed() as life:
        database.wait_beside(life)
        life.wait_until(database.is_same("c.t"))
        assert database.progress()["c.t"].lacks is None
        assert database.progress()["c.u"].lacks is not None


@on(MARIADB_10_11, MYSQL_9_7)
def test_what_an_account_may_not_read_whole_waits(server: DatabaseServer, tmp_path: Path) -> None:
    monitor = "REPLICATION SLAVE, REPLICATION CLIENT"
    server.execute(
        BESIDE,
        *(f"CREATE TABLE c.{table} (id INT PRIMARY KEY, a INT)" for table in "tio"),
        *(f"INSERT INTO c.{table} VALUES (1, 1)" for table in "tio"),
        "DROP USER IF EXISTS few",
        "CREATE USER few@'%'",
        f"GRANT {monitor} ON *.* TO few@'%'",
        *(f"GRANT SELECT ON c.{table} TO few@'%'" for table in ("beside", "o")),
        "GRANT SELECT (id) ON c.t TO few@'%'",
        "GRANT INSERT ON c.i TO few@'%'",
    )
    database = CopiedDatabase(server, tmp_path)
    few = replace(database.source, user="few")
    database.copy(source=few)
    with database.followed(source=few) as life:
        server.execute("INSERT INTO c.o VALUES (2, 2)", "INSERT INTO c.t VALUES (2, 2)")
        database.wait_beside(life)
        life.wait_until(database.is_same("c.o"))
        progress = database.progress()
        for table in "ti":
            assert f"GRANT SELECT ON `c`.`{table}` TO 'few'@'%'" in (
                progress[f"c.{table}"].error or ""
            )
            assert database.delta_rows(f"c.{table}") == []
    server.execute("GRANT SELECT ON c.t TO few@'%'")
    database.copy(source=few)
    with database.followed(source=few) as life:
        database.wait_beside(life)
        life.wait_until(database.is_same("c.t"))
        assert [n for n, row in database.progress().items() if row.lacks] == ["c.i"]


@on(MARIADB_10_11, MYSQL_9_7)
def test_what_cannot_be_copied_waits(server: DatabaseServer, tmp_path: Path) -> None:
    """Nothing of it is known only behind the copy, nor is it all that the start knows."""
    kept = {"c.kept": "no consistent reads: make it an InnoDB table"}
    server.execute(
        BESIDE,
        "CREATE TABLE c.o (id INT PRIMARY KEY)",
        "INSERT INTO c.o VALUES (1)",
        "CREATE TABLE c.kept (id INT PRIMARY KEY) ENGINE = MyISAM",
    )
    if server.edition.is_mariadb:
        kept |= {
            "c.versioned": "it is system-versioned",
            "c.away": "is not replicated: the database at",
        }
        server.execute(
            "CREATE TABLE c.versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
            "CREATE TABLE c.away (id INT PRIMARY KEY) ENGINE = MyISAM",
        )
        (server.folder / "data" / "c" / "away.frm").write_bytes(b"garbage")
        server.execute("FLUSH TABLES")
    database = CopiedDatabase(
        server, tmp_path, tables=[TableRule(matcher=("c.kept",), write_mode="history")]
    )
    database.copy()
    with database.followed() as life:
        server.execute("INSERT INTO c.o VALUES (2)", "INSERT INTO c.kept VALUES (5)")
        database.wait_beside(life)
        life.wait_until(database.is_same("c.o"))
        errors = {name: row.error for name, row in database.progress().items() if row.lacks}
    for each in (server.folder / "data" / "c").glob("away.*"):
        each.unlink()  # else the database could not be dropped
    assert errors.keys() == kept.keys()
    for name, why in kept.items():
        assert why in errors[name]


@on(MARIADB_10_11, MYSQL_9_7)
def test_all_that_refuses_a_copy_is_told_before_it(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(
        BESIDE,
        "CREATE TABLE c.no_key (id INT)",
        "CREATE TABLE c.none_either (id INT)",
        "CREATE TABLE c.taken (id INT PRIMARY KEY)",
        "CREATE TABLE c.eu (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c.us (id INT PRIMARY KEY, v BIGINT)",
        "INSERT INTO c.beside VALUES (1)",
    )
    routes = (
        RouteRule(
            matcher=("c.eu", "c.us"), target_schema="c", target_table="all", disjoint_keys=True
        ),
    )
    database = CopiedDatabase(server, tmp_path, routes=routes)
    write_deltalake(str(database.warehouse / "c" / "taken"), pa.table({"id": [1]}))
    with pytest.raises(ConfigError) as refused:
        database.copy()
    said = str(refused.value)
    for part in (
        "none is copied: c.no_key, c.none_either",
        "goes into c.all with others, and has other columns",
        "table c.taken at",
        "was not made by Tidelake",
    ):
        assert part in said
    assert not list((tmp_path / "staging").glob("*/*.parquet"))


@on(MARIADB_10_11)
def test_a_first_copy_that_is_refused_shows_why(server: DatabaseServer, tmp_path: Path) -> None:
    server.execute(BESIDE, "CREATE TABLE c.no_key (id INT)")
    database = CopiedDatabase(server, tmp_path)
    with pytest.raises(ConfigError):
        copy_first(database.changefeed)
    report = read_progress(database.sink, None, Freshness())
    (row,) = report.changefeeds
    assert (row.state, "none is copied: c.no_key" in (row.error or "")) == ("failed", True)
    assert verdict(report, 60.0).finding is Finding.FAILED
    server.execute("ALTER TABLE c.no_key ADD PRIMARY KEY (id)")
    copy_first(database.changefeed)
    (row,) = read_progress(database.sink, None, Freshness()).changefeeds
    assert (row.state, row.error) == ("stopped", None)
