"""What real servers write to their binlogs, on the way to a table's rows: transactions that change
keys many times, and every type beside the texts of the server's own SELECT."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName, Ts
from sinks.target.write_mode import UPSERT, WriteMode
from sinks.types.casts.columns import cast_column
from sinks.types.table_schema import TableSchema
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import TableChanges, changes
from streaming.apply.newest_whole_row import newest_whole_row
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import TableTask
from streaming.changefeed.schema_from_rows import WholeRow, schema_of_row
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST
from tests.streaming.apply.resolved import RULES
from tests.streaming.apply.test_change_log import LOG
from tests.streaming.source.binlog.binlogs import Binlog, blocks_of, recorded
from tests.streaming.source.binlog.format.cells.test_types_on_servers import CASES, SESSION

pytestmark = pytest.mark.mariadb

NAME = TableName("d", "t")
LAST = Ts(1 << 40)
Table = dict[int, tuple[str, str | None]]


@pytest.fixture(params=BOTH_FIRST, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with DatabaseServer(request.param) as running:
        yield running


@pytest.fixture
def database(server: DatabaseServer) -> Iterator[DatabaseServer]:
    with server.database("d"):
        yield server


def row_blocks(binlog: Binlog, key: tuple[str, ...] | None) -> list[RowBlock]:
    return [RowBlock.of(each) for each in blocks_of(binlog, "d.t", key=key) if each.name == NAME]


def schema_of(blocks: Sequence[RowBlock]) -> TableSchema:
    told = newest_whole_row(blocks, LAST)
    assert isinstance(told, WholeRow)
    return schema_of_row(NAME, told)


def applied(
    blocks: Sequence[RowBlock], form: WriteMode = UPSERT, low: int = 0, high: int = LAST
) -> TableChanges:
    schema = form.keyed(schema_of(blocks))
    task = TableTask(name=NAME, schema=schema, checkpoint=Ts(low), form=form)
    found = (change_log_rows if form.is_log else changes)(task, blocks, Ts(high), RULES)
    assert not found.errors.num_rows, found.errors.slice(0, 3).to_pylist()
    return found


def transaction(dice: random.Random) -> list[str]:
    """Statements, some of which find no row."""
    made = []
    for _ in range(dice.choice((1, 2, 6, 12))):
        id, other, v = dice.randrange(6), dice.randrange(6), dice.choice("abc")
        day = dice.choice(("NULL", "'2024-02-29'", "'0000-00-00'"))
        made.append(
            dice.choice(
                (
                    f"REPLACE INTO t VALUES ({id}, '{v}', {day})",
                    f"INSERT IGNORE INTO t VALUES ({id}, '{v}', {day}), ({other}, '{v}', {day})",
                    f"UPDATE IGNORE t SET id = {other}, v = '{v}' WHERE id = {id}",
                    f"UPDATE t SET v = '{v}', day = {day} WHERE id >= {id}",
                    "UPDATE t SET id = id + 1 ORDER BY id DESC",
                    f"DELETE FROM t WHERE id = {id}",
                )
            )
        )
    return made


@pytest.mark.parametrize("knows_key", [True, False])
def test_a_table_is_what_the_server_has(database: DatabaseServer, knows_key: bool) -> None:
    binlog, states = binlog_of_transactions(database, random.Random(str(knows_key)))
    blocks = row_blocks(binlog, ("id",) if knows_key else None)
    batches = [batch for block in blocks for batch in block.batches()]
    stamps = sorted({ts for batch in batches for ts in batch["commit_ts"].tolist()})
    table: Table = {}
    seen = [dict(table)]
    for low, high in itertools.pairwise([0, *stamps]):
        take(table, applied(blocks, low=low, high=high))
        seen.append(dict(table))
    assert distinct(seen) == distinct(states)  # some leave everything as it is
    at_once: Table = {}
    take(at_once, applied(blocks))
    assert at_once == table


def test_a_change_log_of_it_is_what_has_happened(database: DatabaseServer) -> None:
    binlog, states = binlog_of_transactions(database, random.Random(1))
    table: Table = {}
    for event in applied(row_blocks(binlog, None), LOG).rows.to_pylist():
        if event["_op"] in ("delete", "update_preimage"):
            assert table.pop(event["id"]) == values(event)
        else:
            assert event["id"] not in table
            table[event["id"]] = values(event)
    assert table == states[-1]


def binlog_of_transactions(
    database: DatabaseServer, dice: random.Random
) -> tuple[Binlog, list[Table]]:
    """And what the table was after each of them."""
    create = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), day DATE) ENGINE = InnoDB"
    database.execute(create, database="d")
    states: list[Table] = [{}]
    with recorded(database) as found, database.connect(database="d", autocommit=False) as session:
        cursor = session.cursor()
        cursor.execute("SET sql_mode = ''")
        for _ in range(40):
            for statement in transaction(dice):
                cursor.execute(statement)
            cursor.execute("SELECT id, v, CAST(NULLIF(day, 0) AS CHAR) FROM t")
            states.append({id: (v, day) for id, v, day in cursor.fetchall()})
            session.commit()
    return found[0], states


def take(table: Table, found: TableChanges) -> None:
    for each in found.rows.to_pylist():
        table.pop(each["id"], None)
        if each["_op "] == "U":
            table[each["id"]] = values(each)


def values(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["v"], row["day"] and str(row["day"])


def distinct(states: Sequence[Table]) -> list[Table]:
    return [state for state, _ in itertools.groupby(states)]


def test_every_type_is_worth_what_its_text_is(database: DatabaseServer) -> None:
    """The copy of a table gives texts, the binlog typed cells."""
    columns = [f"c{n} {case.definition}" for n, case in enumerate(CASES)]
    most = max(len(case.values) for case in CASES)
    inserts = []
    for at in range(most):
        cells = [case.values[at % len(case.values)] for case in CASES]
        inserts.append(f"INSERT INTO t VALUES ({at}, {', '.join(cells)})")
    database.execute(
        "SET NAMES utf8mb4", SESSION,
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)}) CHARACTER SET utf8mb4",
        database="d",
    )  # fmt: skip
    with recorded(database) as found:
        database.execute("SET NAMES utf8mb4", SESSION, *inserts, database="d")
    blocks = row_blocks(found[0], ("id",))
    schema = schema_of(blocks)
    rows = applied(blocks).rows.sort_by("id")
    shown = [_canal_json(case.definition, f"c{n}") for n, case in enumerate(CASES)]
    with database.connect(database="d") as session:
        cursor = session.cursor()
        cursor.execute(SESSION)
        cursor.execute(f"SELECT {', '.join(shown)} FROM t ORDER BY id")
        texts = list(zip(*cursor.fetchall(), strict=True))
    for n, case in enumerate(CASES):
        text = [_text(case.definition, each) for each in texts[n]]
        cast = cast_column(pa.array(text, pa.string()), schema.column(f"c{n}"), RULES)
        assert cast.failed is None, case
        got = rows[f"c{n}"].combine_chunks()
        assert got.equals(cast.values), (case.definition, got, cast.values)


def _canal_json(definition: str, column: str) -> str:
    name = definition.partition("(")[0].partition(" ")[0]
    if name in ("bit", "enum", "set", "year"):
        return f"CAST({column} | 0 AS CHAR)"
    if name == "float":
        return f"CAST({column} + 0e0 AS CHAR)"
    if "binary" in definition or "blob" in name or name == "geometry":
        return f"HEX({column})"
    return f"CAST({column} AS CHAR)"


def _text(definition: str, shown: Any) -> str | None:
    name = definition.partition("(")[0].partition(" ")[0]
    if shown is not None and ("binary" in definition or "blob" in name or name == "geometry"):
        return bytes.fromhex(shown).decode("latin-1")
    return None if shown is None else str(shown)
