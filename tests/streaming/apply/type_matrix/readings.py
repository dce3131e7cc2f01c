"""The values of the recorded table `alltypes` as each protocol brings them: its messages, decoded,
and cast to the types of its CREATE TABLE, without Spark or a broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa

from conf.sources.csv_format import parse_csv_format
from coordination.model import SEALED_TS, TableName, Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.target.engine_port import OP_COLUMN, UPSERT
from sinks.types.table_schema import TableSchema
from streaming.apply.changes import TableChanges, changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.protocols.contract import Block, Kind, Messages, WantedTable, with_key
from streaming.protocols.csv.decoder import Text, decode_text
from streaming.protocols.decoders import decoder_of
from streaming.source.outside.delete_times import timed
from streaming.source.storage.layout import Packing
from streaming.source.storage.schema_files import read_schema_text
from streaming.source.storage.table_heads import TableHeads
from tests.services import wire, wire_storage
from tests.services.wire import ExpectedTable, WireMessage
from tests.streaming.apply.type_matrix.extremes import with_extremes

NAME = TableName("shop", "alltypes")
WANTED = {NAME: WantedTable(above_ts=Ts(0), key=("id",))}
LOAD, UPDATES = "after_load", "after_updates"
LABELS = (LOAD, UPDATES)
SCHEMA_FILE = Packing("day").schema_file
DEAD = "dead letter"  # instead of a value: its row is one

Values = dict[int, dict[str, Any]]  # id -> column -> value


@dataclass(frozen=True, kw_only=True)
class Recording:
    """``protocol``: by its name in a source URI. ``blocks``: of the recording and the protocol.
    ``labels``: the states to which its rows lead. ``exchange``: exchanges some values, in all bytes
    of a message or file (`extremes.py`); ``has_extremes``: so that it has these. ``copies``: how
    often each message comes. ``failed``: rows that the encoder could not write, by id."""

    variant: str
    protocol: str
    blocks: Callable[[Recording], Iterable[Block]]
    labels: tuple[str, ...] = LABELS
    exchange: Callable[[bytes], bytes]
    has_extremes: bool = False
    copies: int = 1
    failed: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.variant}{' with extremes' if self.has_extremes else ''}"

    def sent(self, data: bytes | None) -> bytes | None:
        return data if data is None or not self.has_extremes else self.exchange(data)

    def truth(self, label: str) -> ExpectedTable:
        table = wire.expected(label)[NAME.table]
        table = replace(
            table, rows=tuple(row for row in table.rows if row["id"] not in self.failed)
        )
        return with_extremes(table) if self.has_extremes else table

    def values(self, label: str) -> Values:
        """The rows of the table then. Where a row is a dead letter, so is each cell without which
        it would be none."""
        rows = [
            RowBlock.of(each)
            for each in found_in(self)
            if each.kind is Kind.ROW and each.name == NAME
        ]
        whole, failing = schema(), list[str]()
        while (found := self._cast(rows, whole, label)).errors.num_rows:
            failing.append(found.errors["message"][0].as_py().split()[1].rstrip(":"))
            columns = tuple(each for each in whole.columns if each.name != failing[-1])
            assert len(columns) < len(whole.columns), failing
            whole = replace(whole, columns=columns)
        values = by_id(found)
        for name in failing:
            columns = tuple(each for each in schema().columns if each.name in ("id", name))
            good = by_id(self._cast(rows, replace(whole, columns=columns), label))
            for key, cells in values.items():
                cells[name] = good[key][name] if key in good else DEAD
        return values

    def _cast(self, rows: list[RowBlock], of: TableSchema, label: str) -> TableChanges:
        rules = ChangeRules(
            time_zone="UTC", zero_date="null", protocol=self.protocol, unknown_column="drop"
        )
        task = TableTask(name=NAME, schema=of, checkpoint=Ts(0))
        return changes(task, rows, Ts(wire.state_ts(label)), rules)


def by_id(found: TableChanges) -> Values:
    rows = found.rows.filter(pa.compute.equal(found.rows[OP_COLUMN], UPSERT))
    return {each["id"]: each for each in rows.drop_columns(OP_COLUMN).to_pylist()}


@cache
def create_table() -> str:
    """As TiCDC sends it."""
    for each in wire.messages("canal-json"):
        message = json.loads(each.value or b"{}")
        if message["type"] == "CREATE" and message["table"] == NAME.table:
            return str(message["sql"])
    raise AssertionError("no CREATE TABLE")


@cache
def schema() -> TableSchema:
    (effect,) = read_ddl(create_table(), "CREATE", NAME.schema, NAME.table).effects
    assert isinstance(effect, CreateTable)
    return effect.schema


@cache
def found_in(recording: Recording) -> tuple[Block, ...]:
    return tuple(recording.blocks(recording))


def messages_of(recording: Recording) -> Iterator[tuple[str, list[WireMessage]]]:
    """By part, those that name the table."""
    name = NAME.table.encode()
    for part, messages in wire.partitions(recording.variant).items():
        ours = (each for each in messages if name in (each.key or b"") + (each.value or b""))
        sent = (replace(each, value=recording.sent(each.value)) for each in ours)
        yield f"wire/{part}", [each for each in sent for _ in range(recording.copies)]


def chunk_of(part: str, values: Sequence[bytes | None], **more: pa.Array) -> Messages:
    positions = pa.array(range(len(values)), pa.int64())
    return Messages(part=part, positions=positions, values=pa.array(values, pa.binary()), **more)


def of_messages(recording: Recording) -> Iterator[Block]:
    decode = decoder_of(recording.protocol)
    for part, messages in messages_of(recording):
        values = [each.value for each in messages]
        if decode.reads_keys:
            values = [with_key(each.key, each.value) for each in messages]
        yield from decode(chunk_of(part, values), WANTED)


def of_untimed_messages(recording: Recording) -> Iterator[Block]:
    """Messages without a commit-ts, which get that of their own time."""
    decode = decoder_of(recording.protocol)
    assert decode.own_ms is not None
    for part, messages in messages_of(recording):
        values = [each.value for each in messages]
        times = decode.own_ms(pa.array(values, pa.binary())).to_pylist()
        commit_ts = pa.array([(each or 0) << 18 for each in times], pa.int64())
        yield from decode(chunk_of(part, values, commit_ts=commit_ts), WANTED)


def of_loaded_messages(recording: Recording) -> Iterator[Block]:
    """The same up to the first state: seconds do not tell it from the next one."""
    decode = decoder_of(recording.protocol)
    for part, messages in messages_of(recording):
        told = [each for each in messages if _commit_ts(each.note) <= wire.state_ts(LOAD)]
        numbers = pa.array(range(1, len(told) + 1), pa.int64())
        yield from decode(chunk_of(part, [each.value for each in told], commit_ts=numbers), WANTED)


def _commit_ts(note: str) -> int:
    return int(note.partition("commitTs=")[2].split()[0])


def of_avro_messages(recording: Recording) -> Iterator[Block]:
    """With the schemas of the registry. The key of a DELETE does not name the table: its topic
    does. Where there is no watermark at which DELETEs can be told from later ones, there are
    none."""
    decode = replace(decoder_of(recording.protocol), schemas=wire.schemas(recording.variant))
    for part, messages in wire.partitions(recording.variant).items():
        ours = [each for each in messages if each.topic == f"{NAME.schema}_{NAME.table}"]
        if recording.labels != LABELS:
            ours = [each for each in ours if each.value is not None]
        values = [with_key(each.key, recording.sent(each.value)) for each in ours]
        chunk = chunk_of(f"wire/{part}", [each for each in values for _ in range(recording.copies)])
        yield from timed(list(decode(chunk, WANTED)), {}, WANTED, {})


def of_csv_files(recording: Recording) -> Iterator[Block]:
    files = files_of(recording)
    told = dict(parse_qsl(wire_storage.PARAMETERS[recording.variant], keep_blank_values=True))
    texts = [read_schema_text(text) for path, text in files.items() if SCHEMA_FILE(path)]
    heads = TableHeads(parse_csv_format(told), lambda _: texts)
    for path, text in files.items():
        if path.endswith(".csv"):
            version = int(path.split("/")[2])
            head = heads.of(next(each for each in texts if each.version == version))
            part = Text(part=path, text=text, position=0, head=head, is_first=True, is_whole=True)
            yield from decode_text(part, WANTED, latest_ts=SEALED_TS, start_ts=0, most_rows=1 << 30)


def of_json_files(recording: Recording) -> Iterator[Block]:
    decode = decoder_of(recording.protocol)
    for path, text in files_of(recording).items():
        if path.endswith(".json") and not SCHEMA_FILE(path):
            yield from decode(chunk_of(path, text.splitlines()), WANTED)


def files_of(recording: Recording) -> dict[str, bytes]:
    """Those of the table."""
    steps = wire_storage.steps(recording.variant)
    files = {path: text for each in steps for path, text in each.files.items()}
    ours = {path: text for path, text in files.items() if path.startswith("shop/alltypes/")}
    return {
        path: text if SCHEMA_FILE(path) else (recording.sent(text) or b"") * recording.copies
        for path, text in ours.items()
    }
