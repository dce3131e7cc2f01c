"""A checkpoint's rows as actions: classic, in parts, or named by a UUID with sidecars beside it.

Only the columns of the actions that count are read, and those of the removed files, by far the
most, never pass through Parquet's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.merge_on_write.actions import Json
from sinks.merge_on_write.log_paths import SIDECARS, Checkpoint
from sinks.merge_on_write.log_state import parse_commit
from sinks.merge_on_write.parsed_stats import stats_text
from sinks.merge_on_write.storage import TableStorage

UNREADABLE = (pa.ArrowException, ValueError, KeyError)
_FILES = ("add", "remove")
_OTHERS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
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
_PARSED = ("stats_parsed", "partitionValues_parsed")


def read_checkpoint(storage: TableStorage, checkpoint: Checkpoint) -> list[Json]:
    """All actions, in no order. One of ``UNREADABLE`` where it is torn; FileNotFoundError."""
    actions = [action for path in checkpoint.paths for action in _read(storage, path)]
    sidecars = [each["sidecar"]["path"] for each in actions if "sidecar" in each]
    for path in sidecars:  # always in the folder of sidecars, whatever the URI says before its name
        name = unquote(path.rpartition("/")[2])
        actions.extend(_parquet_actions(storage, f"{SIDECARS}{name}", _FILES))
    kinds = {kind for each in actions for kind in each}
    if not {"protocol", "metaData"} <= kinds:
        raise ValueError("it names no protocol or no schema")
    return actions


def _read(storage: TableStorage, path: str) -> Iterator[Json]:
    if not path.endswith(".json"):
        return _parquet_actions(storage, path, (*_OTHERS, *_FILES))
    actions = parse_commit(storage.read(path))
    wanted = {*_OTHERS, *_FILES}
    return iter([{k: v for k, v in each.items() if k in wanted and v} for each in actions])


def _parquet_actions(storage: TableStorage, path: str, kinds: tuple[str, ...]) -> Iterator[Json]:
    with storage.open_input(path) as source, pq.ParquetFile(source) as file:
        for kind in kinds:
            if kind in file.schema_arrow.names:
                yield from _add_actions(file) if kind == "add" else _actions(file, kind)


def _add_actions(file: pq.ParquetFile) -> Iterator[Json]:
    """With statistics as text, which not every writer keeps."""
    names = _field_names(file, "add")
    found = list(_actions(file, "add", leave_out=_PARSED))
    if "stats_parsed" not in names or all("stats" in each["add"] for each in found):
        return iter(found)
    return _actions(file, "add", leave_out=_PARSED[1:])


def _actions(file: pq.ParquetFile, kind: str, leave_out: tuple[str, ...] = ()) -> Iterator[Json]:
    names = [name for name in _field_names(file, kind) if name not in leave_out]
    columns = [f"{kind}.{name}" for name in names]
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        rows = batch.column(0)
        # Both: a required field of a null struct reads as a default, not as a null.
        is_there = pc.and_(pc.is_valid(rows), pc.is_valid(rows.field(_KEY_FIELD[kind])))
        rows = rows.filter(is_there)
        if len(rows):
            yield from _rows(rows, kind)


def _field_names(file: pq.ParquetFile, kind: str) -> list[str]:
    return [field.name for field in file.schema_arrow.field(kind).type]


def _rows(rows: pa.StructArray, kind: str) -> Iterator[Json]:
    values = {
        field.name: rows.field(field.name).to_pylist(maps_as_pydicts="strict")
        for field in rows.type
    }
    if "stats_parsed" in values:
        parsed = map(stats_text, values.pop("stats_parsed"))
        text = values.get("stats") or [None] * len(rows)
        values["stats"] = [kept or made for kept, made in zip(text, parsed, strict=True)]
    if "deletionVector" in values:
        vectors = values["deletionVector"]
        values["deletionVector"] = [v if v and v["storageType"] else None for v in vectors]
    names = list(values)
    for row in zip(*values.values(), strict=True):
        yield {kind: {k: v for k, v in zip(names, row, strict=True) if v is not None}}
