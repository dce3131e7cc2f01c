"""Tables that cannot go on for other reasons than a DDL: each is loaded anew from its database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conf.settings import FilterSettings
from coordination.errors import TidelakeError
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
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


def assert_equal(database: CopiedDatabase) -> None:
    found = compare_with_database(
        database.sink, None, (), database.source, limits=DiffLimits(), told=lambda *_: None
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
