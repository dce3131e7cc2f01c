"""Tables that cannot go on for other reasons than a DDL: each is loaded anew from its database."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from rich.console import Console

from conf.route_rules import Extract, RouteRule
from conf.settings import FilterSettings, TableRule
from coordination.errors import ConfigError, TidelakeError, TryAgain
from streaming.changefeed.freshness import Freshness
from streaming.cli.terminal import progress
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.orders.reloads import order_reload
from streaming.operations.progress_report import read_progress
from tests.acceptance.copied_database import CopiedDatabase, make_account
from tests.services.database_editions import MARIADB_10_11, MYSQL_9_7
from tests.services.database_server import DatabaseServer, needs
from tests.services.second_editions import second

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb]

TABLES = ("c.moved", "c.by_hand", "c.restored", "c.left_out", "c.rekeyed", "c.fine")


@pytest.fixture(scope="module", params=[MARIADB_10_11, *second(MYSQL_9_7)], ids=str)
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    needs(request.param)
    with DatabaseServer(request.param) as server:
        make_account(server)
        yield server


@pytest.fixture
def server(own_server: DatabaseServer) -> Iterator[DatabaseServer]:
    with own_server.database("c"):
        own_server.execute("CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)")
        yield own_server


def alter_by_hand(folder: Path) -> None:
    """A commit by another writer adds a column."""
    log = folder / "_delta_log"
    version = DeltaTable(str(folder)).version()
    commits = (log / f"{each:020}.json" for each in range(version, -1, -1))
    actions = (json.loads(line) for each in commits for line in each.read_text().splitlines())
    metadata = next(each["metaData"] for each in actions if "metaData" in each)
    schema = json.loads(metadata["schemaString"])
    notes = {
        "delta.columnMapping.id": 99,
        "delta.columnMapping.physicalName": "col-99",
    }
    schema["fields"].append(
        {"name": "by_hand", "type": "string", "nullable": True, "metadata": notes}
    )
    told = {**metadata, "schemaString": json.dumps(schema)}
    info = {"commitInfo": {"operation": "ADD COLUMNS", "timestamp": 0}}
    text = "\n".join(json.dumps(each) for each in (info, {"metaData": told}))
    (log / f"{version + 1:020}.json").write_text(text)


def refused(database: CopiedDatabase) -> str:
    with pytest.raises(TidelakeError) as found, database.followed() as life:
        life.join()
    return str(found.value)


def assert_equal(database: CopiedDatabase, *tables: str) -> None:
    found = compare_with_database(
        database.sink, None, tables, database.source, limits=DiffLimits(), told=lambda *_: None
    )
    assert found.is_equal, found


def is_blocked(database: CopiedDatabase, table: str) -> bool:
    return database.progress()[table].state == "blocked"


def test_tables_that_were_harmed_go_on(server: DatabaseServer, tmp_path: Path) -> None:
    for each in TABLES:
        server.execute(f"CREATE TABLE {each} (id INT PRIMARY KEY, v INT)")
        server.insert(each, [(number, number) for number in range(100)])
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute(*(f"UPDATE {each} SET v = v + 1 WHERE id < 9" for each in TABLES))
        database.wait_beside(life)
        life.wait_until(lambda: {"c.moved", "c.fine"} <= database.snapshots())
    rules = FilterSettings(rules=("c.*", "!c.left_out"))
    with database.followed(filter=rules) as life:
        before = database.progress()["c.fine"].checkpoint_ts
        server.execute("UPDATE c.left_out SET v = 7", "DELETE FROM c.left_out WHERE id > 50")
        server.execute("UPDATE c.fine SET v = 8 WHERE id = 8")
        life.wait_until(lambda: database.progress()["c.fine"].checkpoint_ts > before)
    shutil.move(database.path("c.moved"), tmp_path / "moved_away")
    alter_by_hand(Path(database.path("c.by_hand")))
    DeltaTable(database.path("c.restored")).restore(1)
    server.execute(
        "ALTER TABLE c.rekeyed DROP PRIMARY KEY, "
        "ADD COLUMN n INT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
        *(f"UPDATE {each} SET v = v + 1 WHERE id BETWEEN 5 AND 20" for each in TABLES),
    )
    for harmed in ("c.by_hand", "c.left_out", "c.moved", "c.restored"):  # each ends the start
        told = refused(database)
        assert f"`tidelake table reload {harmed}`" in told
        database.load_anew(harmed)
    assert "c.moved" not in database.snapshots()  # its versions are gone
    with database.followed() as life:
        life.wait_until(lambda: is_blocked(database, "c.rekeyed"))
        assert "`tidelake table reload c.rekeyed`" in str(database.progress()["c.rekeyed"].error)
    database.load_anew("c.rekeyed")
    assert {each.state for each in database.orders().values()} == {"done"}
    operations = {each["operation"] for each in DeltaTable(database.path("c.fine")).history()}
    assert "REPLACE TABLE" not in operations
    with database.followed() as life:
        server.execute(*(f"DELETE FROM {each} WHERE id = 3" for each in TABLES))
        database.wait_beside(life)
        life.wait_until(lambda: not is_blocked(database, "c.rekeyed"))
        assert_equal(database)
        states = {name: row.state for name, row in database.progress().items()}
        assert states == dict.fromkeys((*TABLES, "c.beside"), "replicating")
        life.wait_until(lambda: set(TABLES) <= database.snapshots())


def test_a_target_of_each_form_is_loaded_anew_or_refused(
    server: DatabaseServer, tmp_path: Path
) -> None:
    tables = (
        TableRule(matcher=("c.soft",), soft_delete=True, extra_columns=("_tidelake_commit_ts",)),
        TableRule(matcher=("c.keyless",), key="all-columns"),
        TableRule(matcher=("c.log",), write_mode="append"),
        TableRule(matcher=("c.versions",), write_mode="history"),
        TableRule(matcher=("c.r",), key="rows"),
    )
    told = Extract(regexp="s(.*)", target_column="t")
    route = RouteRule(matcher=("c.s?",), target_schema="c", target_table="s", extract_table=told)
    of_r = Extract(regexp="r(.*)", target_column="t")
    other = RouteRule(matcher=("c.r?",), target_schema="c", target_table="r", extract_table=of_r)
    keyed = ("soft", "log", "versions", "s1", "s2", "letters")
    server.execute(*(f"CREATE TABLE c.{each} (id INT PRIMARY KEY, at DATE)" for each in keyed))
    server.execute("CREATE TABLE c.keyless (id INT, at DATE)")
    for each in (*keyed, "keyless"):
        server.insert(f"c.{each}", [(number, "2020-01-01") for number in range(1, 40)])
    database = CopiedDatabase(
        server, tmp_path, tables=tables, routes=[route, other], zero_date="fail"
    )
    database.copy()
    with database.followed() as life:
        server.execute(
            *("CREATE TABLE c.r1 (v INT)", "CREATE TABLE c.r2 (v INT)"),
            *("INSERT INTO c.r1 VALUES (1), (1)", "INSERT INTO c.r2 VALUES (1)"),
            "DELETE FROM c.soft WHERE id = 5",
            "SET sql_mode = ''",
            "INSERT INTO c.letters VALUES (50, '0000-00-00')",
        )
        database.wait_beside(life)
        life.wait_until(lambda: database.progress()["c.letters"].dead_letters)
    server.execute(
        "UPDATE c.letters SET at = '2021-01-01' WHERE id = 50",
        *(f"ALTER TABLE c.{each} ADD COLUMN y INT AS (id * 2) STORED" for each in ("s1", "s2")),
        "ALTER TABLE c.soft ADD COLUMN y INT AS (id * 2) STORED",
        "INSERT INTO c.keyless VALUES (100, NULL)",
        "INSERT INTO c.s2 (id) VALUES (100)",
    )
    anew = ("c.soft", "c.s", "c.keyless", "c.letters")
    assert len(database.delta_rows("c.soft")) == 39  # one is marked
    database.load_anew(*anew)
    assert [(each.state, each.error) for each in database.orders().values()] == [("done", None)] * 4
    assert len(database.delta_rows("c.soft")) == 38
    with pytest.raises(ConfigError, match=r"c\.r1, c\.r2 go into it, .* have to be of one moment"):
        database.load_anew("c.r")
    for each, kind in (("c.log", "events"), ("c.versions", "versions of rows")):
        with pytest.raises(ConfigError, match=f"holds {kind} of before that no copy has"):
            order_reload(database.sink, None, each, is_dry=True)
        shutil.move(database.path(each), tmp_path / f"moved {each}")
        database.load_anew(each)
        assert database.orders()[each].state == "done"
    with database.followed() as life:
        server.execute(*(f"DELETE FROM c.{each} WHERE id = 7" for each in (*keyed, "keyless")))
        database.wait_beside(life)
        life.wait_until(lambda: not database.progress()["c.letters"].dead_letters)
        for each in anew:
            life.wait_until(lambda each=each: database.progress()[each].state == "replicating")
        columns = {"id", "at", "y"}
        assert {*database.delta_rows("c.s")[0]} == {*columns, "t"}
        found = database.delta_rows("c.soft")
        assert {*found[0]} == {*columns, "_tidelake_commit_ts", "_tidelake_deleted"}
        assert [row["id"] for row in found if row["_tidelake_deleted"]] == [7]
        assert all(row["y"] == row["id"] * 2 for row in found)
        assert_equal(database, "c.s", "c.keyless", "c.letters")
        events = [row["_op"] for row in database.delta_rows("c.log")]
        assert sorted(events) == ["delete", *["insert"] * 39]
        versions = [row["_is_current"] for row in database.delta_rows("c.versions")]
        assert sorted(versions) == [False, *[True] * 38]


def test_a_copy_that_is_made_again_for_an_order_is_the_one_that_counts(
    server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind its commit, and carried out again where the copied files are not: on another
    machine, say. The table goes on where the second copy begins, so it has to be that one."""
    server.execute("CREATE TABLE c.t (id INT PRIMARY KEY, v INT)", "INSERT INTO c.t VALUES (1, 1)")
    database = CopiedDatabase(server, tmp_path)
    database.copy()
    with database.followed() as life:
        server.execute("UPDATE c.t SET v = 2")
        database.wait_beside(life)
    with monkeypatch.context() as patched:
        patched.setattr("streaming.spans.copies.load_all.first_progress", dies)
        with pytest.raises(TryAgain, match="killed"):
            database.load_anew("c.t")
    for each in tmp_path.glob("staging~reload-*"):
        shutil.rmtree(each)
    server.execute("UPDATE c.t SET v = 3", "INSERT INTO c.t VALUES (2, 3)")
    database.load_anew("c.t")
    assert database.orders()["c.t"].state == "done"
    with database.followed() as life:
        server.execute("INSERT INTO c.t VALUES (3, 3)")
        database.wait_beside(life)
        assert_equal(database, "c.t")


def dies(*_: object) -> None:
    raise TryAgain("killed")


def refusal(database: CopiedDatabase, table: str) -> str:
    with pytest.raises(ConfigError) as found:
        order_reload(database.sink, None, table, is_dry=False)
    return str(found.value)


def test_what_cannot_be_loaded_anew_is_refused_and_what_fails_is_given_up(
    server: DatabaseServer, tmp_path: Path
) -> None:
    server.execute(
        "CREATE TABLE c.gone (id INT PRIMARY KEY)",
        "CREATE TABLE c.kept (id INT PRIMARY KEY)",
        "CREATE TABLE c.named (id INT PRIMARY KEY)",
        "CREATE TABLE c.keyless (id INT)",
        "INSERT INTO c.keyless VALUES (1)",
    )
    database = CopiedDatabase(server, tmp_path, on_no_key="leave-out")
    with pytest.raises(TidelakeError, match="no changefeed has run"):
        order_reload(database.sink, None, "c.kept", is_dry=True)
    database.copy()
    assert "has no table c.nothing, but c.beside, c.gone" in refusal(database, "c.nothing")
    assert "table c.keyless is not replicated: it had no primary key" in refusal(
        database, "c.keyless"
    )
    with pytest.raises(ConfigError, match="has no changefeed 'other', but followed"):
        order_reload(database.sink, "other", "c.kept", is_dry=True)
    with database.followed() as life:
        server.execute("CREATE TABLE c.late (id INT)", "INSERT INTO c.late VALUES (1)")
        database.wait_beside(life)
        life.wait_until(lambda: "c.late" in database.progress())
    assert "table c.late has no target: it has no primary key" in refusal(database, "c.late")
    server.execute("DROP TABLE c.gone")
    told = order_reload(database.sink, None, "c.kept", source=database.source, is_dry=True)
    assert told["becomes"] == "id int(11); key id" or told["becomes"] == "id int; key id"
    assert told["now"] == "nothing holds it"
    assert database.orders() == {}
    database.load_anew("c.gone")
    order = database.orders()["c.gone"]
    assert order.state == "given up"
    assert "the database has no table that goes into c.gone" in (order.error or "")
    server.execute("RENAME TABLE c.named TO c.other, c.other TO c.named")
    database.load_anew("c.named")
    told_why = database.orders()["c.named"].error or ""
    assert "has caught up (`tidelake progress`), order it again" in told_why
    server.execute("ALTER TABLE c.kept DROP PRIMARY KEY")
    first = order_reload(database.sink, None, "c.kept", is_dry=False)
    again = order_reload(database.sink, None, "c.kept", is_dry=False)
    assert (first["state"], again["state"]) == ("ordered", "ordered")
    assert (bool(first["changed"]), again["changed"]) == (True, {})
    report = read_progress(database.sink, None, Freshness())
    states = {str(row.name): report.state(row) for row in report.spans}
    assert states["c.kept"] == "reloading"
    shown = {row["table_name"]: row["reload"] for row in report.to_json()["spans"]}
    assert (shown["kept"]["state"], shown["gone"]["state"]) == ("ordered", "given up")
    assert shown["beside"] is None
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(progress(report, 200))
    text = console.export_text()
    assert "table c.kept is to be loaded anew (ordered at" in text
    assert "table c.gone was not loaded anew" in text
    database.load_anew("c.kept")
    assert "cannot be told row by row" in (database.orders()["c.kept"].error or "")
    with database.followed() as life:
        database.wait_beside(life)
        life.wait_until(lambda: database.progress()["c.gone"].state == "dropped")
    assert "was dropped in the database" in refusal(database, "c.gone")
