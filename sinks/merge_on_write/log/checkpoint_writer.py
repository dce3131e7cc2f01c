"""Writes a state as a classic checkpoint, which every reader of Delta knows.

It is one Parquet file. Its cost grows with the state, which is mostly tombstones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.merge_on_write.log.paths import LAST_CHECKPOINT, checkpoint_path
from sinks.merge_on_write.log.reader import LogMoved, check_head
from sinks.merge_on_write.log.state import LogState
from sinks.storage.table_storage import TableStorage
from sinks.target.retention_properties import file_retention_ms

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
_COLUMNS = {
    "protocol": _PROTOCOL,
    "metaData": _METADATA,
    "txn": _TXN,
    "domainMetadata": _DOMAIN,
    "remove": _REMOVE,
    "add": _ADD,
}


def write_checkpoint(storage: TableStorage, state: LogState, *, now_ms: int) -> bool:
    """Write the checkpoint of the state's version, and then the hint (``_last_checkpoint``).

    Returns False if the version has a checkpoint already. Raises LogMoved if the state is not the
    table's any more: then no checkpoint of it is left behind.
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
    """The checkpoint: a row per action, a column per kind of action. Tombstones whose retention is
    over are left out."""
    kept_since = now_ms - file_retention_ms(state.properties)
    actions: list[tuple[str, Iterable[Mapping[str, Any]]]] = [
        ("protocol", [state.protocol.to_json()["protocol"]] if state.protocol else []),
        ("metaData", [state.metadata.fields] if state.metadata else []),
        ("txn", (each.to_json()["txn"] for each in state.transactions.values())),
        ("domainMetadata", state.domains.values()),
        (
            "remove",
            (t.fields for t in state.tombstones.values() if t.deletion_timestamp_ms > kept_since),
        ),
        ("add", (each.fields for each in state.files.values())),
    ]
    parts = {kind: pa.array(map(_row, rows), _COLUMNS[kind]) for kind, rows in actions}
    before, rows = 0, sum(map(len, parts.values()))
    columns = {}
    for kind, part in parts.items():
        after = rows - before - len(part)
        chunks = [pa.nulls(before, part.type), part, pa.nulls(after, part.type)]
        columns[kind] = pa.chunked_array(chunks, type=part.type)
        before += len(part)
    return pa.table(columns)


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An action's fields for Arrow, with maps as pairs. ``dataChange`` is False in a checkpoint."""
    found = {**fields, "dataChange": False}
    for name in ("partitionValues", "tags", "configuration", "options"):
        if isinstance(found.get(name), Mapping):  # ``configuration`` of a domain is text
            found[name] = list(found[name].items())
    if "format" in found:
        found["format"] = _row({"options": {}, **found["format"]})
    return found
