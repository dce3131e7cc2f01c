"""What TiCDC recorded, from messages to changes: as row by row from Python's JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import SEALED_TS, TableName, Ts
from sinks.target.write_mode import WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema, schema_from_mysql_types
from streaming.apply.carry import Carry
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import changes
from streaming.apply.newest_whole_row import newest_whole_row
from streaming.apply.table_task import TableTask
from streaming.changefeed.schema_from_rows import WholeRow
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Kind, Messages, WantedTable
from tests.services import wire
from tests.streaming.apply.blocks import Row
from tests.streaming.apply.resolved import RULES
from tests.streaming.apply.slow_model import SlowModel

VARIANTS = (
    "canal-json",
    "canal-json-interleaved",
    "canal-json-claim-check",
    "canal-json-content-compatible",
    "canal-json-delete-handle-key",
    "canal-json-handle-key-only",
)
CHUNK = 40  # messages


def recorded_rows(variant: str) -> dict[TableName, list[Row]]:
    found: dict[TableName, list[Row]] = defaultdict(list)
    for message in wire.messages(variant):
        each = json.loads(message.value or b"")
        if each["type"] not in ("INSERT", "UPDATE", "DELETE"):
            continue
        tidb = each["_tidb"]
        is_cut = "onlyHandleKey" in tidb or "claimCheckLocation" in tidb
        error = ("claim-check" if "claimCheckLocation" in tidb else "handle-key-only", "")
        found[TableName(each["database"], each["table"])].append(
            Row(
                op=each["type"],
                ts=tidb["commitTs"],
                data=each["data"][0],
                old=each["old"][0] if each["old"] else None,
                part=f"{message.topic}/{message.partition}",
                position=message.offset,
                error=error if is_cut and each["type"] != "DELETE" else None,
                key=each["pkNames"],
            )
        )
    return found


def carried(variant: str, carry: Carry, names: list[TableName], *, knows_keys: bool) -> None:
    keys = {name: tuple(rows[0].key or ()) for name, rows in recorded_rows(variant).items()}
    tables = {
        name: WantedTable(above_ts=Ts(0), key=keys[name] if knows_keys else None) for name in names
    }
    streams: dict[tuple[str, int], list[wire.WireMessage]] = defaultdict(list)
    for message in wire.messages(variant):
        streams[message.topic, message.partition].append(message)
    for (topic, partition), messages in streams.items():
        for begin in range(0, len(messages), CHUNK):
            part = messages[begin : begin + CHUNK]
            chunk = Messages(
                part=f"{topic}/{partition}",
                positions=pa.array([message.offset for message in part], pa.int64()),
                values=pa.array([message.value for message in part], pa.binary()),
            )
            for block in decode(chunk, tables):
                if block.kind is Kind.ROW:
                    carry.add(block)


def as_text(schema: TableSchema) -> TableSchema:
    columns = tuple(
        Column(name=column.name, type=MySQLType.parse("longtext"), nullable=True)
        for column in schema.columns
    )
    return TableSchema(columns=columns, key=schema.key)


@pytest.mark.parametrize("knows_keys", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recorded_messages_come_to_what_python_reads(
    variant: str, knows_keys: bool, tmp_path: Path
) -> None:
    every = recorded_rows(variant)
    carry = Carry(tmp_path)
    carried(variant, carry, list(every), knows_keys=knows_keys)
    keyed = 0
    for name, rows in every.items():
        blocks = carry.due(name, 0, SEALED_TS)
        assert sum(block.rows for block in blocks) == len(rows)
        told = newest_whole_row(blocks, Ts(SEALED_TS))
        if not isinstance(told, WholeRow) or not told.key:
            continue
        keyed += 1
        schema = as_text(schema_from_mysql_types(told.types, told.key)[0])
        task = TableTask(name=name, schema=schema, checkpoint=Ts(0))
        found = changes(task, blocks, Ts(SEALED_TS), RULES)
        model = SlowModel(casts={c.name: str for c in schema.columns}, key=schema.key)
        expected = model.run(rows, 0, SEALED_TS)
        last: dict[Any, Any] = {}
        for row in found.rows.to_pylist():
            op = row.pop("_op ")
            last[tuple(row[column] for column in schema.key)] = row if op == "U" else None
        assert last == expected.last, name
        errors = {
            (row["part"], row["position"], row["index"]): row["error_class"]
            for row in found.errors.to_pylist()
        }
        assert errors == expected.errors, name
    assert keyed
    carry.close()


@pytest.mark.parametrize("variant", ["canal-json", "canal-json-interleaved"])
def test_recorded_messages_come_to_every_event_once(variant: str, tmp_path: Path) -> None:
    """As TiDB's record keys tell them; replays come, and some rows come with a replay alone."""
    every = recorded_rows(variant)
    carry = Carry(tmp_path)
    carried(variant, carry, list(every), knows_keys=False)
    wanted: Counter[tuple[str, int, str]] = Counter()
    found: Counter[tuple[str, int, str]] = Counter()
    for change in wire.changes():
        wanted[change["table"], change["commitTs"], change["op"]] += 1
    for name in every:
        for row in log_of(carry, name).to_pylist():
            if row["_op"] != "update_preimage":
                op = row["_op"].removesuffix("_postimage")
                found[name.table, row["_commit_ts"], op] += 1
    for table, ts, _ in wanted | found:
        inserts, updates, deletes = (
            found[table, ts, op] - wanted[table, ts, op] for op in ("insert", "update", "delete")
        )
        assert inserts == deletes == -updates >= 0, (table, ts)  # TiCDC splits some updates
    assert sum(found.values()) >= sum(wanted.values()) > 200
    carry.close()


@pytest.mark.parametrize("table", ["alltypes", "stock"])
@pytest.mark.parametrize("variant", ["canal-json", "canal-json-content-compatible"])
def test_the_old_row_of_a_recorded_update_is_the_row_before(
    variant: str, table: str, tmp_path: Path
) -> None:
    """Also where the message has the changed columns alone."""
    carry, name = Carry(tmp_path), TableName("shop", table)
    carried(variant, carry, list(recorded_rows(variant)), knows_keys=False)
    key = recorded_rows(variant)[name][0].key or ()
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    updates = 0
    for row in log_of(carry, name).to_pylist():
        what = row.pop("_op")
        del row["_commit_ts"], row["_commit_time"], row["_commit_order"]
        at = tuple(row[column] for column in key)
        if what in ("update_preimage", "delete"):
            updates += what == "update_preimage"
            assert rows.pop(at) == row
        else:
            assert at not in rows
            rows[at] = row
    assert updates
    carry.close()


def log_of(carry: Carry, name: TableName) -> pa.Table:
    blocks = carry.due(name, 0, SEALED_TS)
    told = newest_whole_row(blocks, Ts(SEALED_TS))
    assert isinstance(told, WholeRow)
    schema = as_text(schema_from_mysql_types(told.types, told.key)[0])
    task = TableTask(name=name, schema=schema, checkpoint=Ts(0), form=WriteMode(mode="append"))
    found = change_log_rows(task, blocks, Ts(SEALED_TS), replace(RULES, unknown_column="drop"))
    assert not found.errors.num_rows
    return found.rows
