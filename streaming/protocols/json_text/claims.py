"""A message that stands for a row in claim-check storage: one row, and the body is the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordination.model import TableName
from streaming.protocols.json_text.strict_json import Malformed, parse

MARKER: Final = b'"claimCheckLocation"'
_Find = Callable[[bytes], dict[str, TableName]]
_Fill = Callable[[bytes, Mapping[str, bytes]], bytes]


def claims_in(member: str | None) -> tuple[_Find, _Fill]:
    """Finding the places that a message names, and putting the rows there into the message.
    ``member``: in which the place is told; None: the message itself."""

    def place_of(message: bytes) -> tuple[str, TableName] | None:
        try:
            fields = parse(message)
        except Malformed:
            return None
        told: Any = fields if member is None else fields.get(member)
        place = told.get("claimCheckLocation") if isinstance(told, dict) else None
        schema, table = fields.get("database"), fields.get("table")
        if type(place) is not str or type(schema) is not str or type(table) is not str:
            return None
        return place, TableName(schema, table)

    def find(message: bytes) -> dict[str, TableName]:
        found = place_of(message)
        return {} if found is None else dict([found])

    def fill(message: bytes, bodies: Mapping[str, bytes]) -> bytes:
        found = place_of(message)
        return message if found is None else bodies.get(found[0], message)

    return find, fill
