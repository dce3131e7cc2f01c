"""What the decoders and casts bring of a recording, up to its first ALTER, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from coordination.model import TSO_LOGICAL_BITS, TableName, Ts
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from sinks.target.engine_port import OP_COLUMN, UPSERT
from sinks.types.table_schema import TableSchema
from streaming.apply.changes import changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.protocols.contract import Block, Kind, Messages, WantedTable, with_key
from streaming.protocols.decoders import decoder_of
from tests.services import wire
from tests.services.other_recordings.making import Other
from tests.services.wire import ExpectedTable, WireMessage

LABELS = wire.LABELS[:2]


def differences(
    protocol: str,
    other: Other,
    messages: Iterable[WireMessage],
    *,
    chunk: int = 200,
    is_numbered: bool = False,
) -> list[str]:
    """One line for each table and state that is not the truth, and for what is unreadable.
    ``protocol``: as in a source URI; ``chunk``: how many messages are decoded at a time;
    ``is_numbered``: they have no commit-ts, and get that of their own time."""
    truth = {label: other.expected(label) for label in LABELS}
    names = [TableName(other.names.schema, table) for table in truth[LABELS[0]]]
    blocks = list(_blocks(protocol, messages, names, chunk, is_numbered=is_numbered))
    schemas = dict(_schemas(blocks))
    rules = ChangeRules(time_zone=other.zone, zero_date="null", protocol=protocol)
    found = [str(each.table().to_pylist()) for each in blocks if each.kind is Kind.BAD]
    for label in LABELS:
        for name in names:
            table = truth[label][name.table]
            rows = [RowBlock.of(b) for b in blocks if b.kind is Kind.ROW and b.name == name]
            if table.key is not None:
                found += _of_table(name, schemas[name], rows, label=label, truth=table, rules=rules)
    return found


def _of_table(
    name: TableName,
    schema: TableSchema,
    rows: list[RowBlock],
    *,
    label: str,
    truth: ExpectedTable,
    rules: ChangeRules,
) -> Iterator[str]:
    if schema.key != truth.key:
        yield f"{name}: its key is {schema.key}, not {truth.key}"
        return
    task = TableTask(name=name, schema=schema, checkpoint=Ts(0))
    made = changes(task, rows, Ts(wire.state_ts(label)), rules)
    yield from (f"{label} {name}: {each['message']}" for each in made.errors.to_pylist())
    upserts = made.rows.filter(pa.compute.equal(made.rows[OP_COLUMN], UPSERT))
    if line := truth.difference(upserts.drop_columns(OP_COLUMN).to_pylist()):
        yield f"{label} {line}"


def _blocks(
    protocol: str,
    messages: Iterable[WireMessage],
    tables: Iterable[TableName],
    chunk: int,
    *,
    is_numbered: bool,
) -> Iterator[Block]:
    decode = decoder_of(protocol)
    wanted = {name: WantedTable(above_ts=Ts(0), key=None) for name in tables}
    parts: dict[str, list[WireMessage]] = {}
    for each in messages:
        parts.setdefault(f"{each.topic}/{each.partition}", []).append(each)
    for part, every in parts.items():
        for begin in range(0, len(every), chunk):
            some = every[begin : begin + chunk]
            values = [with_key(m.key, m.value) if decode.reads_keys else m.value for m in some]
            positions = pa.array([m.offset for m in some], pa.int64())
            sent = Messages(part=part, positions=positions, values=pa.array(values, pa.binary()))
            if is_numbered:
                assert decode.own_ms is not None
                times_ms = decode.own_ms(sent.values).to_pylist()
                ts = pa.array([(each or 0) << TSO_LOGICAL_BITS for each in times_ms], pa.int64())
                sent = replace(sent, commit_ts=ts)
            yield from decode(sent, wanted)


def _schemas(blocks: Iterable[Block]) -> Iterator[tuple[TableName, TableSchema]]:
    """As the first CREATE TABLEs have them."""
    for block in blocks:
        for ddl in block.table().to_pylist() if block.kind is Kind.DDL else ():
            name = TableName(ddl["schema_name"], ddl["table_name"])
            for effect in read_ddl(ddl["query"], ddl["ddl_type"], *_parts(name)).effects:
                is_first = ddl["commit_ts"] < wire.state_ts(LABELS[0])
                if isinstance(effect, CreateTable) and is_first:
                    yield name, effect.schema


def _parts(name: TableName) -> tuple[str, str]:
    return name.schema, name.table
