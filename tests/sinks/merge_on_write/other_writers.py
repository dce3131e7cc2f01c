"""What other writers may leave in a table, made by hand: their vectors and their statistics."""

from __future__ import annotations

import random
import struct
import time
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path

from coordination.trust.clock import SystemClock
from sinks.merge_on_write.log.actions import DataFile, DeletionVectorDescriptor, Json
from sinks.merge_on_write.log.commit import commit
from sinks.merge_on_write.log.deletion_vector import (
    file_of,
    read_vector,
    serialize,
    vector_path,
    z85_encode,
)
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage


def restate_vectors(uri: str, storage_type: str) -> None:
    """Every vector of the table again, inline (i), at an absolute path (p) or under a prefix
    (u): the same rows, in a commit that changes nothing."""
    storage, state = _look(uri)
    actions: list[Json] = []
    for file in state.files.values():
        if file.deletion_vector is not None:
            vector = _restated(storage, file, storage_type)
            if vector.unique_id == file.vector_id:
                continue  # inline once more is the same logical file: not to be removed and added
            actions.append(file.remove(_now_ms(), data_change=False))
            actions.append(file.changed(deletionVector=vector.to_json()).add(data_change=False))
    _commit(storage, state, actions)


def without_statistics(uri: str, dice: random.Random) -> None:
    """One file's statistics go: all, or (where it has a vector) all but the number of its rows."""
    storage, state = _look(uri)
    files = sorted(state.files.values(), key=lambda file: file.path)
    if files:
        file = dice.choice(files)
        stats = None
        if file.deletion_vector is not None:
            rows = (file.stats or "").partition('"numRecords":')[2].split(",")[0].rstrip("}")
            stats = f'{{"numRecords":{int(rows)}}}'
        _commit(storage, state, [file.changed(stats=stats).add(data_change=False)])


def _restated(storage: LocalStorage, file: DataFile, storage_type: str) -> DeletionVectorDescriptor:
    old = file.deletion_vector
    assert old is not None
    path = file_of(old)
    content = b"" if path is None else _read(storage, path)
    vector = read_vector(content, old)
    data = serialize(vector)
    body = b"\x01" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    name = uuid.uuid4()
    places = {
        "i": (None, z85_encode(data)),
        "p": (f"elsewhere-{name}.bin", (Path(storage.uri) / f"elsewhere-{name}.bin").as_uri()),
        "u": (f"ab/{vector_path(name)}", "ab" + z85_encode(name.bytes)),
    }
    place, text = places[storage_type]
    if place is not None:
        storage.write(place, body)
    return DeletionVectorDescriptor(
        storage_type=storage_type,
        path_or_inline=text,
        offset=None if place is None else 1,
        size_in_bytes=len(data),
        cardinality=len(vector),
    )


def _read(storage: LocalStorage, path: str) -> bytes:
    if path.startswith("file://"):
        return Path(path.removeprefix("file://")).read_bytes()
    return storage.read(path)


def _look(uri: str) -> tuple[LocalStorage, LogState]:
    storage = LocalStorage(uri)
    state = read_log(storage)
    assert state is not None
    return storage, state


def _commit(storage: LocalStorage, state: LogState, actions: Sequence[Json]) -> None:
    if actions:
        commit(
            storage,
            state,
            actions,
            operation="FOREIGN",
            now_ms=_now_ms(),
            followed_at=SystemClock().monotonic(),
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
