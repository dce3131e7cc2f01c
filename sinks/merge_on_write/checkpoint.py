"""Writes what a state holds as a classic checkpoint, which every reader of Delta knows.

One Parquet file, built column by column: the cost is that of the state, most of it tombstones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.merge_on_write.actions import DataFile, DeletionVectorDescriptor, Tombstone
from sinks.merge_on_write.intervals import file_retention_ms
from sinks.merge_on_write.log_paths import LAST_CHECKPOINT, checkpoint_path
from sinks.merge_on_write.log_reader import LogMoved, check_head
from sinks.merge_on_write.log_state import LogState
from sinks.merge_on_write.storage import TableStorage

ROW_GROUP = 100_000  # a reader that wants only live files skips the groups of tombstones
_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_OF_ROW_TRACKING = [("baseRowId", pa.int64()), ("defaultRowCommitVersion", pa.int64())]
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_FORMAT = pa.struct([("provider", pa.string()), ("options", _STRINGS)])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", _FORMAT),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _STRINGS),
        ("createdTime", pa.int64()),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_DOMAIN = pa.struct(
    [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _STRINGS),
        ("deletionVector", _VECTOR),
        *_OF_ROW_TRACKING,
        ("clusteringProvider", pa.string()),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
        *_OF_ROW_TRACKING,
    ]
)
_COLUMNS = {  # in their order; rows of one action follow those of another
    "protocol": _PROTOCOL,
    "metaData": _METADATA,
    "txn": _TXN,
    "domainMetadata": _DOMAIN,
    "remove": _REMOVE,
    "add": _ADD,
}


def write_checkpoint(storage: TableStorage, state: LogState, *, now_ms: int) -> bool:
    """Write the checkpoint of the state's version, then the hint that leads to it.

    False: there was one already. LogMoved: the state is not the table's any more, and no checkpoint
    of it is left.
    """
    table = checkpoint_table(state, now_ms=now_ms)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROW_GROUP, compression="snappy")
    content = sink.getvalue()
    check_head(storage, state)
    path = checkpoint_path(state.version)
    if not storage.create(path, content):
        return False
    try:
        check_head(storage, state)
    except LogMoved:
        storage.delete([path])
        raise
    hint = {
        "version": state.version,
        "size": table.num_rows,
        "sizeInBytes": content.size,
        "numOfAddFiles": len(state.files),
    }
    storage.replace(LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode())
    return True


def checkpoint_table(state: LogState, *, now_ms: int) -> pa.Table:
    """A row per action, a column per kind; tombstones whose retention is over are left out."""
    kept_since = now_ms - file_retention_ms(state.metadata)
    tombstones = [
        each for each in state.tombstones.values() if each.deletion_timestamp_ms > kept_since
    ]
    parts = {
        "protocol": _other([state.protocol and state.protocol.to_json()["protocol"]], _PROTOCOL),
        "metaData": _other([state.metadata and state.metadata.to_json()["metaData"]], _METADATA),
        "txn": _other([each.to_json()["txn"] for each in state.transactions.values()], _TXN),
        "domainMetadata": _other(list(state.domains.values()), _DOMAIN),
        "remove": _removes(tombstones),
        "add": _adds(list(state.files.values())),
    }
    before, rows = 0, sum(map(len, parts.values()))
    columns = {}
    for name, kind in _COLUMNS.items():
        part = parts[name]
        after = rows - before - len(part)
        chunks = [pa.nulls(before, kind), part, pa.nulls(after, kind)]
        columns[name] = pa.chunked_array(chunks, type=kind)
        before += len(part)
    return pa.table(columns)


def _other(values: Sequence[Any], kind: pa.StructType) -> pa.Array:
    names = [field.name for field in kind]
    known = [{n: each[n] for n in names if each.get(n) is not None} for each in values if each]
    return pa.array(map(_with_pairs, known), type=kind)


def _with_pairs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Arrow takes maps as pairs; ``format`` holds one."""
    found = dict(fields)
    if "configuration" in found and isinstance(found["configuration"], Mapping):
        found["configuration"] = list(found["configuration"].items())
    if "format" in found:
        options = found["format"].get("options") or {}
        found["format"] = {**found["format"], "options": list(options.items())}
    return found


def _adds(files: Sequence[DataFile]) -> pa.StructArray:
    columns = [
        pa.array([each.path for each in files], pa.string()),
        _maps([each.partition_values for each in files]),
        pa.array([each.size for each in files], pa.int64()),
        pa.array([each.modification_time_ms for each in files], pa.int64()),
        pa.array([False] * len(files), pa.bool_()),  # a checkpoint changes nothing
        pa.array([each.stats for each in files], pa.string()),
        _maps([each.tags for each in files]),
        _vectors([each.deletion_vector for each in files]),
        *(_extra([each.extra for each in files], *field) for field in _OF_ROW_TRACKING),
        _extra([each.extra for each in files], "clusteringProvider", pa.string()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _removes(tombstones: Sequence[Tombstone]) -> pa.StructArray:
    removes = [each.action for each in tombstones]
    columns = [
        pa.array([each.path for each in tombstones], pa.string()),
        pa.array([each.deletion_timestamp_ms for each in tombstones], pa.int64()),
        pa.array([False] * len(tombstones), pa.bool_()),
        _extra(removes, "extendedFileMetadata", pa.bool_()),
        _maps([each.get("partitionValues") for each in removes]),
        _extra(removes, "size", pa.int64()),
        _vectors([each.deletion_vector for each in tombstones]),
        *(_extra(removes, *field) for field in _OF_ROW_TRACKING),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_REMOVE))


def _extra(fields: Iterable[Mapping[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    return pa.array([each.get(name) for each in fields], kind)


def _maps(values: Iterable[Mapping[str, str | None] | None]) -> pa.Array:
    return pa.array([None if v is None else list(v.items()) for v in values], type=_STRINGS)


def _vectors(found: Sequence[DeletionVectorDescriptor | None]) -> pa.StructArray:
    there = [each for each in found if each is not None]
    columns = [
        [each.storage_type for each in there],
        [each.path_or_inline for each in there],
        [each.offset for each in there],
        [each.size_in_bytes for each in there],
        [each.cardinality for each in there],
    ]
    arrays = [pa.array(v, field.type) for v, field in zip(columns, _VECTOR, strict=True)]
    dense = pa.StructArray.from_arrays(arrays, fields=list(_VECTOR))
    counted = iter(range(len(there)))
    places = [None if each is None else next(counted) for each in found]
    return dense.take(pa.array(places, pa.int64()))
