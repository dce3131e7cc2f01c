"""The interface of a protocol's decoder: messages in, blocks out.

Messages and blocks are pure values on Arrow, so that a decoder runs on an executor as in a test,
without Spark, a broker or a table's schema. Row values stay what the message has, texts or typed
cells, with the names and types that it tells; the driver casts them, since it knows the table's
schema at each commit-ts.

    Messages (one part, a chunk) ──decode(messages, wanted)──► blocks: one per kind, table and
                                                                    shape of its rows

A decoder has no state: a chunk's blocks depend on its bytes alone, on any executor, in any order,
and again after a kill. What a message tells about later ones (the schema of a table, by version)
comes back as a block, with the version in the rows that refer to it. Whoever casts the rows looks
it up, and reading begins again (low water) where it can be seen once more.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import pyarrow as pa

from coordination.model import SEALED_TS, TableName, Ts

NO_TABLE: Final = TableName("", "")

# Codes of ``op`` in a row block; within one commit-ts a DELETE sorts before INSERT and UPDATE.
OP_DELETE: Final = 0
OP_INSERT: Final = 1
OP_UPDATE: Final = 2


class Kind(StrEnum):
    """What a block holds, and the columns of its body."""

    ROW = "row"  # ROW_FIELDS, ``data``, perhaps ``old``; no body if the table is not wanted
    DDL = "ddl"  # DDL_BODY
    WATERMARK = "watermark"  # no body: max_ts is the greatest watermark, last its last position
    SCHEMA = "schema"  # SCHEMA_BODY: tables as they are told beside rows and DDLs
    BAD = "bad"  # BAD_BODY
    STATE = "state"  # no body: ``token`` has what must be known beside the bytes (`ChunkState`)
    DONE = "done"  # no body: how far a range was read; ``last`` is that position (exclusive)


ROW_FIELDS: Final = (
    pa.field("op", pa.int8()),  # OP_DELETE, OP_INSERT, OP_UPDATE
    pa.field("commit_ts", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("index", pa.int32()),  # of the row in its message
)
# Besides ROW_FIELDS a row block's body has
#   data: struct<column: cell …>   the new row, or the old row of a DELETE; null: SQL NULL
#   old: struct<column: cell …>    (only if key_changes > 0) null for other rows than UPDATEs.
#                                  With the table's key: its old values of UPDATEs whose key may
#                                  have changed. A column that the message did not send is NULL
#                                  here and counts as unchanged. Without: the whole old row of
#                                  every UPDATE; what the message did not send is as in ``data``.
#                                  A column may have another Arrow type here than in ``data``
#   error_class, error_message: string (only if some row has an error) why a row cannot be applied
#   checksum: int64 (only if the messages tell one) CRC32 of the row in ``data``, as the sender
#                                  computed it; 0: it told none; DAMAGED: it found the row damaged.
#                                  It is of the columns by their IDs: where the cells are AVRO
#                                  (below), those of ``data`` stand so
# and ORDER, CELLS, WIRE_TYPES and KEY_NAMES in its schema's metadata, VERSION if a message
# elsewhere tells the columns' types and the key, and LETTER_HEAD if what lies at a row's position
# is not enough to decode it.
DATA: Final = "data"
OLD: Final = "old"
CHECKSUM: Final = "checksum"
DAMAGED: Final = -1


class Order(StrEnum):
    """The order of the changes that one key has at one commit-ts (rule 4)."""

    NET = "net"  # a DELETE, then an INSERT or UPDATE: there are no more, and each may come again
    PLACE = "place"  # by position, then index: every change comes, and always at the same place


class Cells(StrEnum):
    """The cells of ``data`` and ``old``."""

    # string: texts as canal-json writes them. A column of bytes may be binary.
    TEXT = "text"
    # string: texts as in TEXT, but bytes in base64, and a TIMESTAMP with the zone that it is in:
    # {"location":"UTC","value":"2020-01-02 03:04:05"}, without a backslash or another blank.
    # Or int64, uint64, float32, float64 and binary as in TYPED, and ENUM, SET and BIT as int64:
    # the index or the bits, of which the highest is no sign.
    ENCODED = "encoded"
    # string: texts as in TEXT, but names of ENUM and SET, ``""`` being index 0. Bytes are binary.
    NAMED = "named"
    # int8 to int64, uint8 to uint64 (BIT: uint64; YEAR: int16), float32, float64, decimal128 or
    # decimal256 with the column's scale, date32, timestamp[us] (DATETIME), timestamp[us, UTC]
    # (TIMESTAMP), duration[us] (TIME), binary or large_binary, and string or large_string. Texts
    # are as in TEXT but for names of ENUM and SET, ``""`` being index 0, and TIMESTAMPs, which are
    # in UTC. A column with a date that no calendar has (0000-00-00, 2021-02-31) is a text in that
    # batch; null: a column whose value nobody tells. WIRE_TYPES are full here, with quotes in names
    # doubled: what a type leaves out is MySQL's default, but for M and D of a FLOAT or DOUBLE.
    TYPED = "typed"
    # string: a value of Kafka Connect as Debezium writes it in JSON, a number or truth value as its
    # text. Bytes in base64, names of ENUM and SET, moments as numbers (`casts/connect_cells.py`).
    CONNECT = "connect"
    # string: texts as in NAMED, but bytes in base64, a SET as an array of names, and decimals with
    # an exponent perhaps. A text that is a JSON document too is marked (`casts/maxwell_cells.py`).
    MAXWELL = "maxwell"

    # TYPED, but TIMESTAMPs are texts as in TEXT, WIRE_TYPES are coarse (any whole number of 32 bits
    # is an int, any text a text, any bytes a blob), and in the names of columns and tables each
    # character that is no letter, digit or ``_`` has become ``_``.
    AVRO = "avro"


OTHER_SOURCE: Final = "other-source"  # of what cannot be this changefeed's: it stops
FAR_WATERMARK: Final = "far-watermark"  # the error class of a watermark that is not believed
ERROR_CLASS: Final = "error_class"
ERROR_MESSAGE: Final = "error_message"
WIRE_TYPES: Final = b"wire_types"  # JSON: [[column, type as in the message] …], in table order
KEY_NAMES: Final = b"key_names"  # JSON: [column …], the key as the message says it, or null
VERSION: Final = b"version"  # the number of the table's schema: SCHEMA_BODY
LETTER_HEAD: Final = b"letter_head"  # what a dead letter has beside its row, as the source knows it
ORDER: Final = b"order"
CELLS: Final = b"cells"

SNAPSHOT: Final = "SNAPSHOT"  # the ``ddl_type`` of one with which a sender begins to copy a table
DDL_BODY: Final = pa.schema(
    [
        ("commit_ts", pa.int64()),
        ("position", pa.int64()),
        ("index", pa.int32()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("ddl_type", pa.string()),
        ("query", pa.string()),
        ("tables", pa.string()),  # JSON: `ToldTable`s that the message tells besides; null: none
    ]
)
SCHEMA_BODY: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("index", pa.int32()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("definition", pa.string()),  # as `TableSchema.to_json` writes it
    ]
)
BAD_BODY: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("index", pa.int32()),
        ("error_class", pa.string()),
        ("error_message", pa.string()),
        ("value", pa.large_binary()),  # the message, null for a tombstone
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """Messages of one part of a source, by rising position. Positions may be missing."""

    part: str
    positions: pa.Int64Array
    values: pa.Array  # binary or large_binary; null: a tombstone. With its key: `with_key`
    latest_ts: int = SEALED_TS  # a watermark above it is not believed (`protocols/clocks.py`)
    sent: pa.Array | None = None  # as they were read, where ``values`` is made from them
    times_ms: pa.Int64Array | None = None  # ms since 1970, as the source has them; 0: none
    # If its reader gives the changes their commit-ts: one for each message (`source/resolved`).
    commit_ts: pa.Int64Array | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def as_sent(self) -> pa.Array:
        """What dead letters keep."""
        return self.values if self.sent is None else self.sent

    def part_with(self, first: int, values: Sequence[bytes | None]) -> Messages:
        """Messages from ``first`` on with other values."""
        part = self.part_of(first, len(values))
        return replace(part, values=pa.array(values, pa.binary()), sent=part.as_sent)

    def part_of(self, first: int, count: int) -> Messages:
        """``count`` messages from ``first`` on."""
        sent, times_ms, commit_ts = (
            each if each is None else each.slice(first, count)
            for each in (self.sent, self.times_ms, self.commit_ts)
        )
        return replace(
            self,
            positions=self.positions.slice(first, count),
            values=self.values.slice(first, count),
            sent=sent,
            times_ms=times_ms,
            commit_ts=commit_ts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTable:
    """A table whose rows above ``above_ts`` are to be decoded. ``key``: its key columns; None while
    they are not known, and for a change log: then ``old`` has the old row of every UPDATE.

    So it has where the messages name another key, or none (as for a unique key)."""

    above_ts: Ts
    key: tuple[str, ...] | None


Wanted = Mapping[TableName, WantedTable]


@dataclass(frozen=True, slots=True)
class ToldTable:
    """The table of that name as it is at a version. ``definition``: `TableSchema.to_json`'s."""

    name: TableName
    version: int
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """The content of one kind, table and shape in a chunk, as an executor sends it to the
    driver."""

    kind: Kind
    part: str
    name: TableName = NO_TABLE
    rows: int = 0  # the number of messages for DONE and WATERMARK, else of rows or events
    min_ts: int | None = None  # commit-ts, or watermark-ts
    max_ts: int | None = None
    first: int = 0  # positions, both inclusive (for DONE: begin, and where reading stopped)
    last: int = 0
    key_changes: int = 0  # the number of rows that have an ``old``
    has_only_rows: bool = False  # BAD: they are surely rows of the table that is named
    message_bytes: int = 0  # the size of the messages that the block was made from
    # ROW, BAD: the upstream table, if ``name`` is that of the target into which it is routed, and
    # columns of the target with one value for all rows (`changefeed/routes.py`).
    origin: TableName = NO_TABLE
    added: tuple[tuple[str, str], ...] = ()
    sender: str = ""  # ROW, DDL: who has written these messages, if they tell
    token: str = ""  # WATERMARK: with which its source goes on (`RecordedWatermark.token`)
    body: bytes | None = None  # Arrow IPC stream, lz4

    def table(self) -> pa.Table:
        """The body as a table. If the body is not compressed, the table uses its memory."""
        assert self.body is not None, f"a {self.kind} block without a body"
        return pa.ipc.open_stream(self.body).read_all()


class Decoder(Protocol):
    """Decodes a chunk of messages. Pure. No content of a message makes it raise: a message that
    cannot be decoded goes into a BAD block, which has the table's name if that could be read."""

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]: ...


def reads_times(decode: Decoder) -> bool:
    """Whether it needs ``Messages.times_ms``."""
    return bool(getattr(decode, "reads_times", False))


def reads_keys(decode: Decoder) -> bool:
    """Whether its messages are made by `with_key`."""
    return bool(getattr(decode, "reads_keys", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkState:
    """What a decoder has to know beside the bytes of a chunk, and what it has learned in them.
    Whoever reads (`source/outside/reader.py`) reads the chunk again with what it ``lacks``, and
    gives the rows of UNTIMED blocks their commit-ts."""

    lacks: tuple[int, ...] = ()  # ids of schemas that the registry is to be asked for
    watermark: int | None = None  # the last one in the order of the messages
    tables: tuple[tuple[str, str, int], ...] = ()  # of rows: schema, table, the last commit-ts

    def to_token(self) -> str:
        return json.dumps([self.lacks, self.watermark, self.tables], ensure_ascii=False)

    @staticmethod
    def of(block: Block) -> ChunkState:
        lacks, watermark, tables = json.loads(block.token)
        return ChunkState(
            lacks=tuple(lacks), watermark=watermark, tables=tuple((s, t, ts) for s, t, ts in tables)
        )


UNTIMED: Final = "untimed"  # the token of a ROW block whose rows have the ts that theirs is above
BELOW: Final = "below_ts"  # a column of UNTIMED blocks: the greatest that this ts may be

KEY_LENGTH: Final = struct.Struct("<I")
NO_KEY: Final = 0xFFFF_FFFF
TOMBSTONE: Final = 0x8000_0000  # in the key's length: the value is null


def with_key(key: bytes | None, value: bytes | None) -> bytes | None:
    """A message whose protocol has facts in its key: four bytes of the key's length (little-endian;
    ``NO_KEY`` without a key, with ``TOMBSTONE`` if the value is null), the key, the value. So one
    value has all that is known of a message: in a chunk, in a dead letter and when it is read
    again. A message without key and value stays null."""
    if value is None:
        return None if key is None else KEY_LENGTH.pack(len(key) | TOMBSTONE) + key
    length = NO_KEY if key is None else len(key)
    return b"".join((KEY_LENGTH.pack(length), key or b"", value))


def with_head(head: bytes, row: bytes) -> bytes:
    """A row's dead letter, with the head of its block (`LETTER_HEAD`) before it."""
    return b"".join((head, b"\n", row))


# LZ4 that passes over what does not repeat: a twelfth larger than by default, a fifth sooner.
_LZ4: Final = pa.Codec("lz4", compression_level=-8)
_IPC_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=_LZ4, use_threads=False)


def ipc(table: pa.Table) -> bytes:
    """A block's body: an Arrow IPC stream. This thread compresses it alone, since it takes longer
    to hand small buffers to other threads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC_OPTIONS) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def wire_metadata(
    wire_types: Iterable[tuple[str, str]],
    key_names: Iterable[str] | None,
    *,
    order: Order,
    cells: Cells,
    version: int | None = None,
    letter_head: bytes | None = None,
) -> dict[bytes, bytes]:
    """The metadata of a row block's schema. ``order`` is the same in all blocks of a source."""
    keys = None if key_names is None else list(key_names)
    types = [[name, text] for name, text in wire_types]
    return {
        WIRE_TYPES: json.dumps(types, ensure_ascii=False).encode(),
        KEY_NAMES: json.dumps(keys, ensure_ascii=False).encode(),
        ORDER: order.encode(),
        CELLS: cells.encode(),
        **({} if version is None else {VERSION: b"%d" % version}),
        **({} if letter_head is None else {LETTER_HEAD: letter_head}),
    }


def wire_types(schema: pa.Schema) -> dict[str, str]:
    """Column -> type as the message has it, in table order."""
    return {name: text for name, text in json.loads(schema.metadata[WIRE_TYPES])}


def key_names(schema: pa.Schema) -> tuple[str, ...] | None:
    """The key columns as the messages tell them; None if they do not."""
    names = json.loads(schema.metadata[KEY_NAMES])
    return None if names is None else tuple(names)


def version_of(schema: pa.Schema) -> int | None:
    """The version of the table's schema that these rows refer to, if a message elsewhere tells
    it."""
    found = schema.metadata.get(VERSION)
    return None if found is None else int(found)


def tables_told(block: Block) -> list[ToldTable]:
    """The tables that a SCHEMA block tells, or a DDL block besides its DDLs."""
    if block.kind is Kind.SCHEMA:
        return [
            ToldTable(
                TableName(each["schema_name"], each["table_name"]),
                each["version"],
                each["definition"],
            )
            for each in block.table().to_pylist()
        ]
    if block.kind is not Kind.DDL:
        return []
    texts = block.table()["tables"].drop_null().to_pylist()
    return [
        ToldTable(TableName(schema, table), version, definition)
        for text in texts
        for schema, table, version, definition in json.loads(text)
    ]


def order_of(schema: pa.Schema) -> Order:
    return Order(schema.metadata[ORDER].decode())


def cells_of(schema: pa.Schema) -> Cells:
    return Cells(schema.metadata[CELLS].decode())
