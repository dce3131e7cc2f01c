"""Which protocol a message looks like, whatever it was read as. Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from streaming.protocols.compressed import text_of
from streaming.protocols.contract import KEY_LENGTH, NO_KEY, TOMBSTONE

CANAL: Final = "canal-json with the TiDB extension"
PLAIN_CANAL: Final = "canal-json without the TiDB extension"
OPEN: Final = "open-protocol"
SIMPLE: Final = "simple"
SIMPLE_AVRO: Final = "simple in Avro"
DEBEZIUM: Final = "debezium"
MAXWELL: Final = "maxwell"
AVRO: Final = "avro with a schema registry"
CSV: Final = "csv"
UNWRAPPED: Final = "rows that a transform has taken out of Debezium's messages"

_MOST_BYTES: Final = 1 << 20  # of a message that is looked at
_WATERMARK_OF_AVRO: Final = b"\x02"
_WATERMARK_BYTES: Final = 9
_OF_AVRO: Final = (b"\x00", b'\x01{"query":')  # a row and its schema, or a DDL
_OF_SIMPLE_AVRO: Final = (b"\x16\x00\x00", b"\x16\x02\x02", b"\x16\x04\x04", b"\x16\x06\x06")
_OF_CSV: Final = ('"I",', '"U",', '"D",', "I,", "U,", "D,")
_LENGTH: Final = struct.Struct(">Q")


def looks_like(message: bytes, *, has_key: bool) -> str:
    """Its name in a sentence; "": none that is known. ``has_key``: the message's key stands before
    it (`contract.with_key`)."""
    value = _without_key(message) if has_key else message
    value = value if len(value) > _MOST_BYTES else text_of(value)
    if value.startswith(_OF_SIMPLE_AVRO):
        return SIMPLE_AVRO
    if _is_framed(value):
        return OPEN
    is_watermark = value.startswith(_WATERMARK_OF_AVRO) and len(value) == _WATERMARK_BYTES
    if is_watermark or value.startswith(_OF_AVRO):
        return AVRO
    try:
        text = value.decode()
        return CSV if text.startswith(_OF_CSV) else _of_json(_object(text))
    except (ValueError, RecursionError):
        return ""


def _without_key(message: bytes) -> bytes:
    if len(message) < KEY_LENGTH.size:
        return message
    (length,) = KEY_LENGTH.unpack_from(message)
    if length == NO_KEY:
        return message[KEY_LENGTH.size :]
    return b"" if length & TOMBSTONE else message[KEY_LENGTH.size + length :]


def _is_framed(value: bytes) -> bool:
    """Whether it is a batch of open-protocol: of each event the length, and its JSON."""
    if len(value) < _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(value)
    if length == 0:
        return len(value) == _LENGTH.size
    first = value[_LENGTH.size : _LENGTH.size + 1]
    return first == b"{" and _LENGTH.size + length <= len(value)


def _object(text: str) -> Mapping[str, Any]:
    """The first object of several, one behind the other."""
    told, _ = json.JSONDecoder().raw_decode(text.lstrip())
    return told if isinstance(told, dict) else {}


def _of_json(told: Mapping[str, Any]) -> str:
    names = told.keys()
    if "_tidb" in names:
        return CANAL
    if {"isDdl", "type"} <= names and names & {"mysqlType", "sqlType", "pkNames"}:
        return PLAIN_CANAL
    if {"version", "type", "commitTs"} <= names:
        return SIMPLE
    if _is_debeziums(told):
        return DEBEZIUM
    if {"database", "type", "ts"} <= names and names & {"data", "old", "def", "sql"}:
        return MAXWELL
    payload = told.get("payload")
    row = payload if isinstance(payload, dict) and "schema" in names else told
    return UNWRAPPED if {"__op", "__deleted", "__table", "__db"} & row.keys() else ""


def _is_debeziums(told: Mapping[str, Any]) -> bool:
    payload = told.get("payload")
    inner = payload if isinstance(payload, dict) else told
    source = inner.get("source")
    return isinstance(source, dict) and "connector" in source
