"""Row blocks as a decoder makes them, from rows that a test writes down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from coordination.model import TableName
from streaming.apply.row_block import RowBlock
from streaming.protocols.contract import (
    CHECKSUM,
    DATA,
    ERROR_CLASS,
    ERROR_MESSAGE,
    OLD,
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    ROW_FIELDS,
    Block,
    Cells,
    Kind,
    Order,
    ipc,
    wire_metadata,
)

A = TableName("shop", "a")
Text = Mapping[str, str | None]
Kinds = Mapping[str, pa.DataType]
OPS = {"DELETE": OP_DELETE, "INSERT": OP_INSERT, "UPDATE": OP_UPDATE}


@dataclass(frozen=True, kw_only=True)
class Row:
    """As in a message. ``old`` where the key may have changed. ``kinds``: the Arrow types of typed
    cells, and ``old_kinds`` those that are others in ``old``."""

    op: str
    ts: int
    data: Mapping[str, Any]
    old: Mapping[str, Any] | None = None
    part: str = "shop/0"
    position: int = 0
    index: int = 0
    error: tuple[str, str] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] | None = ("id",)
    order: Order = Order.NET
    kinds: Kinds = field(default_factory=dict)
    old_kinds: Kinds = field(default_factory=dict)
    checksum: int | None = None
    is_encoded: bool = False
    is_avro: bool = False

    def struct(self, names: Iterable[str], kinds: Kinds) -> pa.StructType:
        return pa.struct([(name, kinds.get(name, pa.string())) for name in names])


def block_of(rows: Sequence[Row], name: TableName = A) -> Block:
    """Rows of one shape and part."""
    first = rows[0]
    names = list(first.data)
    assert all(list(row.data) == names for row in rows)
    arrays = {
        "op": [OPS[row.op] for row in rows],
        "commit_ts": [row.ts for row in rows],
        "position": [row.position for row in rows],
        "index": [row.index for row in rows],
    }
    columns = [pa.array(arrays[each.name], each.type) for each in ROW_FIELDS]
    fields = list(ROW_FIELDS)
    data = first.struct(names, first.kinds)
    columns.append(pa.array([row.data for row in rows], data))
    fields.append(pa.field(DATA, data))
    if any(row.old is not None for row in rows):
        old_names = list(dict.fromkeys(each for row in rows for each in row.old or ()))
        old = first.struct(old_names, {**first.kinds, **first.old_kinds})
        columns.append(pa.array([row.old for row in rows], old))
        fields.append(pa.field(OLD, old))
    if any(row.error for row in rows):
        for number, each in enumerate((ERROR_CLASS, ERROR_MESSAGE)):
            texts = [row.error[number] if row.error else None for row in rows]
            columns.append(pa.array(texts, pa.string()))
            fields.append(pa.field(each, pa.string()))
    if any(row.checksum is not None for row in rows):
        columns.append(pa.array([row.checksum or 0 for row in rows], pa.int64()))
        fields.append(pa.field(CHECKSUM, pa.int64()))
    types = [*(first.types or dict.fromkeys(names, "varchar")).items()]
    cells = Cells.TYPED if first.kinds else Cells.TEXT
    cells = Cells.ENCODED if first.is_encoded else Cells.AVRO if first.is_avro else cells
    metadata = wire_metadata(types, first.key, order=first.order, cells=cells)
    stamps, positions = [row.ts for row in rows], [row.position for row in rows]
    return Block(
        kind=Kind.ROW,
        part=first.part,
        name=name,
        rows=len(rows),
        min_ts=min(stamps),
        max_ts=max(stamps),
        first=min(positions),
        last=max(positions),
        key_changes=sum(row.old is not None for row in rows),
        body=ipc(_in_batches(pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata)))),
    )


def _in_batches(rows: pa.Table) -> pa.Table:
    """Two of them where there is enough: a body may have any number."""
    middle = len(rows) // 3
    return pa.concat_tables([rows.slice(0, middle), rows.slice(middle)]) if middle else rows


def blocks_of(rows: Iterable[Row], name: TableName = A) -> list[RowBlock]:
    """One block per part and shape, as one decoded chunk makes them."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        kinds = map(str, (row.kinds, row.old_kinds))
        shape = (row.part, *row.data, "|", *row.types.items(), *kinds)
        groups.setdefault(shape, []).append(row)
    return [RowBlock.of(block_of(group, name)) for group in groups.values()]
