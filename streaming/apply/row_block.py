"""A block of rows of one table, shape and part as the carry keeps it: compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from coordination.errors import TryAgain
from coordination.model import TableName
from streaming.protocols.contract import (
    DATA,
    NO_TABLE,
    OLD,
    Block,
    Kind,
    cells_of,
    key_names,
    order_of,
    wire_metadata,
    wire_types,
)

ADDED_TYPE: Final = "varchar(255)"  # of columns that a route adds

# Smaller bodies are decompressed by one thread: with several it takes ten times as long.
THREADED_BYTES: Final = 256 << 10


class RowsGone(TryAgain):
    """Rows that waited in a file are gone with it. They have to be read again."""


@dataclass(frozen=True, slots=True)
class Spilled:
    """The body of a block in a file of its own."""

    path: Path
    size: int

    def read(self) -> pa.Buffer:
        """Map the file. The buffer stays valid after the file is deleted. Raises RowsGone if it was
        deleted before."""
        try:
            with pa.memory_map(str(self.path)) as file:
                return file.read_buffer()
        except FileNotFoundError as error:
            raise RowsGone(f"rows that wait for their watermark are gone: {error}") from error

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBlock:
    """``body`` has the rows as a decoder made them (``contract.ROW_FIELDS`` …), in memory or in a
    file."""

    name: TableName
    part: str
    rows: int
    min_ts: int
    max_ts: int
    first: int  # positions, both inclusive
    last: int
    key_changes: int
    body: pa.Buffer | Spilled
    origin: TableName = NO_TABLE  # the upstream table, if ``name`` is that of its target
    added: tuple[tuple[str, str], ...] = ()  # columns of the target with one value for all rows

    @classmethod
    def of(cls, block: Block) -> RowBlock:
        """The row block of a decoder's block, which must be of kind ROW and have a body."""
        assert block.kind is Kind.ROW, f"a {block.kind} block holds no rows"
        assert block.body is not None, f"rows of {block.name} were counted, not decoded"
        assert block.min_ts is not None and block.max_ts is not None  # noqa: PT018
        return cls(
            name=block.name,
            part=block.part,
            rows=block.rows,
            min_ts=block.min_ts,
            max_ts=block.max_ts,
            first=block.first,
            last=block.last,
            key_changes=block.key_changes,
            body=pa.py_buffer(block.body),
            origin=block.origin,
            added=block.added,
        )

    @property
    def upstream(self) -> TableName:
        return self.name if self.origin == NO_TABLE else self.origin

    @property
    def bytes(self) -> int:
        return self.body.size

    def buffer(self) -> pa.Buffer:
        """The body in memory; if it is in a file, the file is mapped, not copied."""
        return self.body.read() if isinstance(self.body, Spilled) else self.body

    def batches(self) -> list[pa.RecordBatch]:
        """The rows, decompressed. Each call returns the same batches in the same order."""
        return [with_columns(batch, self.added) for batch in self.plain_batches()]

    def plain_batches(self) -> list[pa.RecordBatch]:
        """The rows as the decoder made them, without columns that are added."""
        options = pa.ipc.IpcReadOptions(use_threads=self.bytes >= THREADED_BYTES)
        with pa.ipc.open_stream(self.buffer(), options=options) as reader:
            return [batch for batch in reader if batch.num_rows]

    def plain_schema(self) -> pa.Schema:
        """The schema of the plain batches. Its metadata has the types and the key that the messages
        tell."""
        with pa.ipc.open_stream(self.buffer()) as reader:
            return reader.schema


def with_columns(batch: pa.RecordBatch, added: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """The rows with these columns too, old rows included. They belong to the key that the messages
    tell."""
    if not added:
        return batch
    schema = batch.schema
    types, keys = wire_types(schema), key_names(schema)
    told = wire_metadata(
        [*types.items(), *((name, ADDED_TYPE) for name, _ in added)],
        keys and (*keys, *(name for name, _ in added)),
        order=order_of(schema),
        cells=cells_of(schema),
    )
    metadata = {**schema.metadata, **told}  # a version, and the head of letters, stay
    columns, fields = list(batch.columns), list(schema)
    for at, of in enumerate(schema):
        if of.name in (DATA, OLD):
            columns[at] = _with_values(columns[at], added)
            fields[at] = of.with_type(columns[at].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))


def _with_values(rows: pa.StructArray, added: Sequence[tuple[str, str]]) -> pa.StructArray:
    arrays = [rows.field(at) for at in range(rows.type.num_fields)]
    arrays += [pa.repeat(pa.scalar(value, pa.string()), len(rows)) for _, value in added]
    names = [*(each.name for each in rows.type), *(name for name, _ in added)]
    return pa.StructArray.from_arrays(
        arrays,
        fields=[pa.field(name, each.type) for name, each in zip(names, arrays, strict=True)],
        mask=rows.is_null() if rows.null_count else None,
    )
