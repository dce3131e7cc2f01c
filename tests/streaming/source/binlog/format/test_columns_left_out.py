"""Row images that lack columns, as real servers write them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streaming.apply.values.typed_rows import untold
from streaming.protocols.contract import DATA, LETTER_HEAD, OLD, Block, Kind, Messages
from streaming.source.binlog.format.letters import letter_blocks, letters_of
from tests.services.database_editions import EDITIONS, MARIADB_11_8
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog.binlogs import Binlog, blocks_of, on, wanted, written

pytestmark = pytest.mark.mariadb

CREATED = """CREATE TABLE d.t (id INT PRIMARY KEY, v INT AS (a + 1) VIRTUAL, a INT, b TEXT,
    s INT AS (a + 2) STORED, c VARCHAR(9), UNIQUE KEY (b) USING HASH)"""
STATEMENTS = (
    "INSERT INTO d.t (id, a, b, c) VALUES (1, 1, 'x', 'p'), (2, NULL, NULL, 'q')",
    "UPDATE d.t SET c = 'r' WHERE id = 1",
    "UPDATE d.t SET a = 7, c = NULL WHERE id = 2",
    "UPDATE d.t SET id = 5 WHERE id = 2",
    "UPDATE d.t SET c = CONCAT(id, 'z')",
    "REPLACE INTO d.t (id, a, b, c) VALUES (9, 9, 'x', 'y')",
    "DELETE FROM d.t WHERE id = 5",
)
OPS = {0: "delete", 1: "insert", 2: "update"}


def rows(blocks: list[Block]) -> list[dict[str, Any]]:
    """The rows by place, each with the columns that nobody tells."""
    found = []
    for block in blocks:
        assert block.kind is Kind.ROW
        table = block.table()
        lacking = untold(table.schema.field(DATA).type)
        found += [{"old": None, **row, "untold": lacking} for row in table.to_pylist()]
    return sorted(found, key=lambda row: (row["position"], row["index"]))


def told(row: dict[str, Any], side: str = DATA) -> Any:
    return row[side] and tuple(row[side][name] for name in ("id", "a", "b", "c"))


@on(MARIADB_11_8)
@pytest.mark.parametrize("image", ["FULL", "FULL_NODUP"])
def test_what_an_update_brings_is_whole_but_for_generated_columns(
    server: DatabaseServer, image: str
):
    """MariaDB leaves these and hidden ones out of all images but those of INSERTs; FULL_NODUP also
    leaves out of the new one what is as before."""
    server.execute(CREATED)
    log = written(server, f"SET binlog_row_image = '{image}'", *STATEMENTS)
    for key in (("id",), None):
        found = rows(blocks_of(log, "d.t", key=key))
        assert [told(row) for row in found] == [
            (1, 1, "x", "p"),
            (2, None, None, "q"),
            (1, 1, "x", "r"),
            (2, 7, None, None),
            (5, 7, None, None),
            (1, 1, "x", "1z"),
            (5, 7, None, "5z"),
            (1, 1, "x", "1z"),  # REPLACE: it has the text of the new row
            (9, 9, "x", "y"),
            (5, 7, None, "5z"),
        ]
        assert [row["op"] for row in found] == [1, 1, 2, 2, 2, 2, 2, 0, 1, 0]
        assert [row["data"]["s"] for row in found[:3]] == [3, None, None]
        assert all(row["untold"] == {"v", "s"} for row in found[2:])
        assert not any(row["untold"] for row in found[:2])
        assert not any(row.get("error_class") for row in found)
    olds = [told(row, OLD) for row in found]  # with the key None every UPDATE has its old row
    assert olds[2:7] == [
        *((1, 1, "x", "p"), (2, None, None, "q"), (2, 7, None, None)),
        *((1, 1, "x", "r"), (5, 7, None, None)),
    ]
    moved = [row for row in rows(blocks_of(log, "d.t", key=("id",))) if row["old"]]
    assert [row["old"] for row in moved] == [{"id": 2}]


@on(*EDITIONS)
@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_rows_of_a_session_that_leaves_columns_out(server: DatabaseServer, image: str):
    """What they lack is told, never NULL; the old key is known, and so is what a DELETE deletes."""
    server.execute(
        "CREATE TABLE d.t (id INT PRIMARY KEY, b TEXT, c INT)",
        "INSERT INTO d.t VALUES (1, 'x', 2), (2, NULL, NULL)",
    )
    statements = "UPDATE d.t SET c = 3 WHERE id = 1", "UPDATE d.t SET id = 4, b = 'y' WHERE id = 2"
    log = written(
        server, f"SET binlog_row_image = '{image}'", *statements, "DELETE FROM d.t WHERE id = 4"
    )
    first, second, third = rows(blocks_of(log, "d.t", key=("id",)))
    left_out = {"MINIMAL": ({"b"}, {"c"}, {"b", "c"}), "NOBLOB": ({"b"}, set(), {"b"})}[image]
    assert tuple(set(row["untold"]) for row in (first, second, third)) == left_out
    assert (first["data"]["id"], first["data"]["c"]) == (1, 3)
    assert (second["data"]["id"], second["data"]["b"], second["old"]) == (4, "y", {"id": 2})
    assert (third["op"], third["data"]["id"]) == (0, 4)
    _, second, _ = rows(blocks_of(log, "d.t"))  # where all old values are asked for
    assert second["error_class"] == "no-whole-row"
    assert "SET GLOBAL binlog_row_image = 'FULL'" in second["error_message"]


@on(MARIADB_11_8)
def test_rows_that_lack_columns_are_the_same_from_their_letters(server: DatabaseServer):
    server.execute(CREATED)
    log = written(server, "SET binlog_row_image = 'FULL_NODUP'", *STATEMENTS)
    for block in blocks_of(log, "d.t", key=("id",)):
        body = block.table()
        for row in body.to_pylist():
            (letter,) = letters_of(
                event_of(log, row["position"]),
                body.schema.metadata[LETTER_HEAD],
                [(row["index"], row["commit_ts"])],
            )
            values = pa.array([letter], pa.binary())
            messages = Messages(part="", positions=pa.array([0]), values=values)
            (again,) = letter_blocks(messages, wanted("d.t", key=("id",)))
            (found,) = again.table().to_pylist()
            assert (found["op"], found["data"]) == (row["op"], row["data"])


def event_of(log: Binlog, position: int) -> bytes:
    at = position & ((1 << 40) - 1)
    return log.data[at : at + int.from_bytes(log.data[at + 9 : at + 13], "little")]
