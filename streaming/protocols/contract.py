"""What a protocol's decoder is given and what it gives back: messages in, blocks out.

Pure values over Arrow, so that a decoder runs on an executor as in a test: no Spark, no broker, no
schema of any table. Values stay as the wire has them, with the names and types that the message
itself tells; they are cast in the driver, where the table's schema at each commit-ts is known.

    Messages (one partition, a chunk) ──decode(messages, wanted)──► blocks: one per kind, table and
                                                                    shape of its rows
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import pyarrow as pa

from coordination.model import TableName, Ts

NO_TABLE: Final = TableName("", "")

# Codes of ``op`` in a row block; within one commit-ts a DELETE sorts before what inserts.
OP_DELETE: Final = 0
OP_INSERT: Final = 1
OP_UPDATE: Final = 2


class Kind(StrEnum):
    """What a block holds, and the columns of its body."""

    ROW = "row"  # ROW_FIELDS, ``data`` and perhaps ``old``; no body where nobody wants the table
    DDL = "ddl"  # DDL_BODY
    WATERMARK = "watermark"  # no body: max_ts is the greatest watermark, last its last offset
    BAD = "bad"  # BAD_BODY
    DONE = "done"  # no body: of a range, ``last`` is the offset that reading reached (exclusive)


ROW_FIELDS: Final = (
    pa.field("op", pa.int8()),  # OP_DELETE, OP_INSERT, OP_UPDATE
    pa.field("commit_ts", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("index", pa.int32()),  # of the row in its message
)
# Beside ROW_FIELDS a row block's body has
#   data: struct<column: string …>   the new row, of a DELETE the old one; null: SQL NULL
#   old: struct<column: string …>    (only where key_changes > 0) null but for UPDATEs whose key may
#                                    have changed: the old values that are there. A column that the
#                                    message did not send is NULL here and counts as unchanged
#   error_class, error_message: string (only where some row has one) why a row cannot be applied
# and in its schema's metadata WIRE_TYPES and KEY_NAMES.
DATA: Final = "data"
OLD: Final = "old"
ERROR_CLASS: Final = "error_class"
ERROR_MESSAGE: Final = "error_message"
WIRE_TYPES: Final = b"wire_types"  # JSON: [[column, type as the wire says it] …], in table order
KEY_NAMES: Final = b"key_names"  # JSON: [column …], what the message says is the key, or null

DDL_BODY: Final = pa.schema(
    [
        ("commit_ts", pa.int64()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("ddl_type", pa.string()),
        ("query", pa.string()),
    ]
)
BAD_BODY: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("index", pa.int32()),
        ("error_class", pa.string()),
        ("error_message", pa.string()),
        ("value", pa.large_binary()),  # the message, null for a tombstone
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Messages of one partition by rising offset; gaps are normal (markers, compaction)."""

    topic: str
    partition: int
    offsets: pa.Int64Array
    values: pa.Array  # binary or large_binary; null: a tombstone

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTable:
    """Rows above ``above_ts`` are wanted. ``key``: its key columns, None while nobody knows them:
    then every UPDATE brings its old values."""

    above_ts: Ts
    key: tuple[str, ...] | None


Wanted = Mapping[TableName, WantedTable]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """As it travels from an executor to the driver."""

    kind: Kind
    topic: str
    partition: int
    name: TableName = NO_TABLE
    rows: int = 0  # messages for done and watermark, rows or events else
    min_ts: int | None = None  # commit-ts, or watermark-ts
    max_ts: int | None = None
    first: int = 0  # offsets, both inclusive (of done: begin and end of the range)
    last: int = 0
    key_changes: int = 0  # rows that have an ``old``
    message_bytes: int = 0  # of the messages that are behind the block
    body: bytes | None = None  # Arrow IPC stream, lz4

    def table(self) -> pa.Table:
        """The body; its memory is the block's own where the body is not compressed."""
        assert self.body is not None, f"a {self.kind} block without a body"
        return pa.ipc.open_stream(self.body).read_all()


class Decoder(Protocol):
    """Pure; raises for nothing that a message can hold: what means nothing is a BAD block, named
    after its table where that much could be read."""

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]: ...


def ipc(table: pa.Table) -> bytes:
    """A block's body. Compressed in this thread: handing small buffers to others takes longer."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def wire_metadata(
    wire_types: Iterable[tuple[str, str]], key_names: Iterable[str] | None
) -> dict[bytes, bytes]:
    """The metadata of a row block's schema."""
    keys = None if key_names is None else list(key_names)
    types = [[name, text] for name, text in wire_types]
    return {
        WIRE_TYPES: json.dumps(types, ensure_ascii=False).encode(),
        KEY_NAMES: json.dumps(keys, ensure_ascii=False).encode(),
    }


def wire_types(schema: pa.Schema) -> dict[str, str]:
    """Column -> type as the wire says it, in table order."""
    return {name: text for name, text in json.loads(schema.metadata[WIRE_TYPES])}


def key_names(schema: pa.Schema) -> tuple[str, ...] | None:
    """What the messages say is the key; None where they do not say."""
    names = json.loads(schema.metadata[KEY_NAMES])
    return None if names is None else tuple(names)
