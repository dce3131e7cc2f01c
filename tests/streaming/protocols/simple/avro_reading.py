"""Messages as TiCDC writes them in simple with encoding-format=avro."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from streaming.protocols.contract import Block, Wanted
from streaming.protocols.simple import avro_decoder
from tests.services.avro_writer import (
    NULL,
    blocks,
    boolean,
    branch,
    double,
    long,
    octets,
    single,
    text,
)
from tests.streaming.protocols.simple.reading import read

MESSAGE = 11
WATERMARK, BOOTSTRAP, DDL, DML = range(4)
OPS = ("INSERT", "UPDATE", "DELETE")
Values = Mapping[str, bytes] | None  # by column the written value, with its branch


def message(kind: int, payload: bytes, version: int = 1) -> bytes:
    return long(MESSAGE) + long(kind) + long(kind) + long(version) + payload


def whole(value: int) -> bytes:
    return branch(1, long(value))


def of_text(value: str) -> bytes:
    return branch(4, text(value))


def moment(value: str, zone: str = "UTC") -> bytes:
    return branch(6, text(zone) + text(value))


def values(of: Values) -> bytes:
    if of is None:
        return branch(0)
    return branch(1, blocks(text(name) + value for name, value in of.items()))


def row(
    kind: str = "INSERT",
    ts: int = 10,
    *,
    data: Values = None,
    old: Values = None,
    version: int = 7,
    table: str = "t",
    database: str = "shop",
    claim: str | None = None,
    is_cut: bool | None = None,
    checksum: tuple[int, bool, int, int] | None = None,
) -> bytes:
    if data is None and kind != "DELETE":
        data = {"id": whole(1), "v": of_text("a")}
    if old is None and kind != "INSERT":
        old = {"id": whole(2), "v": of_text("b")}
    told = (long(0), b"")
    if checksum is not None:
        number, corrupted, current, previous = checksum
        told = (long(1), long(number) + boolean(corrupted) + long(current) + long(previous))
    head = (text(database), text(table), long(118), long(OPS.index(kind)), long(ts), long(9))
    place = branch(0) if claim is None else branch(1, text(claim))
    cut = branch(0) if is_cut is None else branch(1, boolean(is_cut))
    parts = (*head, long(version), place, cut, *told, values(data), values(old))
    return message(DML, b"".join(parts))


def column(name: str, kind: str, length: int = 20, *, unsigned: bool | None = None) -> bytes:
    of = text(kind) + text("binary") + text("binary") + long(length)
    flag = branch(0) if unsigned is None else branch(1, boolean(unsigned))
    rest = branch(0) + branch(0) + flag + branch(0)
    return text(name) + of + rest + boolean(name != "id") + branch(0)


def table(version: int = 7, name: str = "t") -> bytes:
    columns = blocks([column("id", "bigint", unsigned=False), column("v", "varchar", 9)])
    flags = boolean(True) + boolean(True) + boolean(False)
    index = text("primary") + flags + blocks([text("id")])
    return text("shop") + text(name) + long(118) + long(version) + columns + blocks([index])


def bootstrap(version: int = 7) -> bytes:
    return message(BOOTSTRAP, long(9) + table(version))


def watermark(ts: int) -> bytes:
    return message(WATERMARK, long(ts) + long(9))


def ddl(ts: int, sql: str, *, after: bytes | None = None, before: bytes | None = None) -> bytes:
    told = [branch(0) if each is None else branch(1, each) for each in (after, before)]
    return message(DDL, long(1) + text(sql) + long(ts) + long(9) + b"".join(told))


class RandomRows:
    """``columns``: by name the kind of their values."""

    KINDS = ("whole", "text", "bytes", "moment", "unsigned", "single", "double", "never")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        names = ["a", "列名", "a_name_that_is_longer_than_words", "c" * 70, "", "b2", "b3"]
        chosen = self.random.sample(names, 5)
        self.columns = {"id": "whole", **{name: self.random.choice(self.KINDS) for name in chosen}}
        self.zone = self.random.choice(("UTC", "Asia/Shanghai", "Local"))

    def value(self, name: str) -> bytes:
        dice, kind = self.random, self.columns[name]
        if kind == "never" or (name != "id" and dice.random() < 0.2):
            return branch(0)
        if dice.random() < 0.002:
            kind = dice.choice(self.KINDS[:3])
        return self.made(kind)

    def made(self, kind: str) -> bytes:
        dice = self.random
        zone = "Asia/Tokyo" if dice.random() < 0.01 else self.zone
        time = dice.choice(("2020-01-02 03:04:05", "0000-00-00 00:00:00"))
        number = dice.choice((0, -1, 64, 2**63 - 1, -(2**63), dice.randrange(10**9)))
        some_bytes = dice.randbytes(dice.choice((0, 1, 63, 64, 200)))
        return {
            "whole": whole(number),
            "text": of_text(dice.choice(("", "7", "q\x00", "中文" * dice.randrange(60)))),
            "bytes": branch(5, octets(some_bytes)),
            "moment": moment(time, zone),
            "unsigned": branch(7, long(number)),
            "single": branch(2, single(dice.choice((0.0, -0.0, 1.5, 3.4e38)))),
            "double": branch(3, double(dice.choice((0.0, -0.0, 0.1, 1.7e308)))),
        }[kind]

    def values(self) -> dict[str, bytes]:
        names = [*self.columns]
        self.random.shuffle(names)
        if self.random.random() < 0.01:
            names.pop()
        return {name: self.value(name) for name in names}

    def message(self, ts: int) -> bytes:
        kind = self.random.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
        data = None if kind == "DELETE" else self.values()
        old = None if kind == "INSERT" else self.values()
        checksum = (1, False, 2**31, 0) if self.random.random() < 0.2 else None
        return row(kind, ts, data=data, old=old, checksum=checksum)

    def messages(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        for number in range(count):
            kind = self.random.random()
            if kind < 0.03:
                found.append(watermark(1000 + number))
            elif kind < 0.05:
                found.append(ddl(900, "ALTER TABLE t ADD x INT", after=table(8), before=table(7)))
            elif kind < 0.07:
                found.append(bootstrap())
            elif kind < 0.09:
                found.append(row(ts=10 + number, table="other", claim="x/y.json", is_cut=True))
            else:
                found.append(self.message(10 + number))
        return found

    def mutated(self, value: bytes) -> bytes | None:
        """With something wrong, perhaps: lengths that lie, endless numbers, parts that are gone."""
        dice, data = self.random, bytearray(value)
        at, kind = dice.randrange(len(data)), dice.randrange(7)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 30)]
        elif kind == 2:
            more = (b"\xff" * 12, b"\x80" * 9 + b"\x01", b"\x01", NULL, long(-5), long(2**62))
            data[at:at] = dice.choice((*more, bytes(data)))
        elif kind == 3:
            lie = (
                b"\x80\x00",
                b"\xfe\xff\xff\xff\x0f",
                b"\xff" * 9 + b"\x01",
                b"\xff" * 9 + b"\x02",
            )
            data[at : at + 1] = dice.choice(lie)
        elif kind == 4:
            return dice.choice((None, b"", b"\x16", b"\x16\x06\x06", b"{}", dice.randbytes(40)))
        elif kind == 5:
            del data[at:]
        else:
            data[at] ^= 1 << dice.randrange(8)
        return bytes(data)


def one_by_one(
    of: Sequence[bytes | None], tables: Wanted, monkeypatch: pytest.MonkeyPatch
) -> list[Block]:
    """By the slow way alone."""
    with monkeypatch.context() as patch:
        patch.setattr(avro_decoder, "FEW", 1 << 40)
        return read(of, tables)
