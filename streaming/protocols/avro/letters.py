"""The bytes of a row's dead letter, and back to the row. A message has only the ids of its schemas,
and a DELETE up to TiCDC 8.5 no commit-ts. So a letter has both before its message, and it needs
neither the registry nor what was read before it.

    tidelake avro row
    470620744121057280
    {"3":"{\\"type\\":\\"record\\", …}","4":"…"}
    the message, as ``contract.with_key`` makes it

No message begins so: its key would have more than a gigabyte.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.protocols.avro.decoder import Schemas, decode
from streaming.protocols.avro.frames import DELETE, Frames
from streaming.protocols.avro_binary.byte_walk import Indexes
from streaming.protocols.contract import (
    BAD_BODY,
    KEY_LENGTH,
    TOMBSTONE,
    Block,
    Kind,
    Messages,
    Wanted,
    ipc,
    with_key,
)

MAGIC: Final = b"tidelake avro row\n"
_WHY: Final = "its schema was not kept with it: rewind to below it"


def letter_of(head: bytes, message: bytes, commit_ts: int) -> bytes:
    """``head``: of its block."""
    return b"".join((MAGIC, b"%d\n" % commit_ts, head, b"\n", message))


def decode_letters(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Letters, and whole messages as they were sent. As `decode`, but nothing is asked for."""
    plain, by_head = list[int](), defaultdict[bytes, list[tuple[int, bytes]]](list)
    for number, value in enumerate(messages.values.to_pylist()):
        if value is None or not value.startswith(MAGIC):
            plain.append(number)
            continue
        ts, head, message = value.removeprefix(MAGIC).split(b"\n", 2)
        if messages.commit_ts is None:
            message = _timed(message, int(ts))
        by_head[head].append((number, message))
    if plain:
        yield from _plain(_part(messages, np.array(plain, np.int64)), wanted, start_ts)
    for head, letters in by_head.items():
        part = _part(messages, np.array([number for number, _ in letters], np.int64))
        part = replace(part, values=pa.array([message for _, message in letters], pa.binary()))
        found = decode(part, wanted, start_ts=start_ts, schemas=_schemas(head))
        yield from (each for each in found if each.kind is not Kind.STATE)


def _timed(message: bytes, commit_ts: int) -> bytes:
    """A DELETE without a commit-ts as TiCDC's new architecture writes it, with one."""
    (size,) = KEY_LENGTH.unpack_from(message)
    key = message[KEY_LENGTH.size :]
    if not size & TOMBSTONE or len(key) != size - TOMBSTONE:
        return message
    made = with_key(key, bytes((DELETE,)) + commit_ts.to_bytes(8))
    assert made is not None, "it has a key"
    return made


@lru_cache(maxsize=64)
def _schemas(head: bytes) -> Schemas:
    told: Mapping[str, str] = json.loads(head)
    return {int(number): text for number, text in told.items()}


def _part(messages: Messages, numbers: Indexes) -> Messages:
    at = pa.array(numbers)
    return replace(
        messages,
        positions=messages.positions.take(at),
        values=messages.values.take(at),
        commit_ts=None if messages.commit_ts is None else messages.commit_ts.take(at),
    )


def _plain(messages: Messages, wanted: Wanted, start_ts: int) -> Iterator[Block]:
    """Messages as they were sent: those that name a schema are not read."""
    is_there = ~messages.values.is_null().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(is_there)
    lacks = np.zeros(len(messages), np.bool_)
    if len(at):
        frames = Frames.read(messages.values.take(pa.array(at)).cast(pa.binary()))
        lacks[at] = (frames.key_ids >= 0) | (frames.value_ids >= 0)
    if lacks.any():
        yield _unread(_part(messages, np.flatnonzero(lacks)))
    rest = _part(messages, np.flatnonzero(~lacks))
    found = decode(rest, wanted, start_ts=start_ts)
    yield from (each for each in found if each.kind is not Kind.STATE)


def _unread(messages: Messages) -> Block:
    count, positions = len(messages), messages.positions
    columns = [positions, [0] * count, ["unread"] * count, [_WHY] * count]
    return Block(
        kind=Kind.BAD,
        part=messages.part,
        rows=count,
        first=positions[0].as_py(),
        last=positions[-1].as_py(),
        body=ipc(pa.table([*columns, messages.values.cast(pa.large_binary())], schema=BAD_BODY)),
    )
