"""Rows of a batch that are in claim-check storage: where they are, and the message with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from coordination.model import TableName
from streaming.protocols.compressed import text_of
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.open.frames import events_in, framed
from streaming.protocols.open.strict_parser import head_of

MARKER: Final = b'"ccl"'  # in each message that has one
_LENGTH: Final = 8


def find(message: bytes) -> dict[str, TableName]:
    """The places that a message names, each with its row's table."""
    found = dict[str, TableName]()
    for key, _ in events_in(message):
        try:
            head = head_of(key)
        except Malformed:
            continue
        if head.claim is not None:
            found[head.claim] = head.name
    return found


def fill(message: bytes, bodies: Mapping[str, bytes]) -> bytes:
    """The message with these rows in it. A body is framed as a message's value is."""
    filled = []
    for key, value in events_in(message):
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
        filled.append((key, value))
    return framed(filled)
