"""The checksum of a row of simple or avro, value by value: slow, and after TiDB's ``rowcodec``
alone. It shares nothing with `sinks/types/casts/checksums.py`."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit", "enum", "set")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def checksum_of(values: Mapping[str, Any], columns: Iterable[Mapping[str, Any]]) -> int:
    """``values``: of a message; ``columns``: its table's, as a BOOTSTRAP tells them."""
    found = 0
    for column in columns:
        value = values.get(column["name"])
        if value is not None:
            found = binascii.crc32(_encoded(value, column["dataType"]["mysqlType"]), found)
    return found


def _encoded(value: Any, kind: str) -> bytes:
    if kind in _WHOLE:
        return (int(value) % 2**64).to_bytes(8, "little")
    if kind == "double":
        return struct.pack("<d", float(value))
    if kind == "float":
        (short,) = struct.unpack("<f", struct.pack("<f", float(value)))
        return struct.pack("<d", short)
    if kind == "vector":
        numbers = json.loads(value)
        return struct.pack(f"<I{len(numbers)}f", len(numbers), *numbers)
    if kind in _BYTES:
        text = value if isinstance(value, bytes) else base64.b64decode(value)
    elif kind == "timestamp":
        text = _in_utc(value["value"], value["location"]).encode()
    else:
        text = value.encode()
    return len(text).to_bytes(4, "little") + text


def _in_utc(text: str, zone: str) -> str:
    if text.startswith("0000"):
        return text
    whole, dot, fraction = text.partition(".")
    local = datetime.fromisoformat(whole).replace(tzinfo=ZoneInfo(zone))
    return f"{local.astimezone(UTC):%Y-%m-%d %H:%M:%S}{dot}{fraction}"


def with_checksum(
    message: Mapping[str, Any], columns: list[Mapping[str, Any]], *, corrupted: bool = False
) -> dict[str, Any]:
    """A row as TiCDC sends it where ``integrity-check-level`` is ``correctness``."""
    told = {
        "version": 1,
        "corrupted": corrupted,
        "current": checksum_of(message.get("data") or {}, columns),
        "previous": checksum_of(message.get("old") or {}, columns),
    }
    sides = {side: message[side] for side in ("data", "old") if side in message}
    head = {name: value for name, value in message.items() if name not in sides}
    return {**head, "checksum": told, **sides}
