"""Names that TiCDC made safe for a schema of Avro, and back to those of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import DATA, OLD

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def safe_name(name: str) -> str:
    """Each character that is no letter, digit or ``_`` is ``_``, and one stands before a first
    digit."""
    found = _UNSAFE.sub("_", name)
    return f"_{found}" if found[:1].isdigit() else found


def safe_table(name: TableName) -> TableName:
    return TableName(safe_name(name.schema), safe_name(name.table))


def with_names(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows by the names of the table's columns. A name stays where no column, or more than one,
    may be meant."""
    real = dict[str, list[str]]()
    for name in columns:
        real.setdefault(safe_name(name), []).append(name)
    names = {safe: of[0] for safe, of in real.items() if len(of) == 1 and of[0] != safe}
    told = {each.name for each in batch.schema.field(DATA).type}
    if not names.keys() & told:
        return batch
    arrays, fields = list(batch.columns), list(batch.schema)
    for at, of in enumerate(batch.schema):
        if of.name in (DATA, OLD):
            inner = [each.with_name(names.get(each.name, each.name)) for each in of.type]
            kind = pa.struct(inner)
            fields[at] = of.with_type(kind)
            arrays[at] = pa.StructArray.from_arrays(
                [arrays[at].field(n) for n in range(len(inner))],
                fields=inner,
                mask=arrays[at].is_null() if arrays[at].null_count else None,
            )
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))
