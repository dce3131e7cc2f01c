"""Chunks for the decoder, and what it made of them in plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coordination.model import TableName, Ts
from streaming.protocols.canal_json import decoder
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Block, Kind, Messages, Wanted, WantedTable
from streaming.protocols.rows.blocks import Collector

NAME = TableName("shop", "t")
FIRST_OFFSET = 100


def chunk(values: Sequence[bytes | None]) -> Messages:
    """At every third offset from ``FIRST_OFFSET`` on."""
    offsets = range(FIRST_OFFSET, FIRST_OFFSET + 3 * len(values), 3)
    return Messages(
        part="shop/1",
        positions=pa.array(offsets, pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def wanted(*names: TableName, key: tuple[str, ...] | None = ("id",), above: int = -1) -> Wanted:
    return {name: WantedTable(above_ts=Ts(above), key=key) for name in names}


class EveryTable(dict[TableName, WantedTable]):
    """All are wanted alike."""

    def __init__(self, key: tuple[str, ...] | None) -> None:
        super().__init__()
        self._table = WantedTable(above_ts=Ts(-(2**63)), key=key)

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, _name: TableName) -> WantedTable:
        return self._table


def message(**changes: Any) -> bytes:
    """A row as TiCDC writes it, names in its order, but for ``changes``."""
    fields: dict[str, Any] = {
        "id": 0,
        "database": "shop",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1700000000000,
        "ts": 1700000000100,
        "sql": "",
        "sqlType": {"id": -5, "v": 12},
        "mysqlType": {"id": "bigint", "v": "varchar"},
        "old": None,
        "data": [{"id": "1", "v": "a"}],
        "_tidb": {"commitTs": 10},
        **changes,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def rows_like(count: int) -> list[bytes]:
    """Plain rows of one table: enough of them are read in one call."""
    return [
        message(data=[{"id": str(n), "v": f"v{n}"}], _tidb={"commitTs": 10 + n})
        for n in range(count)
    ]


def read(values: Sequence[bytes | None], tables: Wanted) -> list[Block]:
    return list(decode(chunk(values), tables))


def one_by_one(values: Sequence[bytes | None], tables: Wanted) -> list[Block]:
    """The same by the slow way alone."""
    messages = chunk(values)
    collector = Collector(messages, tables)
    collector.keep_each(np.arange(len(values)), map(decoder.read, values))
    return list(collector.blocks())


def plain(blocks: Sequence[Block]) -> list[tuple[Any, ...]]:
    """Everything that blocks say, comparable."""
    return sorted(
        (
            str(block.kind),
            (block.part, str(block.name), block.rows, block.first, block.last),
            (block.min_ts, block.max_ts, block.key_changes, block.message_bytes),
            _body(block),
        )
        for block in blocks
    )


def _body(block: Block) -> str:
    if block.body is None:
        return ""
    table = block.table()
    table.validate(full=True)
    return repr((table.schema.to_string(truncate_metadata=False), table.to_pylist()))


def cells(blocks: Sequence[Block]) -> dict[int, dict[str, Any]]:
    """Bodies of rows, DDLs and bad messages by offset."""
    found: dict[int, dict[str, Any]] = {}
    for block in blocks:
        if block.body is not None:
            for row in block.table().to_pylist():
                assert row["position"] not in found
                found[row["position"]] = {"kind": block.kind, "name": block.name, **row}
    return found


def in_order(values: Sequence[bytes | None], tables: Wanted) -> list[dict[str, Any]]:
    """The body of each message by its place."""
    found = cells(read(values, tables))
    return [found[FIRST_OFFSET + 3 * place] for place in range(len(values))]


def accounted(blocks: Sequence[Block], count: int) -> bool:
    """Each of ``count`` messages is in exactly one block (of wanted tables: by its body)."""
    bodies = cells(blocks)
    rest = sum(b.rows for b in blocks if b.body is None or b.kind == Kind.WATERMARK)
    return len(bodies) + rest == count == sum(block.rows for block in blocks)
