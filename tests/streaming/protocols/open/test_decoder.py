"""What a message of open-protocol means, and what becomes of one that means nothing."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.contract import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Kind,
    Messages,
    key_names,
    with_key,
)
from streaming.protocols.open.decoder import decode
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable
from tests.streaming.protocols.open.reading import ddl, framed, key, message, read, resolved, side

NAME = TableName("shop", "t")
ONE = key(), {"u": side({"id": 1, "s": "a"})}
VARIANTS = (
    "open-protocol",
    "open-protocol-interleaved",
    "open-protocol-claim-check",
    "open-protocol-handle-key-only",
    "open-protocol-updated-columns",
)


def only_bad(value: bytes | None) -> dict[str, Any]:
    (block,) = read([value], EveryTable(None))
    assert block.kind is Kind.BAD
    (found,) = block.table().to_pylist()
    assert (found["value"], found["index"]) == (value, 0)
    return {"name": block.name, "is_row": block.has_only_rows, **found}


def test_one_message_has_events_of_several_kinds():
    deleted = key(11), {"d": side({"id": 2, "s": "b"})}
    updated = key(12), {"u": side({"id": 3, "s": "c"}), "p": side({"id": 4, "s": "d"})}
    other = key(13, "other"), {"u": side({"id": 1})}
    blocks = read([message(ONE, deleted, other, updated)], EveryTable(("id",)))
    rows, others = sorted(blocks, key=lambda block: block.name)[::-1]
    assert [r["op"] for r in rows.table().to_pylist()] == [OP_INSERT, OP_DELETE, OP_UPDATE]
    assert [r["index"] for r in rows.table().to_pylist()] == [0, 1, 3]
    assert [r["old"] for r in rows.table().to_pylist()] == [None, None, {"id": "4"}]
    assert (rows.rows, rows.key_changes, others.rows) == (3, 1, 1)


def test_without_a_primary_key_the_handle_key_is_the_key():
    def told(**flags: dict[str, Any]) -> tuple[str, ...] | None:
        columns = {name: {"t": 3, "v": 1, **each} for name, each in flags.items()}
        (block,) = read([message((key(), {"u": columns}))], EveryTable(None))
        return key_names(block.table().schema)

    unique = {"h": True, "f": 2 | 16}
    assert told(a=unique, b=unique, c={"f": 64}) == ("a", "b")
    assert told(a={"h": True, "f": 2 | 8}, b={"f": 16}) == ("a",)
    assert told(a={"f": 16}) == ()


def test_ddls_and_watermarks():
    blocks = read([message(ddl(5, "TRUNCATE t", 11)), message(resolved(9))], {})
    assert [block.kind for block in blocks] == [Kind.DDL, Kind.WATERMARK]
    (found,) = blocks[0].table().to_pylist()
    assert (found["ddl_type"], found["query"]) == ("TRUNCATE", "TRUNCATE t")
    assert (blocks[1].max_ts, blocks[1].last) == (9, 103)


def test_one_bad_event_makes_the_message_bad():
    broken = key(), b'{"u":{"id":{"t":8,"h":true,"f":11,"v":1e}}}'
    found = only_bad(message(ONE, broken))
    assert (found["error_class"], found["name"].table, found["is_row"]) == ("malformed", "", False)
    assert only_bad(message(broken))["name"] == NAME


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        with_key(None, b"{}"),
        with_key(b"", b""),
        with_key((1).to_bytes(8, "big"), b""),
        with_key((2).to_bytes(8, "big") + message(ONE)[12:], b""),
        message(ONE)[:-1],
        message(ONE) + b"\x00",
        message(({"ts": 0, "t": 3}, b"")),
        message(({"ts": 7, "t": 3}, {"q": ""})),
        message(({"ts": 7, "t": 4}, b"")),
        message((key(), {"u": side({"id": 1}), "d": side({"id": 1})})),
        message((key(), {"p": side({"id": 1})})),
        message((key(), {"u": {}})),
        message((key(), {"u": {"id": {"t": 8, "f": 1, "v": True}}})),
        message((key(), {"u": {"id": {"t": 8, "f": 1}}})),
        message((key(), {"u": {"s": {"t": 252, "f": 0, "v": "/w=="}}})),
        b"\x18\x00\x00\x00" + (1).to_bytes(8, "big") + b"\xff" * 16,
    ],
)
def test_garbage_is_bad(value: bytes | None):
    assert only_bad(value)["error_class"] in ("malformed", "empty")


def test_a_row_of_the_far_future_makes_its_message_bad():
    far = key(1 << 62), {"u": side({"id": 1})}
    messages = Messages(
        part="shop/0",
        positions=pa.array([3], pa.int64()),
        values=pa.array([message(ONE, far)]),
        latest_ts=1 << 50,
    )
    (block,) = decode(messages, EveryTable(None))
    assert block.table()["error_class"].to_pylist() == ["far-commit-ts"]


def test_zeros_without_end_are_soon_refused():
    assert only_bad(with_key((1).to_bytes(8, "big") + bytes(1 << 20), bytes(1 << 20)))


def test_very_many_bad_events_cost_no_more_than_one():
    count = 200_000
    value = with_key((1).to_bytes(8, "big") + framed([b"{"] * count), framed([b"}"] * count))
    begun_s = time.process_time()
    assert only_bad(value)
    assert time.process_time() - begun_s < 5.0


def test_a_batch_of_very_many_events():
    blocks = read([message(*[ONE] * 500)] * 3, EveryTable(None))
    assert [(block.kind, block.rows) for block in blocks] == [(Kind.ROW, 1500)]
    assert blocks[0].table()["index"].to_pylist() == [*range(500)] * 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_message_is_understood(variant: str):
    kinds: dict[Kind, int] = {}
    for partition, sent in wire.partitions(variant).items():
        messages = Messages(
            part=f"wire/{partition}",
            positions=pa.array([each.offset for each in sent], pa.int64()),
            values=pa.array([with_key(each.key, each.value) for each in sent], pa.binary()),
        )
        for block in decode(messages, EveryTable(None)):
            kinds[block.kind] = kinds.get(block.kind, 0) + block.rows
    counts = wire.config(variant)["counts"]
    assert Kind.BAD not in kinds
    lacking = len(wire.config(variant)["encoderErrors"])
    assert kinds[Kind.ROW] == counts["row"] - lacking
    assert (kinds[Kind.DDL], kinds[Kind.WATERMARK]) == (counts["ddl"], counts["watermark"])
