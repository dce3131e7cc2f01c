"""Small tables that are nothing but a log: what the tests of the log build and compare."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from coordination.trust.clock import SystemClock
from sinks.merge_on_write.log.actions import (
    AppTransaction,
    DataFile,
    DeletionVectorDescriptor,
    Json,
    Metadata,
    Protocol,
)
from sinks.merge_on_write.log.commit import commit, create_table
from sinks.merge_on_write.log.deletion_vector import z85_encode
from sinks.merge_on_write.log.paths import commit_path
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState, parse_commit
from sinks.storage.table_storage import TableStorage

CLOCK = SystemClock()
DAY_MS = 24 * 3600 * 1000
STATS = '{"numRecords":100,"minValues":{"id":0},"maxValues":{"id":99},"nullCount":{"id":0}}'
VECTORS = frozenset({"deletionVectors"})


def now_ms() -> int:
    return int(time.time() * 1000)


def protocol(*features: str) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=VECTORS,
        writer_features=VECTORS | set(features),
    )


def metadata(**configuration: str) -> Metadata:
    column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    fields = {
        "id": "5f0c6b2e-3f0a-4b8e-9a31-2f1c0c9d1a77",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [column]}),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true", **configuration},
        "createdTime": 1_700_000_000_000,
    }
    return Metadata(fields=fields)


def make(storage: TableStorage, *features: str, **configuration: str) -> LogState:
    """A table without files; properties are given with ``_`` for the dot of ``delta.``."""
    named = {name.replace("delta_", "delta.", 1): text for name, text in configuration.items()}
    app = AppTransaction(app_id="app", version=0).to_json()
    return create_table(storage, protocol(*features), metadata(**named), [app], now_ms=now_ms())


def put(
    storage: TableStorage, state: LogState, actions: Sequence[Json], at_ms: int | None = None
) -> int:
    """One commit, of now."""
    return commit(
        storage,
        state,
        actions,
        operation="TEST",
        now_ms=now_ms() if at_ms is None else at_ms,
        followed_at=CLOCK.monotonic(),
    )


def add_files(storage: TableStorage, state: LogState, *paths: str) -> int:
    return put(storage, state, [data_file(path).add(data_change=True) for path in paths])


def data_file(path: str, vector: int | None = None, **fields: Any) -> DataFile:
    found = DataFile.new(path=path, size=1000, modification_time_ms=1_700_000_000_000, stats=STATS)
    if vector is not None:
        found = found.changed(deletionVector=descriptor(vector).to_json())
    return found.changed(**fields)


def descriptor(number: int, offset: int = 1) -> DeletionVectorDescriptor:
    """Of a vector in a file of its own."""
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline=z85_encode(number.to_bytes(16, "big")),
        offset=offset,
        size_in_bytes=34,
        cardinality=3,
    )


def touch(state: LogState, path: str, vector: DeletionVectorDescriptor, at_ms: int) -> list[Json]:
    """The actions that put a live file under another vector."""
    old = state.files[path]
    new = old.changed(deletionVector=vector.to_json())
    return [old.remove(at_ms, data_change=True), new.add(data_change=True)]


def history(seed: int, commits: int) -> Iterator[list[Json]]:
    """Commits of a table as several writers could have made them, in the order of versions."""
    chance = random.Random(seed)
    live: dict[str, DataFile] = {}
    yield [protocol().to_json(), metadata().to_json()]
    for number in range(1, commits):
        actions: list[Json] = [{"commitInfo": {"timestamp": 1000 * number}}]
        for path in chance.sample(sorted(live), k=min(len(live), chance.randrange(3))):
            old = live.pop(path)
            actions.append(old.remove(1000 * number, data_change=True))
            if chance.random() < 0.7:
                live[path] = old.changed(deletionVector=descriptor(number, len(actions)).to_json())
                actions.append(live[path].add(data_change=True))
        if chance.random() < 0.8:
            path = f"part%20{number}.parquet"
            live[path] = data_file(path)
            actions.append(live[path].add(data_change=True))
        if chance.random() < 0.3:
            app = AppTransaction(app_id=f"app-{chance.randrange(3)}", version=number)
            actions.append(app.to_json())
        if chance.random() < 0.2:
            domain = {"domain": "d", "configuration": "{}", "removed": chance.random() < 0.5}
            actions.append({"domainMetadata": domain})
        if chance.random() < 0.1:
            actions.append(metadata(changed=str(number)).to_json())
        yield actions


def write_history(storage: TableStorage, seed: int, commits: int) -> LogState:
    """The history as a log without checkpoints, and its state."""
    state = LogState()
    for version, actions in enumerate(history(seed, commits)):
        raw = "".join(f"{json.dumps(each)}\n" for each in actions).encode()
        storage.write(commit_path(version), raw)
        state.advance(version, parse_commit(raw), raw)
    return state


def differences(state: LogState, other: LogState, *, tombstones: bool = True) -> list[str]:
    """Names of what is not equal; none: both say the same of the table."""
    names = ["version", "protocol", "metadata", "files", "transactions", "domains"]
    names += ["in_commit_timestamp_ms", "head_fingerprint"]
    found = [name for name in names if getattr(state, name) != getattr(other, name)]
    if tombstones and state.tombstones.keys() != other.tombstones.keys():
        found.append("tombstones")
    return found


def assert_same(state: LogState | None, other: LogState | None) -> None:
    """What is in memory and what a replay says."""
    assert state is not None
    assert other is not None
    assert differences(state, other) == []


def assert_as_read(storage: TableStorage, state: LogState) -> None:
    assert_same(state, read_log(storage))
