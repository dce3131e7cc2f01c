"""A message that stands for a row in claim-check storage, in JSON or in Avro: one row, and the body
is the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordination.model import TableName
from streaming.protocols.json_text.claims import claims_in
from streaming.protocols.simple.avro_decoder import START
from streaming.protocols.simple.avro_reader import claim_of

MARKER: Final = b".json"  # in the name of every such file
_find, _fill = claims_in(None)


def find(message: bytes) -> dict[str, TableName]:
    if not message.startswith(START):
        return _find(message)
    found = claim_of(message)
    return {} if found is None else dict([found])


def fill(message: bytes, bodies: Mapping[str, bytes]) -> bytes:
    if not message.startswith(START):
        return _fill(message, bodies)
    return next((bodies[place] for place in find(message) if place in bodies), message)
