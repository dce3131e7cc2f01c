"""simple with encoding-format=avro: the messages of its JSON in that encoding."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tests.services.avro_writer import (
    blocks,
    boolean,
    branch,
    double,
    long,
    octets,
    single,
    text,
)
from tests.services.other_recordings.go_json import loads
from tests.services.other_recordings.json_protocols import Json
from tests.services.wire import WireMessage

_MESSAGE, _PROTOCOL = 11, 1
_WATERMARK, _BOOTSTRAP, _DDL, _DML = range(4)
_DDL_TYPES = ("CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY")
_OPS = ("INSERT", "UPDATE", "DELETE")
_NULL, _LONG, _FLOAT, _DOUBLE, _TEXT, _BYTES, _MOMENT, _UNSIGNED = range(8)
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "enum", "set", "bit")
Types = dict[tuple[str, str, str], dict[str, Json]]  # schema, table, version -> column -> type


def in_avro(messages: Iterable[WireMessage]) -> Iterator[WireMessage]:
    """A row's types must have been told; they are here, in some message."""
    sent = [(each, loads(each.value or b"")) for each in messages]
    types: Types = {}
    for _, message in sent:
        for told in filter(None, (message.get("tableSchema"), message.get("preTableSchema"))):
            at = told["schema"], told["table"], str(told["version"])
            types[at] = {each["name"]: each["dataType"] for each in told["columns"]}
    for each, message in sent:
        yield replace(each, value=_message(message, types))


def _message(of: Json, types: Types) -> bytes:
    built = long(int(of["buildTs"]))
    if of["type"] == "WATERMARK":
        return _head(_WATERMARK, long(int(of["commitTs"])) + built)
    if of["type"] == "BOOTSTRAP":
        return _head(_BOOTSTRAP, built + _table(of["tableSchema"]))
    if of["type"] not in _OPS:
        kind = long(_DDL_TYPES.index(of["type"])) + text(of["sql"])
        told = (_perhaps(of.get(each), _table) for each in ("tableSchema", "preTableSchema"))
        return _head(_DDL, kind + long(int(of["commitTs"])) + built + b"".join(told))
    at = of["database"], of["table"], str(of["schemaVersion"])
    head = text(of["database"]) + text(of["table"]) + long(int(of["tableID"]))
    head += long(_OPS.index(of["type"])) + long(int(of["commitTs"])) + built
    head += long(int(of["schemaVersion"])) + _perhaps(of.get("claimCheckLocation"), text)
    head += _perhaps(of.get("handleKeyOnly"), boolean) + branch(0)
    rows = (_perhaps(of.get(n), lambda row: _values(row, types[at])) for n in ("data", "old"))
    return _head(_DML, head + b"".join(rows))


def _head(kind: int, payload: bytes) -> bytes:
    return long(_MESSAGE) + long(kind) + long(kind) + long(_PROTOCOL) + payload


def _perhaps(value: Any, write: Any) -> bytes:
    return branch(0) if value is None else branch(1, write(value))


def _table(of: Json) -> bytes:
    head = text(of["schema"]) + text(of["table"]) + long(int(of["tableID"]))
    columns = blocks(_column(each) for each in of["columns"])
    indexes = blocks(_index(each) for each in of["indexes"])
    return head + long(int(of["version"])) + columns + indexes


def _column(of: Json) -> bytes:
    kind = of["dataType"]
    head = b"".join(
        map(text, (of["name"], *(kind[n] for n in ("mysqlType", "charset", "collate"))))
    )
    elements = kind.get("elements")
    rest = (
        long(int(kind["length"])),
        _perhaps(_digits(kind), lambda digits: long(int(digits))),
        _perhaps(elements, lambda names: blocks(map(text, names))),
        _perhaps(kind.get("unsigned"), boolean),
        _perhaps(kind.get("zerofill"), boolean),
        boolean(of["nullable"]),
        _perhaps(of.get("default"), lambda default: text(str(default))),
    )
    return head + b"".join(rest)


def _digits(kind: Json) -> Any:
    """TiCDC does not tell those of a fraction of a second here."""
    is_timed = kind["mysqlType"] in ("datetime", "timestamp", "time")
    return None if is_timed else kind.get("decimal")


def _index(of: Json) -> bytes:
    flags = (boolean(of[each]) for each in ("unique", "primary", "nullable"))
    return text(of["name"]) + b"".join(flags) + blocks(map(text, of["columns"]))


def _values(row: Json, types: dict[str, Json]) -> bytes:
    return blocks(text(name) + _value(value, types[name]) for name, value in row.items())


def _signed(value: str) -> bytes:
    """Of 64 bits."""
    return long((int(value) + (1 << 63)) % (1 << 64) - (1 << 63))


def _value(value: Any, of: Json) -> bytes:
    kind = of["mysqlType"].partition(" ")[0]
    if value is None:
        return branch(_NULL)
    if isinstance(value, dict):
        return branch(_MOMENT, text(value["location"]) + text(value["value"]))
    if kind in _WHOLE:
        is_unsigned = kind == "bigint" and of.get("unsigned")
        return branch(_UNSIGNED if is_unsigned else _LONG, _signed(value))
    if kind in ("float", "double"):
        number = float(value)
        return (
            branch(_FLOAT, single(number)) if kind == "float" else branch(_DOUBLE, double(number))
        )
    is_bytes = kind.endswith(("blob", "binary"))
    return (
        branch(_BYTES, octets(base64.b64decode(value))) if is_bytes else branch(_TEXT, text(value))
    )
