"""Reads a checkpoint as a list of actions: a classic one, one in parts, or one that is named by a
UUID and has sidecars.

Only the columns of the actions in `_KEY_FIELD` are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.merge_on_write.log.actions import Json
from sinks.merge_on_write.log.paths import SIDECARS, LogCheckpoint
from sinks.merge_on_write.log.state import parse_commit
from sinks.storage.table_storage import TableStorage

UNREADABLE = (pa.ArrowException, ValueError, KeyError)
_KEY_FIELD = {  # kind of action that is read -> a field of it that is null in rows of other kinds
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
    "add": "path",
    "remove": "path",
}
BATCH_ROWS = 65_536
_NO_PAIRS: Json = {}


def read_checkpoint(storage: TableStorage, checkpoint: LogCheckpoint) -> list[Json]:
    """All actions of the checkpoint, in no order. Raises one of ``UNREADABLE`` where it is damaged,
    and FileNotFoundError."""
    found = list(_read_files(storage, checkpoint, tuple(_KEY_FIELD)))
    for name in _sidecars_in(found):
        found += _read_parquet(storage, f"{SIDECARS}{name}", ("add", "remove"))
    kinds = {kind for each in found for kind in each}
    if not {"protocol", "metaData"} <= kinds:
        raise ValueError("it names no protocol or no schema")
    return found


def sidecars_of(storage: TableStorage, checkpoint: LogCheckpoint) -> list[str]:
    """The names of a checkpoint's sidecars in the folder `SIDECARS`. Raises as `read_checkpoint`
    does."""
    return _sidecars_in(_read_files(storage, checkpoint, ("sidecar",)))


def _read_files(
    storage: TableStorage, checkpoint: LogCheckpoint, kinds: Sequence[str]
) -> Iterator[Json]:
    for path in checkpoint.paths:
        if path.endswith(".json"):
            yield from parse_commit(storage.read(path))
        else:
            yield from _read_parquet(storage, path, kinds)


def _sidecars_in(actions: Iterable[Json]) -> list[str]:
    """The names alone: sidecars are always in their folder, whatever path the URI has."""
    paths = (each["sidecar"]["path"] for each in actions if "sidecar" in each)
    return [unquote(path.rpartition("/")[2]) for path in paths]


def _read_parquet(storage: TableStorage, path: str, kinds: Sequence[str]) -> Iterator[Json]:
    with storage.open_input(path) as source, pq.ParquetFile(source) as file:
        for kind in kinds:
            if kind not in file.schema_arrow.names:
                continue
            names = [field.name for field in file.schema_arrow.field(kind).type]
            parsed = "stats_parsed" in names
            found = list(_actions(file, kind, set(names) - {"stats_parsed"}))
            if kind == "add" and parsed and not all("stats" in each["add"] for each in found):
                found = list(_actions(file, kind, names))  # some writers leave out the text
            yield from found


def _actions(file: pq.ParquetFile, kind: str, names: Iterable[str]) -> Iterator[Json]:
    """The actions of this kind, from these columns."""
    columns = [f"{kind}.{name}" for name in names if name != "partitionValues_parsed"]
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        rows = batch.column(0)
        # Both are needed: a required field of a null struct reads as a default, not as a null.
        is_there = pc.and_(pc.is_valid(rows), pc.is_valid(rows.field(_KEY_FIELD[kind])))
        rows = rows.filter(is_there)
        values = {field.name: _values(rows.field(field.name)) for field in rows.type}
        if "stats_parsed" in values:
            made = map(stats_text, values.pop("stats_parsed"))
            text = values.get("stats") or [None] * len(rows)
            values["stats"] = [each or other for each, other in zip(text, made, strict=True)]
        for row in zip(*values.values(), strict=True):
            yield {kind: {k: v for k, v in zip(values, row, strict=True) if v is not None}}


def _values(column: pa.Array) -> list[Any]:
    """The same as ``to_pylist``, but fast for many small structs and maps."""
    if pa.types.is_map(column.type):
        if not len(column.keys) and not column.null_count:
            return [_NO_PAIRS] * len(column)
    elif pa.types.is_struct(column.type) and "storageType" in column.type.names:
        is_there = pc.and_(column.is_valid(), column.field("storageType").is_valid()).to_pylist()
        names = column.type.names
        parts = [column.field(name).to_pylist() for name in names]
        rows = zip(*parts, strict=True)
        return [
            {k: v for k, v in zip(names, row, strict=True) if v is not None} if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def stats_text(value: Any) -> str | None:
    """A value of ``stats_parsed``, or a part of one, as the JSON text that a commit would have;
    None if it is empty. Values that JSON cannot hold exactly are left out: a missing bound is safe,
    a wrong one is not."""
    exact: Any
    match value:
        case Mapping():
            parts = ((name, stats_text(each)) for name, each in value.items())
            told = [
                f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in parts if text
            ]
            return "{" + ",".join(told) + "}" if told else None
        case Decimal():  # digit by digit: a double would round it
            return format(value, "f") if value.is_finite() else None
        case datetime():
            zone = "Z" if value.tzinfo is not None else ""
            exact = value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
        case date():
            exact = value.isoformat()
        case bool() | int() | str():
            exact = value
        case float() if math.isfinite(value):
            exact = value
        case _:
            return None
    return json.dumps(exact, ensure_ascii=False)
