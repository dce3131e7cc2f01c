"""The decoder in Spark SQL, which this one replaces, says the same of everything well-formed.

Goes when that one goes. What is meant to differ: a bad message is named after its table, a number
in a cell is as it was written (Spark makes ``1.0E300`` of ``1e+300``), and an
old key is told where the new one is NULL.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from coordination.model import TableName
from streaming.protocols.canal_json_sql import decode as decode_sql
from streaming.protocols.contract import Block, Kind, Wanted, key_names, wire_types
from tests.services import wire
from tests.streaming.protocols.canal_json.random_messages import RandomMessages
from tests.streaming.protocols.canal_json.reading import (
    FIRST_OFFSET,
    NAME,
    EveryTable,
    message,
    read,
    wanted,
)
from tests.streaming.protocols.canal_json.test_decoder import OPS, RECORDED
from tests.streaming.protocols.canal_json.test_message import BAD, WHOLE

pytestmark = pytest.mark.spark

STRICTER = {  # malformed now, and read somehow by Spark
    "two messages",
    "two messages, two lines",
    "invalid UTF-8",
    "NaN",
    "NaN where nobody looks",
    "half a pair",
    "the other half",
    "a cell twice",
    "a name twice",
    "a type twice",
    "a ts twice",
    "an object in a cell",
    "single quotes",
    "a null row",
    "closed and too deep",
    "a byte order mark",
    "a zero byte",
    "types that are none",
    "key names that are none",
}
CELLS = [{"id": "1", "v": cell} for cell in (1, -1.5, True, False, 10**40, None, "", "\0")]


def read_by_spark(
    spark: SparkSession, values: list[bytes | None], known: dict[TableName, tuple[str, ...]]
) -> dict[int, Row]:
    rows = [("shop", 1, FIRST_OFFSET + 3 * n, value) for n, value in enumerate(values)]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")
    return {row["offset"]: row for row in decode_sql(frame, known).collect()}


def read_in_arrow(blocks: list[Block]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for block in blocks:
        if block.body is not None:
            table = block.table()
            says = {"kind": str(block.kind), "name": block.name, "old": None}
            if block.kind == Kind.ROW:
                says |= {"types": wire_types(table.schema), "keys": key_names(table.schema)}
            found |= {row["offset"]: {**says, **row} for row in table.to_pylist()}
    return found


@pytest.mark.parametrize("is_known", [False, True])
def test_the_same(spark: SparkSession, is_known: bool) -> None:
    values: list[bytes | None] = [m.value for name in RECORDED for m in wire.messages(name)]
    for seed in range(4):
        values += RandomMessages(seed, well_formed=True).chunk(500)
    values += [message(data=[cells]) for cells in CELLS]
    values += [value for name, (value, _, _) in BAD.items() if name not in STRICTER]
    values += WHOLE.values()
    known = {NAME: ("id",), TableName("shop", "coupon"): ("code", "sub")} if is_known else {}
    tables: Wanted = EveryTable(None)
    for name, key in known.items():
        tables |= wanted(name, key=key)  # type: ignore[operator]
    actual = read_in_arrow(read(values, tables))
    for offset, row in read_by_spark(spark, values, known).items():
        compare(row, actual.get(offset), values[(offset - FIRST_OFFSET) // 3], known)


def compare(
    row: Row,
    found: dict[str, Any] | None,
    value: bytes | None,
    known: dict[TableName, tuple[str, ...]],
) -> None:
    if row.kind == "watermark":
        assert found is None, value
        return
    assert found is not None, value
    assert found["kind"] == row.kind, value
    assert found.get("error_class") == row.error_class, value
    assert found.get("error_message") == row.error_message, value
    if row.kind == "bad":
        assert found["value"] == value
        return
    name = TableName(row.schema_name, row.table_name)
    assert (found["name"], found["commit_ts"]) == (name, row.commit_ts), value
    if row.kind == "ddl":
        assert (found["ddl_type"], found["query"]) == (row.ddl_type, row.query), value
        return
    assert found["op"] == OPS[row.op], value
    assert found["data"] == row.data, value
    if name not in known:
        types = {c: text for c, text in row.mysql_types.items() if c in row.data}
        assert found["types"] == types, value
        assert found["keys"] == (None if row.pk_names is None else tuple(row.pk_names)), value
        assert sent(found["old"]) == sent(row.old), value
    elif row.old is not None or all(found["data"].get(key) is not None for key in known[name]):
        keys = {key: (row.old or {}).get(key) for key in known[name]}
        assert sent(found["old"]) == sent(keys), value


def sent(old: dict[str, str | None] | None) -> dict[str, str]:
    return {name: cell for name, cell in (old or {}).items() if cell is not None}
