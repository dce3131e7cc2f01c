"""A message of Debezium, taken apart: the key's names, the payload, the schema.

    Kafka Connect  {"schema":{…},"payload":{…}}    without schemas  {"before":…,"after":…,…}
    TiCDC          {"payload":{…},"schema":{…}}                     {"payload":{…}}

A schema is as long as a few rows and nearly always one that was there before: it is parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from streaming.protocols.contract import KEY_LENGTH, NO_KEY, TOMBSTONE
from streaming.protocols.json_text.strict_json import (
    Malformed,
    Repeating,
    as_object,
    parse,
)

_SCHEMA_FIRST: Final = b'{"schema":'
_PAYLOAD_NEXT: Final = b',"payload":{'
_PAYLOAD_FIRST: Final = b'{"payload":{'
_SCHEMA_NEXT: Final = b',"schema":{'
_MOST_SCHEMA_BYTES: Final = 1 << 20
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """``schema``: None where the message has none."""

    payload: Fields
    schema: Schema | None


@dataclass(frozen=True, slots=True)
class Schema:
    """``rows``: the fields of ``after`` or ``before``, as Kafka Connect describes them."""

    rows: tuple[tuple[str, Fields], ...]


def keyed(message: bytes) -> tuple[bytes | None, bytes]:
    """The key and the value (`contract.with_key`); of a tombstone it is empty. Raises Malformed."""
    if len(message) < KEY_LENGTH.size:
        raise Malformed
    (length,) = KEY_LENGTH.unpack_from(message)
    if length == NO_KEY:
        return None, message[KEY_LENGTH.size :]
    end = KEY_LENGTH.size + (length & ~TOMBSTONE)
    if end > len(message) or (length & TOMBSTONE and end < len(message)):
        raise Malformed
    return message[KEY_LENGTH.size : end], message[end:]


def key_names(key: bytes | None) -> tuple[str, ...] | None:
    """The key's columns; () without one, None where the key is not understood."""
    if not key:
        return ()
    try:
        fields: Any = parse(key)
        if "payload" in fields:
            fields = fields["payload"]
        return () if fields is None else tuple(as_object(fields))
    except Malformed:
        return None


def inner(text: bytes) -> tuple[int, int]:
    """Where the payload stands in a key or a value: also by itself, without a schema. Whatever
    other object stands there in a text with these bytes around, it is that text's payload. Raises
    Malformed where that cannot be said."""
    payload, schema = _cut(text)
    if schema is None:
        has_name = text.startswith(_PAYLOAD_FIRST)
        payload = (len(_PAYLOAD_FIRST) - 1, len(text) - 1) if has_name else (0, len(text))
        fields = parse(text[slice(*payload)])
        if not has_name and "payload" in fields:
            raise Malformed
        return payload
    _schema(text[slice(*schema)])
    parse(text[slice(*payload)])
    return payload


_Bounds = tuple[int, int]


def _cut(text: bytes) -> tuple[_Bounds, _Bounds | None]:
    """Where payload and schema stand, if all is as it seems; None: there seems to be none."""
    if text.endswith(b"}"):
        if text.startswith(_SCHEMA_FIRST):
            at = text.rfind(_PAYLOAD_NEXT)
            if at > 0:
                return (at + len(_PAYLOAD_NEXT) - 1, len(text) - 1), (len(_SCHEMA_FIRST), at)
        elif text.startswith(_PAYLOAD_FIRST):
            at = text.rfind(_SCHEMA_NEXT)
            if at > 0:
                schema = at + len(_SCHEMA_NEXT) - 1, len(text) - 1
                return (len(_PAYLOAD_FIRST) - 1, at), schema
    return (0, len(text)), None


def opened(value: bytes) -> Envelope:
    """Raises Malformed."""
    payload, schema = _cut(value)
    if schema is not None:
        try:
            return Envelope(_plain(parse(value[slice(*payload)])), _schema(value[slice(*schema)]))
        except Malformed:
            pass  # not cut where it was to be
    fields = parse(value)
    if "payload" in fields:
        if fields.keys() - {"payload", "schema"} or _has_twice(fields):
            raise Malformed
        told = fields.get("schema")
        return Envelope(
            _plain(as_object(fields["payload"])), None if told is None else _read(as_object(told))
        )
    return Envelope(_plain(fields), None)


def _schema(text: bytes) -> Schema:
    if len(text) > _MOST_SCHEMA_BYTES:
        return _read(parse(text))
    return _known(text)


@lru_cache(maxsize=512)
def _known(text: bytes) -> Schema:
    return _read(parse(text))


def _read(schema: Fields) -> Schema:
    fields = schema.get("fields")
    rows: tuple[tuple[str, Fields], ...] = ()
    for each in fields if isinstance(fields, list) else ():
        of_row = as_object(each).get("fields")
        if each.get("field") in ("after", "before") and isinstance(of_row, list) and not rows:
            rows = tuple((str(as_object(of).get("field")), of) for of in of_row)
    return Schema(rows)


def _plain(fields: Fields) -> Fields:
    if _has_twice(fields):
        raise Malformed
    return fields


def _has_twice(fields: Fields) -> bool:
    return isinstance(fields, Repeating)
