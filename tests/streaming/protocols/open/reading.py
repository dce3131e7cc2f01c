"""Messages as TiCDC writes them in open-protocol, chunks of them, and how they are read."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Sequence
from typing import Any

from streaming.protocols.contract import Block, Kind, Wanted, with_key
from streaming.protocols.open.decoder import decode
from tests.streaming.protocols.canal_json.reading import chunk

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028"}
# type, flags, and what a value may be
COLUMNS: dict[str, tuple[int, int]] = {
    "id": (8, 11),
    "n": (3, 65),
    "u": (8, 193),
    "f": (5, 65),
    "e": (247, 64),
    "s": (15, 64),
    "b": (15, 65),
    "t": (252, 64),
    "bl": (252, 65),
    "d": (246, 65),
    "é<&": (12, 65),
}


def text_of(value: Any) -> bytes:
    found = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for raw, escaped in _ESCAPES.items():
        found = found.replace(raw, escaped)
    return found.encode("utf-8", "surrogatepass")


def framed(texts: Sequence[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def message(*events: tuple[Any, Any]) -> bytes:
    """Of keys and values, each an object or bytes."""
    keys, values = (
        [each if isinstance(each, bytes) else text_of(each) for each in side]
        for side in zip(*events, strict=True)
    )
    found = with_key((1).to_bytes(8, "big") + framed(keys), framed(values))
    assert found is not None
    return found


def key(ts: int = 10, table: str = "t", **more: Any) -> dict[str, Any]:
    return {"ts": ts, "scm": "shop", "tbl": table, "rid": 1, **more, "t": 1}


def resolved(ts: int) -> tuple[Any, bytes]:
    return {"ts": ts, "t": 3}, b""


def ddl(ts: int, query: str, number: int = 5) -> tuple[Any, Any]:
    return {"ts": ts, "scm": "shop", "tbl": "t", "t": 2}, {"q": query, "t": number}


def side(values: dict[str, Any]) -> dict[str, Any]:
    """Columns as the encoder writes them: bytes as they come (see ``quoted``)."""
    found = {}
    for name, value in values.items():
        number, flags = COLUMNS[name]
        is_key = {"h": True} if flags & 8 else {}
        found[name] = {"t": number, **is_key, "f": flags, "v": value}
    return found


def quoted(value: bytes) -> str:
    """As Go's strconv.Quote, roughly: what is printable ASCII stays."""
    plain = set((string.ascii_letters + string.digits + " _[]%").encode())
    return "".join(chr(each) if each in plain else f"\\x{each:02x}" for each in value)


class RandomRows:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.begin_ts = self.random.choice((10, 470620744164048896, 99_999_999_999_999_999))
        self.tables = self.random.sample(["t", "other é", 'q"q'], self.random.randrange(1, 4))
        self.columns = ["id", *self.random.sample([*COLUMNS][1:], self.random.randrange(1, 11))]

    def value(self, name: str) -> Any:
        dice, (number, flags) = self.random, COLUMNS[name]
        if name != "id" and dice.random() < 0.2:
            return None
        raw = dice.randbytes(dice.randrange(9))
        if number in (3, 8):
            return dice.choice((0, 7, 2**64 - 1, -(2**63), dice.randrange(10**6)))
        if number in (5, 247):
            return dice.choice((0, 1.5, 3.402823e38, -1e-300, 12))
        text = dice.choice(("", "a", 'q"q', "\\", "中文,", "<b>&", "\u2028", "\x00\x1f", "😀"))
        text += dice.choice(string.ascii_letters)
        if number == 252:
            return base64.b64encode(raw if flags & 1 else text.encode()).decode()
        return quoted(raw) if flags & 1 and number == 15 else text

    def row(self) -> dict[str, Any]:
        return {name: self.value(name) for name in self.columns}

    def event(self, ts: int) -> tuple[Any, Any]:
        kind = self.random.randrange(4)
        now, of = side(self.row()), self.random.choice(self.tables)
        if kind == 0:
            return key(ts, of), {"d": now}
        if kind == 1:
            before = side(self.row())
            if self.random.random() < 0.3:
                before = {name: before[name] for name in before if self.random.random() < 0.5}
            return key(ts, of), {"u": now, "p": before}
        return key(ts, of, **({"ptn": 7} if self.random.random() < 0.1 else {})), {"u": now}

    def messages(self, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        for number in range(count):
            if self.random.random() < 0.05:
                found.append(message(resolved(1000 + number)))
            elif self.random.random() < 0.03:
                found.append(message(ddl(900, "ALTER TABLE t ADD x INT")))
            else:
                events = [
                    self.event(self.begin_ts + number) for _ in range(self.random.randrange(1, 9))
                ]
                found.append(message(*events))
        return found

    def mutated(self, value: bytes) -> bytes | None:
        """With something wrong, perhaps."""
        dice, data = self.random, bytearray(value)
        at = dice.randrange(len(data))
        kind = dice.randrange(6)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 30)]
        elif kind == 2:
            data[at:at] = dice.choice(
                (b'"', b"\\", b"}", b"{", b"\x00", b"null", b"1e", b"=", data)
            )
        elif kind == 3:
            piece = dice.choice((b'"u"', b'"p"', b'"v":', b'"t":', b"true", b'"f":', b'"ts":'))
            other = dice.choice((b'"x"', b'"d"', b'"v" :', b"false", b"", b'"u":{},"u"'))
            data = data.replace(piece, other, dice.randrange(1, 3))
        elif kind == 4:
            return dice.choice((None, b"", b"\x00" * dice.randrange(90), dice.randbytes(40)))
        else:
            data[at] ^= 1 << dice.randrange(8)
        return bytes(data)


def read(values: Sequence[bytes | None], tables: Wanted) -> list[Block]:
    return list(decode(chunk(values), tables))


def assert_accounted(blocks: Sequence[Block], count: int) -> None:
    """Each message is bad as a whole, or none of it is; every message is somewhere, and each event
    in one place."""
    bad, good = list[int](), list[tuple[int, int]]()
    rest = 0
    for block in blocks:
        if block.body is None or block.kind == Kind.WATERMARK:
            rest += block.rows
            continue
        for row in block.table().to_pylist():
            if block.kind is Kind.BAD:
                bad.append(row["position"])
            else:
                good.append((row["position"], row["index"]))
    assert len(set(bad)) == len(bad)
    assert len(set(good)) == len(good)
    assert not set(bad) & {position for position, _ in good}
    there = set(bad) | {position for position, _ in good}
    assert len(there) <= count <= len(there) + rest
