"""Messages as TiCDC writes them in simple, and how chunks of them are read."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from typing import Any

from streaming.protocols.contract import Block, Wanted
from streaming.protocols.simple.decoder import decode
from tests.streaming.protocols.canal_json.reading import accounted, chunk


def text_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def row(
    kind: str = "INSERT", ts: int = 10, checksum: dict[str, Any] | None = None, **changes: Any
) -> bytes:
    """``changes``: members; None takes one out."""
    fields: dict[str, Any] = {
        "version": 1,
        "database": "shop",
        "table": "t",
        "tableID": 118,
        "type": kind,
        "commitTs": ts,
        "buildTs": 1795275668017,
        "schemaVersion": 7,
        **({} if checksum is None else {"checksum": checksum}),
        **({} if kind == "DELETE" else {"data": {"id": "1", "v": "a"}}),
        **({} if kind == "INSERT" else {"old": {"id": "2", "v": "b"}}),
        **changes,
    }
    return text_of({name: value for name, value in fields.items() if value is not None})


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    told = {"mysqlType": kind, "charset": "binary", "collate": "binary", "length": 20, **more}
    return {"name": name, "dataType": told, "nullable": name != "id", "default": None}


def table(version: int = 7, name: str = "t", **more: Any) -> dict[str, Any]:
    return {
        "schema": "shop",
        "table": name,
        "tableID": 118,
        "version": version,
        "columns": [column("id", "bigint"), column("v", "varchar", length=9)],
        "indexes": [
            {
                "name": "primary",
                "unique": True,
                "primary": True,
                "nullable": False,
                "columns": ["id"],
            }
        ],
        **more,
    }


def bootstrap(**changes: Any) -> bytes:
    fields = {
        "version": 1,
        "type": "BOOTSTRAP",
        "commitTs": 0,
        "buildTs": 1,
        "tableSchema": table(),
    }
    return text_of(fields | changes)


def watermark(ts: int) -> bytes:
    return text_of({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 1})


def ddl(ts: int, sql: str, **more: Any) -> bytes:
    fields = {"version": 1, "type": "ALTER", "sql": sql, "commitTs": ts, "buildTs": 1, **more}
    return text_of(fields)


class RandomRows:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = ["id", *self.random.sample(["a", "b", "c", "d", "t", "u"], 4)]
        self.has_checksums = self.random.random() < 0.5
        self.zone = self.random.choice(("UTC", "Asia/Shanghai", "Local"))

    def value(self, name: str) -> Any:
        dice = self.random
        if name != "id" and dice.random() < 0.2:
            return None
        if name in ("t", "u"):
            text = dice.choice(
                ("2020-01-02 03:04:05", "0000-00-00 00:00:00", "2021-05-06 07:08:09.5")
            )
            return {"location": self.zone, "value": text}
        text = dice.choice(("", "7", 'q"q', "\\", "中文,", "<b>&", "\x00\x1f", "😀", "{}"))
        return text + dice.choice(string.ascii_letters)

    def values(self, lack: float = 0.0) -> dict[str, Any]:
        names = [name for name in self.columns if self.random.random() >= lack]
        return {name: self.value(name) for name in names}

    def message(self, ts: int) -> bytes:
        kind = self.random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
        changes: dict[str, Any] = {"tableID": self.random.choice((118, 1190))}
        if kind != "DELETE":
            changes["data"] = self.values()
        if kind == "UPDATE":
            changes["old"] = self.values(self.random.choice((0.0, 0.0, 0.5)))
        if kind == "DELETE":
            changes["old"] = self.values()
        return row(kind, ts, self.checksum() if self.has_checksums else None, **changes)

    def checksum(self) -> dict[str, Any]:
        dice = self.random
        current, previous = (dice.choice((0, 7, 2**32 - 1, dice.randrange(2**32))) for _ in "ab")
        corrupted = dice.random() < 0.1
        return {"version": 1, "corrupted": corrupted, "current": current, "previous": previous}

    def messages(self, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        for number in range(count):
            kind = self.random.random()
            if kind < 0.05:
                found.append(watermark(1000 + number))
            elif kind < 0.08:
                told = {"tableSchema": table(8), "preTableSchema": table(7)}
                found.append(ddl(900, "ALTER TABLE t ADD x INT", **told))
            elif kind < 0.1:
                found.append(bootstrap())
            else:
                found.append(self.message(10 + number))
        return found

    def mutated(self, value: bytes) -> bytes | None:
        """With something wrong, perhaps."""
        dice, data = self.random, bytearray(value)
        at, kind = dice.randrange(len(data)), dice.randrange(6)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 30)]
        elif kind == 2:
            more = (b'"', b"\\", b"}", b"{", b"\x00", b"null", b"1e", b",", bytes(data))
            data[at:at] = dice.choice(more)
        elif kind == 3:
            names = (
                b"data",
                b"old",
                b"type",
                b"checksum",
                b"current",
                b"commitTs",
                b"schemaVersion",
                b"location",
                b"table",
            )
            other = dice.choice((b"x", b"data", b"old", b"value", b"", b'old":{},"old'))
            data = data.replace(dice.choice(names), other, dice.randrange(1, 3))
        elif kind == 4:
            return dice.choice((None, b"", b"{}", b"[]", dice.randbytes(40)))
        else:
            data[at] ^= 1 << dice.randrange(8)
        return bytes(data)


def read(values: Sequence[bytes | None], tables: Wanted) -> list[Block]:
    return list(decode(chunk(values), tables))


def assert_accounted(blocks: Sequence[Block], count: int) -> None:
    assert accounted(blocks, count)
