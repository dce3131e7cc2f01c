"""Our encoder against TiCDC's recorded bytes."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest

from tests.services import wire
from tests.shop.canal_json import (
    Change,
    Column,
    Ddl,
    Table,
    encode_change,
    encode_ddl,
    encode_watermark,
)
from tests.shop.dispatch import partition_of

VARIANTS = [wire.CANAL_JSON, wire.CANAL_JSON_INTERLEAVED]
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_MYSQL_TYPES = re.compile(rb'"mysqlType":(\{[^}]*\})')


def from_text(text: str | None, mysql_type: str) -> Any:
    """The Python value of a cell, so that encoding it again is more than a copy."""
    if text is None:
        return None
    base = mysql_type.split(" ")[0]
    if base in _BINARY:
        return text.encode("latin-1")
    if base in ("float", "double"):
        return float(text)
    if base.endswith("int") or base == "year":
        return int(text)
    return Decimal(text) if base == "decimal" else text


def change_of(message: dict[str, Any]) -> Change:
    types = message["mysqlType"]
    row = message["data"][0]
    key = tuple(message["pkNames"]) or tuple(c for c in ("code", "sub") if c in row)
    table = Table(
        schema=message["database"],
        name=message["table"],
        columns=tuple(Column(name, types[name]) for name in message["sqlType"]),
        primary_key=tuple(message["pkNames"]),
        handle_key=key,
    )
    return Change(
        table=table,
        op=message["type"],
        row={name: from_text(text, types[name]) for name, text in row.items()},
        old={name: from_text(text, types[name]) for name, text in message["old"][0].items()}
        if message["old"]
        else None,
    )


def in_one_order(value: bytes) -> bytes:
    """The bytes with ``mysqlType`` sorted: Go's order is random."""
    return _MYSQL_TYPES.sub(
        lambda found: json.dumps(json.loads(found[1]), sort_keys=True).encode(), value
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_message_is_encoded_to_the_same_bytes(variant: str):
    for recorded in wire.messages(variant):
        assert recorded.value is not None
        message = json.loads(recorded.value)
        tidb = message["_tidb"]
        if message["type"] == "TIDB_WATERMARK":
            encoded = encode_watermark(tidb["watermarkTs"], message["ts"])
        elif message["isDdl"]:
            ddl = Ddl(message["database"], message["table"], message["type"], message["sql"])
            encoded = encode_ddl(ddl, tidb["commitTs"], message["ts"])
        else:
            encoded = encode_change(change_of(message), tidb["commitTs"], message["ts"])
        assert in_one_order(encoded) == in_one_order(recorded.value), recorded.note


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_row_lies_where_the_dispatcher_puts_it(variant: str):
    rows = 0
    for recorded in wire.messages(variant):
        message = json.loads(recorded.value or b"")
        if message["data"]:
            rows += 1
            assert partition_of(change_of(message), partitions=3) == recorded.partition
    assert rows == 370
