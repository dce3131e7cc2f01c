"""A checkpoint's rows as actions: classic, in parts, or named by a UUID with sidecars beside it.

Only the columns of the actions that count are read, and those of the removed files, by far the
most, never pass through Parquet's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.merge_on_write.actions import DeletionVectorDescriptor, Json, Tombstone
from sinks.merge_on_write.log_paths import SIDECARS, LogCheckpoint
from sinks.merge_on_write.log_state import parse_commit
from sinks.merge_on_write.parsed_stats import stats_text
from sinks.merge_on_write.storage import TableStorage

UNREADABLE = (pa.ArrowException, ValueError, KeyError)
_OTHERS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_OF_REMOVE = (
    *("path", "deletionTimestamp", "deletionVector", "extendedFileMetadata", "partitionValues"),
    *("size", "baseRowId", "defaultRowCommitVersion"),
)
_KEY_FIELD = {  # null in the rows of other actions
    "add": "path",
    "remove": "path",
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
}
BATCH_ROWS = 65_536
_NO_PAIRS: Json = {}
_PARSED = ("stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """Tombstones apart from the other actions: of them there may be hundreds of thousands."""

    actions: list[Json]
    tombstones: list[Tombstone]


def read_checkpoint(storage: TableStorage, checkpoint: LogCheckpoint) -> CheckpointContent:
    """All of it, in no order. One of ``UNREADABLE`` where it is torn; FileNotFoundError."""
    found = _read_files(storage, checkpoint, (*_OTHERS, "add", "remove"))
    for name in _sidecars_in(found.actions):
        _read_parquet(storage, f"{SIDECARS}{name}", ("add", "remove"), found)
    kinds = {kind for each in found.actions for kind in each}
    if not {"protocol", "metaData"} <= kinds:
        raise ValueError("it names no protocol or no schema")
    return found


def sidecars_of(storage: TableStorage, checkpoint: LogCheckpoint) -> list[str]:
    """The names, in the folder of sidecars, of the files that hold a checkpoint's actions."""
    return _sidecars_in(_read_files(storage, checkpoint, ("sidecar",)).actions)


def _read_files(
    storage: TableStorage, checkpoint: LogCheckpoint, kinds: Sequence[str]
) -> CheckpointContent:
    found = CheckpointContent(actions=[], tombstones=[])
    for path in checkpoint.paths:
        if path.endswith(".json"):
            _read_json(storage, path, found)
        else:
            _read_parquet(storage, path, kinds, found)
    return found


def _sidecars_in(actions: Iterable[Json]) -> list[str]:
    """Always in the folder of sidecars, whatever the URI says before the name."""
    paths = (each["sidecar"]["path"] for each in actions if "sidecar" in each)
    return [unquote(path.rpartition("/")[2]) for path in paths]


def _read_json(storage: TableStorage, path: str, found: CheckpointContent) -> None:
    for action in parse_commit(storage.read(path)):
        if fields := action.get("remove"):
            found.tombstones.append(Tombstone.from_remove(fields))
        else:
            found.actions.append(action)


def _read_parquet(
    storage: TableStorage, path: str, kinds: Sequence[str], found: CheckpointContent
) -> None:
    with storage.open_input(path) as source, pq.ParquetFile(source) as file:
        for kind in kinds:
            if kind not in file.schema_arrow.names:
                continue
            if kind == "remove":
                for rows in _batches(file, kind, _OF_REMOVE):
                    found.tombstones.extend(_tombstones(rows))
            else:
                found.actions.extend(_add_actions(file) if kind == "add" else _actions(file, kind))


def _add_actions(file: pq.ParquetFile) -> Iterator[Json]:
    """With statistics as text, which not every writer keeps."""
    found = list(_actions(file, "add", leave_out=_PARSED))
    has_struct = "stats_parsed" in _field_names(file, "add")
    if not has_struct or all("stats" in each["add"] for each in found):
        return iter(found)
    return _actions(file, "add", leave_out=_PARSED[1:])


def _actions(file: pq.ParquetFile, kind: str, leave_out: Sequence[str] = ()) -> Iterator[Json]:
    names = [name for name in _field_names(file, kind) if name not in leave_out]
    for rows in _batches(file, kind, names):
        values = {name: _values(rows.field(name)) for name in names}
        if "stats_parsed" in values:
            parsed = map(stats_text, values.pop("stats_parsed"))
            text = values.get("stats") or [None] * len(rows)
            values["stats"] = [kept or made for kept, made in zip(text, parsed, strict=True)]
        for row in zip(*values.values(), strict=True):
            yield {kind: {k: v for k, v in zip(values, row, strict=True) if v is not None}}


def _batches(file: pq.ParquetFile, kind: str, wanted: Sequence[str]) -> Iterator[pa.StructArray]:
    """The rows that are of this kind, with the wanted fields that the file has."""
    columns = [f"{kind}.{name}" for name in _field_names(file, kind) if name in wanted]
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        rows = batch.column(0)
        # Both: a required field of a null struct reads as a default, not as a null.
        is_there = pc.and_(pc.is_valid(rows), pc.is_valid(rows.field(_KEY_FIELD[kind])))
        rows = rows.filter(is_there)
        if len(rows):
            yield rows


def _field_names(file: pq.ParquetFile, kind: str) -> list[str]:
    return [field.name for field in file.schema_arrow.field(kind).type]


def _tombstones(rows: pa.StructArray) -> Iterator[Tombstone]:
    values = {field.name: _values(rows.field(field.name)) for field in rows.type}
    vectors = values.get("deletionVector") or [None] * len(rows)
    times = values.get("deletionTimestamp") or [None] * len(rows)
    names = list(values)
    for row, path, time, vector in zip(
        zip(*values.values(), strict=True), values["path"], times, vectors, strict=True
    ):
        yield Tombstone(
            path=path,
            deletion_timestamp_ms=time or 0,
            deletion_vector=vector and DeletionVectorDescriptor.from_json(vector),
            action=dict(zip(names, row, strict=True)),
        )


def _values(column: pa.Array) -> list[Any]:
    """As ``to_pylist``, which is slow where there are many small structs and maps."""
    if pa.types.is_map(column.type):
        if not len(column.keys) and not column.null_count:
            return [_NO_PAIRS] * len(column)
    elif pa.types.is_struct(column.type) and "storageType" in column.type.names:
        is_there = pc.and_(column.is_valid(), column.field("storageType").is_valid()).to_pylist()
        names = column.type.names
        parts = [column.field(name).to_pylist() for name in names]
        rows = zip(*parts, strict=True)
        return [
            dict(zip(names, row, strict=True)) if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found
