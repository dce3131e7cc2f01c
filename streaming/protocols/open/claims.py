"""Rows of a batch that are in claim-check storage: where they are, and the message with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.compressed import text_of
from streaming.protocols.contract import with_key
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.open.frames import frames_of
from streaming.protocols.open.strict_parser import head_of

MARKER: Final = b'"ccl"'  # in each message that has one
_VERSION: Final = (1).to_bytes(8, "big")
_LENGTH: Final = 8


def find(message: bytes) -> dict[str, TableName]:
    """The places that a message names, each with its row's table."""
    found = dict[str, TableName]()
    for key, _ in _events(message):
        try:
            head = head_of(key)
        except Malformed:
            continue
        if head.claim is not None:
            found[head.claim] = head.name
    return found


def fill(message: bytes, bodies: Mapping[str, bytes]) -> bytes:
    """The message with these rows in it. A body is framed as a message's value is."""
    keys, values = [_VERSION], []
    for key, value in _events(message):
        body = None
        try:
            if (claim := head_of(key).claim) is not None:
                body = bodies.get(claim)
        except Malformed:
            pass
        if body is not None:
            length = int.from_bytes(body[:_LENGTH], "big")
            if len(body) != _LENGTH + length:
                body = None
        if body is not None:
            told = json.loads(key)
            del told["ccl"]
            key = json.dumps(told, separators=(",", ":")).encode()
            value = text_of(body[_LENGTH:])
        keys.append(len(key).to_bytes(_LENGTH, "big") + key)
        values.append(len(value).to_bytes(_LENGTH, "big") + value)
    return with_key(b"".join(keys), b"".join(values)) or b""


def _events(message: bytes) -> list[tuple[bytes, bytes]]:
    frames = frames_of(pa.array([message], pa.binary()))
    if not frames.is_whole.all():
        return []
    return list(zip(frames.keys.to_pylist(), frames.values.to_pylist(), strict=True))
