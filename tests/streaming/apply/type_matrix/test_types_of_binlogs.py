"""The values of the recorded table in real servers, and what their binlogs bring of them: all, as
the column BINLOG of the page says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.services import wire
from tests.services.database_editions import EDITIONS
from tests.services.database_server import DatabaseServer
from tests.streaming.apply.type_matrix.extremes import with_extremes
from tests.streaming.apply.type_matrix.matrix import differing
from tests.streaming.apply.type_matrix.readings import LOAD, NAME, Recording, create_table
from tests.streaming.source.binlog.binlogs import Binlog, blocks_of, recorded

pytestmark = pytest.mark.mariadb
SESSION = "SET sql_mode = '', time_zone = '+00:00'"
TABLE = f"{NAME.schema}.{NAME.table}"
VECTOR = "c_vec"  # MariaDB's are VARBINARY in its binlog


@pytest.fixture(params=EDITIONS, ids=lambda edition: edition.name)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        yield running


def inserted(server: DatabaseServer, *, has_vectors: bool) -> tuple[Binlog, dict[int, str]]:
    """The binlog of a table with these values, and its documents by key: a server has its own order
    of a document's keys."""
    table = with_extremes(wire.expected(LOAD)[NAME.table])
    names = [
        each for each in table.columns if each != "c_gen_s" and (has_vectors or each != VECTOR)
    ]
    marks = ["STRING_TO_VECTOR(%s)" if each == VECTOR else "%s" for each in names]
    columns = [f"`{each}`" for each in names]
    insert = f"INSERT INTO {TABLE} ({', '.join(columns)}) VALUES ({', '.join(marks)})"
    shown = {int(each["id"]): each for each in wire.shown_rows(LOAD, NAME.table)}
    created = create_table()
    if not has_vectors:
        created = created.replace(f",`{VECTOR}` VECTOR(3)", "")
    database = server.database(NAME.schema, "CHARACTER SET utf8mb4")
    with (
        database,
        recorded(server) as found,
        server.connect(charset="utf8mb4", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(SESSION)
        cursor.execute(f"USE {NAME.schema}")
        cursor.execute(created)
        for row in table.rows:
            texts = shown[row["id"]]
            cursor.execute(insert, [given(row[each], texts[each]) for each in names])
        cursor.execute(f"SELECT id, c_json FROM {TABLE}")
        documents = {int(key): text for key, text in cursor.fetchall()}
    return found[0], documents


def given(value: Any, text: Any) -> Any:
    """A value as a session gets it. TiDB shows it as ``text``, or as bytes or names in a dict: a
    date that Python does not have, and a vector, are given so."""
    return text if value is None or isinstance(value, list) else value


def test_a_binlog_brings_the_databases_values(server: DatabaseServer) -> None:
    has_vectors = not server.edition.is_mariadb
    binlog, documents = inserted(server, has_vectors=has_vectors)
    blocks = blocks_of(binlog, TABLE, key=("id",))
    recording = Recording(
        variant=server.edition.name,
        protocol="canal-json",  # for dead letters, of which there are none
        blocks=lambda _: blocks,
        labels=(LOAD,),
        exchange=bytes,
        has_extremes=True,
    )
    others = ("c_json",) if has_vectors else ("c_json", VECTOR)
    assert [each for each in differing(recording) if each.column not in others] == []
    assert {key: row["c_json"] for key, row in recording.values(LOAD).items()} == documents
