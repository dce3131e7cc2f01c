"""The file of a recording: where each line begins, and of which part it is.

    {"topic": "shop", "partition": 0, "offset": 4711, "key_b64": null, "value_b64": "eyJ…", …}

A line's number, counted from 0 through the whole file, is the message's position in its part
(``topic/partition``). What the line calls its offset is for people. The identity of every part is
the file's hash: a file that has changed is another recording.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from coordination.errors import ConfigError

_CHUNK_BYTES: Final = 16 << 20
_PLACE: Final = pa.schema([("topic", pa.string()), ("partition", pa.int64())])
MESSAGE: Final = pa.schema([*_PLACE, ("value_b64", pa.string()), ("timestamp_ms", pa.int64())])
KEYED: Final = MESSAGE.append(pa.field("key_b64", pa.string()))


@dataclass(frozen=True, slots=True, eq=False)
class RecordingFile:
    """``plain``: the file that is read; the unpacked one if the recording is packed."""

    path: str
    plain: str
    stamp: tuple[int, int]  # of the recording: its time of change (ns), its size
    identity: str
    starts: npt.NDArray[np.int64]  # the byte at which each line begins; the last one: the end
    parts: tuple[str, ...]
    part_of: npt.NDArray[np.int32]  # by line, as its place in ``parts``

    @property
    def lines(self) -> int:
        return len(self.part_of)

    def count(self, part: str, first: int, last: int) -> int:
        """How many of these lines are of a part."""
        return int(np.count_nonzero(self.part_of[first:last] == self.parts.index(part)))


def stamp_of(path: str) -> tuple[int, int]:
    """Raises ConfigError if there is no such file."""
    try:
        found = Path(path).stat()
    except OSError as error:
        raise ConfigError(f"source-uri: {path} cannot be read: {error.strerror}") from error
    return found.st_mtime_ns, found.st_size


def recording_file(path: str) -> RecordingFile:
    """Reads the file once, and again only when it has changed. Raises ConfigError where it is no
    recording, with the line."""
    stamp = stamp_of(path)
    found = _opened(path, stamp)
    if not Path(found.plain).exists():  # the temporary folder was cleaned
        _opened.cache_clear()
        found = _opened(path, stamp)
    return found


@lru_cache(maxsize=2)
def _opened(path: str, stamp: tuple[int, int]) -> RecordingFile:
    try:
        plain = _unpacked(path) if path.endswith(".gz") else path
        identity, starts = _scanned(plain)
    except (OSError, EOFError) as error:
        raise ConfigError(f"source-uri: {path} cannot be read: {error}") from error
    if len(starts) == 1:
        raise ConfigError(f"source-uri: {path} is empty: no message was recorded")
    parts, part_of = _parts(path, plain, starts)
    return RecordingFile(path, plain, stamp, identity, starts, parts, part_of)


def _unpacked(path: str) -> str:
    """Into the process's temporary folder, which goes with the process."""
    handle, plain = tempfile.mkstemp(prefix="recording-", suffix=".jsonl")
    with os.fdopen(handle, "wb") as to, gzip.open(path) as packed:
        shutil.copyfileobj(packed, to, _CHUNK_BYTES)
    return plain


def _scanned(plain: str) -> tuple[str, npt.NDArray[np.int64]]:
    digest, found, at = hashlib.sha256(), [np.zeros(1, np.int64)], 0
    with Path(plain).open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
            found.append(ends.astype(np.int64) + (at + 1))
            at += len(chunk)
    starts = np.concatenate(found)
    if starts[-1] < at:  # the last line has no end
        starts = np.append(starts, at)
    return digest.hexdigest()[:32], starts


def _parts(
    path: str, plain: str, starts: npt.NDArray[np.int64]
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    longest = int(np.diff(starts).max())
    try:
        places = read_lines(plain, _PLACE, block_bytes=max(_CHUNK_BYTES, longest + 1))
    except pa.ArrowInvalid as error:
        raise ConfigError(_why(path, plain) or f"source-uri: {path}: {error}") from error
    is_whole = len(places) == len(starts) - 1 and not any(c.null_count for c in places.columns)
    if not is_whole:
        raise ConfigError(_why(path, plain) or f"source-uri: {path} is no recording")
    names = parts_of(places).dictionary_encode().combine_chunks()
    if isinstance(names, pa.ChunkedArray):
        names = names.chunk(0)
    codes = np.asarray(names.indices, np.int32)
    order = np.argsort(np.array(names.dictionary.to_pylist(), object), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return tuple(sorted(names.dictionary.to_pylist())), rank[codes].astype(np.int32)


def read_lines(source: Any, schema: pa.Schema, *, block_bytes: int) -> pa.Table:
    """The known columns of lines; other columns are passed over. ``block_bytes``: more than the
    longest line. Raises ArrowInvalid."""
    return arrow_json.read_json(
        source,
        read_options=arrow_json.ReadOptions(block_size=block_bytes),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def parts_of(places: pa.Table) -> pa.ChunkedArray:
    partitions = places["partition"].cast(pa.string())
    return pc.binary_join_element_wise(places["topic"], partitions, "/")


def _why(path: str, plain: str) -> str | None:
    """The first line that is no message of a recording."""
    with Path(plain).open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                found = json.loads(text)
                is_one = isinstance(found["topic"], str) and isinstance(found["partition"], int)
            except (ValueError, KeyError, TypeError):
                is_one = False
            if not is_one:
                return (
                    f"source-uri: {path} line {number} is no message of a recording: a line is a "
                    'JSON object such as {"topic": "shop", "partition": 0, "value_b64": "…"}'
                )
    return None
