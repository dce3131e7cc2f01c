"""Other recordings of avro: the schemas of the registry have the names, and messages the values."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import fastavro
import numpy as np

from tests.services import wire
from tests.services.other_recordings.cells import UTC_ZONE, base, canal, local
from tests.services.other_recordings.go_json import dumps
from tests.services.other_recordings.json_protocols import sanitized
from tests.services.other_recordings.making import Other
from tests.services.other_recordings.names import COLUMNS, SAME, place
from tests.services.wire import WireMessage


def avro_cell(mysql_type: str, value: Any, zone: str, *, as_text: bool) -> Any:
    """As fastavro reads it. ``as_text``: decimals and unsigned BIGINTs."""
    kind = base(mysql_type)
    if kind == "timestamp":
        return local(value, zone)
    if kind == "decimal" or (mysql_type.startswith("bigint") and "unsigned" in mysql_type):
        return value if as_text else _packed(kind, value)
    if isinstance(value, dict):
        return value["name"] if "name" in value else bytes.fromhex(value["hex"])
    if kind in ("float", "double"):
        return float(np.float32(value)) if kind == "float" else float(value)
    return _packed(kind, canal(mysql_type, value, zone))


def _packed(kind: str, text: str) -> Any:
    if kind == "decimal":
        return Decimal(text)
    if kind == "bit":
        return int(text).to_bytes(max(1, (int(text).bit_length() + 7) // 8), "big")
    if kind.endswith("int") or kind == "year":
        return (int(text) + (1 << 63)) % (1 << 64) - (1 << 63)
    return text


@dataclass(frozen=True)
class OtherAvro:
    other: Other
    variant: str

    @cached_property
    def schemas(self) -> dict[int, str]:
        return {
            number: dumps(self._schema(json.loads(text)))
            for number, text in wire.schemas(self.variant).items()
        }

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        names, table = self.other.names, schema["name"]
        of = {sanitized(each): each for each in COLUMNS[SAME.get(table, table)]}
        schema["name"] = sanitized(names.table(table))
        schema["namespace"] = f"default.{sanitized(names.schema)}"
        for each in schema["fields"]:
            if each["name"] in of:
                each["name"] = sanitized(names.column(table, of[each["name"]]))
        return schema

    @cached_property
    def _was(self) -> dict[int, Any]:
        return {
            number: fastavro.parse_schema(json.loads(text))
            for number, text in wire.schemas(self.variant).items()
        }

    def topic(self, name: str) -> str:
        if not name.startswith("shop_"):
            return name
        names = self.other.names
        made = f"{names.schema}_{names.table(name.removeprefix('shop_'))}"
        return re.sub(r"[^A-Za-z0-9._-]", "_", made)

    def messages(self) -> Iterator[WireMessage]:
        for each in wire.messages(self.variant):
            table = each.topic.removeprefix("shop_")
            made = replace(each, topic=self.topic(each.topic), key=self._datum(each.key, table))
            value = each.value
            if value is not None and value[0] == 1:
                value = self._ddl(value)
            elif value is not None and value[0] == 0:
                value = self._datum(value, table)
            yield replace(made, value=value)

    def _ddl(self, value: bytes) -> bytes:
        told = json.loads(value[1:])
        names = self.other.names
        told["query"] = names.sql(told["query"], told["table"])
        told["schema"], told["table"] = names.database(told["schema"]), names.table(told["table"])
        for each in ("commitTs", "type"):
            told[each] = int(told[each])
        return b"\x01" + json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()

    def _datum(self, data: bytes | None, table: str) -> bytes | None:
        if data is None or self.other.values is None:
            return data
        (number,) = struct.unpack(">I", data[1:5])
        schema = self._was[number]
        row: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema)
        of = {sanitized(each): each for each in COLUMNS[SAME.get(table, table)]}
        made = {
            name: self._cell(table, of[name], value) if name in of else value
            for name, value in row.items()
        }
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, made)
        return data[:5] + out.getvalue()

    def _cell(self, table: str, column: str, value: Any) -> Any:
        values, at = self.other.values, place(table, column)
        assert values is not None
        if value is None or at not in self._exchanged:
            return value
        if repr(value) in self._exchanged[at]:
            return self._exchanged[at][repr(value)]
        return local(value, values.zone) if base(values.types[at]) == "timestamp" else value

    @cached_property
    def _exchanged(self) -> dict[tuple[str, str], dict[str, Any]]:
        values = self.other.values
        assert values is not None
        encode = partial(avro_cell, as_text=self.variant == "avro-string-modes")
        return {
            at: {
                repr(encode(values.types[at], json.loads(was), UTC_ZONE)): encode(
                    values.types[at], now, values.zone
                )
                for was, now in of.items()
            }
            for at, of in values.new.items()
        }
