"""A recording of avro as it would be with ``integrity-check-level = correctness``: the columns of a
value stand in the order of their IDs, and its checksum is behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streaming.protocols.avro_binary.datum_reader import DatumReader
from tests.services.avro_writer import boolean, long, text
from tests.services.row_checksum import checksum_of

EXTENSION: Sequence[Mapping[str, Any]] = (
    {"name": "_tidb_row_level_checksum", "type": "string", "default": ""},
    {"name": "_tidb_corrupted", "type": "boolean", "default": False},
    {"name": "_tidb_checksum_version", "type": "int", "default": 0},
)
HEAD = 5
_KINDS = {"TEXT": "varchar", "BLOB": "blob", "TiDBVECTORFloat32": "vector"}


def by_id(schema: str, order: Callable[[str], Any]) -> str:
    """The schema of a value as TiCDC registers it then. ``order``: of the columns' names."""
    told = json.loads(schema)
    fields = told["fields"]
    columns = sorted(filter(_is_column, fields), key=lambda each: order(each["name"]))
    rest = [each for each in fields if not _is_column(each)]
    return json.dumps({**told, "fields": [*columns, *rest, *EXTENSION]})


def checked(
    value: bytes, schema: str, order: Callable[[str], Any], *, wrong: int = 0, zone: str = "UTC"
) -> bytes:
    """A row by that schema; ``wrong`` is added to its checksum. The id stays."""
    reader = DatumReader(value, HEAD)
    pieces, values, columns, behind = {}, {}, [], b""
    for field in json.loads(schema)["fields"]:
        begin = reader.at
        found = _value(reader, field["type"])
        if not _is_column(field):
            behind += value[begin : reader.at]
            continue
        name, kind = field["name"], _type(field)
        pieces[name] = value[begin : reader.at]
        parameters = kind["connect.parameters"]
        of = parameters["tidb_type"].split()[0]
        values[name] = _told(found, of, parameters, zone)
        columns.append({"name": name, "dataType": {"mysqlType": _KINDS.get(of, of.lower())}})
    reader.end()
    columns.sort(key=lambda each: order(each["name"]))
    row = b"".join(pieces[each["name"]] for each in columns)
    told = text(str(checksum_of(values, columns) + wrong)) + boolean(value=False) + long(1)
    return value[:HEAD] + row + behind + told


def _is_column(field: Mapping[str, Any]) -> bool:
    return not field["name"].startswith("_tidb_")


def _type(field: Mapping[str, Any]) -> Any:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return next(each for each in kinds if each != "null")


def _value(reader: DatumReader, kind: Any) -> Any:
    if isinstance(kind, list):
        kind = kind[reader.index(2)]
        return None if kind == "null" else _value(reader, kind)
    name = kind["type"] if isinstance(kind, dict) else kind
    of = {"int": reader.integer, "long": reader.long, "string": reader.text}
    others = {"bytes": reader.octets, "float": reader.single, "double": reader.double}
    return {**of, **others}[name]()


def _told(found: Any, kind: str, parameters: Mapping[str, str], zone: str) -> Any:
    """A value as simple has it, which `checksum_of` takes."""
    if found is None:
        return None
    if kind == "BIT":
        return int.from_bytes(found)
    if kind in ("ENUM", "SET"):
        allowed = parameters["allowed"].replace("\\,", "\0").split(",")
        names = [each.replace("\0", ",") for each in allowed]
        if kind == "ENUM":
            return names.index(found) + 1 if found in names else 0
        return sum(1 << names.index(each) for each in found.split(",") if each)
    if kind == "TIMESTAMP":
        return {"location": zone, "value": found}
    return found
