"""Other recordings of open-protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.services.other_recordings.go_json import dumps, loads
from tests.services.other_recordings.json_protocols import Json
from tests.services.other_recordings.names import Names
from tests.services.other_recordings.values import Cell

VERSION = struct.pack(">Q", 1)


def frames(data: bytes) -> list[bytes]:
    made, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">Q", data, at)
        made.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return made


def framed(parts: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">Q", len(each)) + each for each in parts)


def open_protocol(key: bytes, value: bytes, names: Names, cell: Cell) -> tuple[bytes, bytes]:
    assert key.startswith(VERSION)
    keys: list[Json] = [loads(each) for each in frames(key[8:])]
    values = [loads(each) if each else None for each in frames(value)]
    for head, event in zip(keys, values, strict=True):
        table = head.get("tbl", "")
        if "scm" in head:
            head["scm"] = names.database(head["scm"])
        if table:
            head["tbl"] = names.table(table)
        if event is not None:
            _change(event, table, names, cell)
    texts = [b"" if each is None else dumps(each).encode() for each in values]
    return VERSION + framed(dumps(each).encode() for each in keys), framed(texts)


def _change(event: Json, table: str, names: Names, cell: Cell) -> None:
    if "q" in event:
        event["q"] = names.sql(event["q"], table)
    for rows in ("u", "p", "d"):
        if event.get(rows):
            row = {}
            for column, of in event[rows].items():
                of["v"] = cell(table, column, of["v"])
                row[names.column(table, column)] = of
            event[rows] = dict(sorted(row.items(), key=lambda item: item[0].encode()))
