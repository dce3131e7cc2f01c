"""Other recordings of canal-json, simple in JSON, and debezium."""

from __future__ import annotations

import re
from typing import Any

from tests.services.other_recordings.go_json import dumps, loads
from tests.services.other_recordings.names import Names
from tests.services.other_recordings.values import Cell

Json = dict[str, Any]


def canal_json(value: bytes, names: Names, cell: Cell) -> bytes:
    message: Json = loads(value)
    table = message["table"]
    message["database"] = names.database(message["database"])
    message["table"] = names.table(table)
    if message["sql"]:
        message["sql"] = names.sql(message["sql"], table)
    if message.get("pkNames"):
        message["pkNames"] = [names.column(table, each) for each in message["pkNames"]]
    for types in ("sqlType", "mysqlType"):
        if message[types]:
            message[types] = {names.column(table, c): v for c, v in message[types].items()}
    for rows in ("old", "data"):
        if message[rows]:
            message[rows] = [_row(each, table, names, cell) for each in message[rows]]
    return dumps(message).encode()


def _row(row: Json, table: str, names: Names, cell: Cell) -> Json:
    return {names.column(table, column): cell(table, column, v) for column, v in row.items()}


def simple(value: bytes, names: Names, cell: Cell) -> bytes:
    message: Json = loads(value)
    table = message.get("table") or (message.get("tableSchema") or {}).get("table", "")
    if "database" in message:
        message["database"] = names.database(message["database"])
        message["table"] = names.table(table)
    if message.get("sql"):
        message["sql"] = names.sql(message["sql"], table)
    for rows in ("data", "old"):
        if message.get(rows):
            row = _row(message[rows], table, names, cell)
            message[rows] = dict(sorted(row.items(), key=lambda item: item[0].encode()))
    for told in ("tableSchema", "preTableSchema"):
        if message.get(told):
            _simple_schema(message[told], names)
    return dumps(message).encode()


def _simple_schema(schema: Json, names: Names) -> None:
    table = schema["table"]
    schema["schema"] = names.database(schema["schema"])
    schema["table"] = names.table(table)
    for column in schema["columns"]:
        column["name"] = names.column(table, column["name"])
    for index in schema["indexes"]:
        index["name"] = names.index(index["name"])
        index["columns"] = [names.column(table, each) for each in index["columns"]]


def debezium(key: bytes, value: bytes, names: Names, cell: Cell) -> tuple[bytes, bytes]:
    both: list[Json] = [loads(key), loads(value)]
    table = both[1]["payload"]["source"]["table"]
    is_ddl = "ddl" in both[1]["payload"]
    for message in both:
        _payload(message, table, names, cell, is_ddl=is_ddl)
        if table and not is_ddl and "schema" in message:
            _connect_schema(message["schema"], table, names)
    made = [dumps(each, for_html=False).encode() for each in both]
    return made[0], made[1]


def _payload(message: Json, table: str, names: Names, cell: Cell, *, is_ddl: bool) -> None:
    payload = message["payload"]
    if "source" in payload:
        payload["source"]["db"] = names.database(payload["source"]["db"])
        payload["source"]["table"] = names.table(table)
        for rows in ("before", "after"):
            if payload.get(rows):
                payload[rows] = _row(payload[rows], table, names, cell)
    elif not is_ddl:
        message["payload"] = _row(payload, table, names, cell)
    if is_ddl:
        payload["databaseName"] = names.database(payload["databaseName"])
    if "ddl" in payload:
        payload["ddl"] = names.sql(payload["ddl"], table)
        for change in payload["tableChanges"] or ():
            _table_change(change, table, names)


def _table_change(change: Json, table: str, names: Names) -> None:
    change["id"] = ",".join(
        ".".join(
            f'"{names.table(part) if at else names.database(part)}"'
            for at, part in enumerate(each.strip('"').split('"."'))
        )
        for each in change["id"].split(",")
    )
    of = change["table"]
    if of is None:
        return
    of["primaryKeyColumnNames"] = [
        names.column(table, each) for each in of["primaryKeyColumnNames"] or ()
    ]
    for column in of["columns"] or ():
        column["name"] = names.column(table, column["name"])


def _connect_schema(schema: Json, table: str, names: Names) -> None:
    if found := re.fullmatch(r"default\.shop\.\w+\.(Envelope|Key|Value)", schema.get("name", "")):
        names_of = (names.schema, names.table(table))
        schema["name"] = ".".join(("default", *map(sanitized, names_of), found[1]))
    if schema.get("name", "").endswith((".Key", ".Value")):
        for each in schema["fields"]:
            each["field"] = names.column(table, each["field"])
    else:
        for each in schema.get("fields", ()):
            if each.get("field") in ("before", "after"):
                _connect_schema(each, table, names)


def sanitized(name: str) -> str:
    """As TiCDC writes names of schemas in Avro and Debezium."""
    made = "".join(c if re.match(r"[A-Za-z0-9_]", c) else "_" for c in name)
    return f"_{made}" if made[:1].isdigit() else made
