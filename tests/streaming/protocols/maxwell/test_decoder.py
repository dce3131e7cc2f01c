"""maxwell's messages, of the daemon and of TiCDC; and that no other bytes are lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from coordination.model import TableName
from streaming.protocols.contract import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Block,
    Cells,
    Kind,
    Messages,
    Order,
    cells_of,
    key_names,
    order_of,
    wire_types,
)
from streaming.protocols.decoders import decoder_of, one_message_each
from streaming.protocols.maxwell.decoder import own_ms
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable

T = TableName("shop", "t")
TSO = 470_620_744_125_251_585


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def ticdcs(kind: str, **sides: Any) -> bytes:
    return text({"database": "shop", "table": "t", "type": kind, "ts": 1_700_000_000, **sides})


def daemons(kind: str, **more: Any) -> bytes:
    told = {"database": "shop", "table": "t", "type": kind, "ts": 1_700_000_000, "xid": 7}
    return text({**told, "commit": True, **more})


def ddl(kind: str, sql: str, ts: int, **more: Any) -> bytes:
    return text({"type": kind, "database": "shop", "table": "t", **more, "ts": ts, "sql": sql})


def decoded(values: list[bytes | None], *, part: str = "m/0") -> list[Block]:
    chunk = Messages(
        part=part,
        positions=pa.array(range(len(values)), pa.int64()),
        values=pa.array(values, pa.binary()),
        commit_ts=pa.array(range(100, 100 + len(values)), pa.int64()),
    )
    return list(decoder_of("maxwell")(chunk, EveryTable(None)))


def rows_of(blocks: list[Block]) -> list[dict[str, Any]]:
    found = [row for block in blocks if block.kind is Kind.ROW for row in block.table().to_pylist()]
    return sorted(found, key=lambda row: (row["position"], row["index"]))


def test_ticdcs_rows_have_numbers_of_enums_and_a_deleted_row_is_the_old_one() -> None:
    blocks = decoded(
        [
            ticdcs("insert", data={"e": 2, "id": 1, "v": None}),
            ticdcs("update", data={"e": 2, "id": 1, "v": "b"}, old={"v": None}),
            ticdcs("delete", old={"e": 2, "id": 1, "v": "b"}),
        ]
    )
    (block,) = blocks
    schema = block.table().schema
    assert (block.name, order_of(schema), cells_of(schema)) == (T, Order.PLACE, Cells.ENCODED)
    assert (key_names(schema), wire_types(schema)) == (None, {})
    rows = [(r["op"], r["commit_ts"], r["data"], r.get("old")) for r in rows_of(blocks)]
    assert rows == [
        (OP_INSERT, 100, {"e": "2", "id": "1", "v": None}, None),
        (OP_UPDATE, 101, {"e": "2", "id": "1", "v": "b"}, {"e": "2", "id": "1", "v": None}),
        (OP_DELETE, 102, {"e": "2", "id": "1", "v": "b"}, None),
    ]


def test_a_message_of_ticdc_has_several_rows_each_with_its_index() -> None:
    """Its encoder writes the rows of a batch one behind the other, without anything between."""
    first = ticdcs("insert", data={"id": 1, "v": "}{"})
    whole = (
        first
        + ticdcs("update", data={"id": 1, "v": "b"}, old={"v": "}{"})
        + ticdcs("delete", old={"id": 1, "v": "b"})
    )
    rows = rows_of(decoded([whole]))
    assert [(r["position"], r["index"], r["op"]) for r in rows] == [(0, 0, 1), (0, 1, 2), (0, 2, 0)]
    letters = one_message_each("maxwell", whole, [0, 2])
    assert letters == [first, ticdcs("delete", old={"id": 1, "v": "b"})]
    assert one_message_each("maxwell", first, [0]) == [first]


def test_a_message_of_several_objects_is_understood_as_a_whole_or_not_at_all() -> None:
    good = ticdcs("insert", data={"id": 1})
    for bad in (b"{}", good[:-1], ticdcs("insert", data={}), b"x", b"{}" * 50_000):
        (block,) = decoded([good + bad])
        assert (block.kind, block.rows) == (Kind.BAD, 1)
        assert block.table()["value"].to_pylist() == [good + bad]


def test_the_daemons_rows() -> None:
    blocks = decoded(
        [
            daemons("bootstrap-start", data={}),
            daemons(
                "bootstrap-insert", data={"id": 1, "e": "x", "s": ["a", "b"], "j": {"a": [1.5]}}
            ),
            daemons("bootstrap-complete", data={}),
            daemons("update", data={"id": 1, "e": "7", "s": [], "j": "{}"}, old={"e": "x", "j": 7},
                    primary_key=[1], primary_key_columns=["id"]),
            daemons("delete", data={"id": 1, "e": None, "s": None, "j": True}),
        ]
    )  # fmt: skip
    keyed, others = sorted(blocks, key=lambda b: key_names(b.table().schema) is None)
    assert {cells_of(b.table().schema) for b in blocks} == {Cells.MAXWELL}
    assert key_names(keyed.table().schema) == ("id",)
    rows = [(r["position"], r["op"], r["data"]) for r in rows_of([keyed, others])]
    assert rows == [
        (1, OP_INSERT, {"id": "1", "e": "x", "s": '["a", "b"]', "j": '{"a": [1.5]}'}),
        (3, OP_UPDATE, {"id": "1", "e": "\x017", "s": "[]", "j": "\x01{}"}),
        (4, OP_DELETE, {"id": "1", "e": None, "s": None, "j": "true"}),
    ]
    assert keyed.table()["old"].to_pylist()[0] == {"id": "1", "e": "x", "s": "[]", "j": "7"}


def test_a_ddl_of_ticdc_counts_once_though_each_partition_has_it() -> None:
    create = ddl("table-create", "CREATE TABLE `t` (`id` INT)", TSO, old={}, **{"def": {}})
    other = ddl("alter table multi-schema change", "ALTER TABLE `t` ADD `c` INT", TSO)
    (block,) = decoded([create, other])
    told = [(each["ddl_type"], each["query"]) for each in block.table().to_pylist()]
    assert told == [
        ("CREATE", "CREATE TABLE `t` (`id` INT)"),
        ("ALTER", "ALTER TABLE `t` ADD `c` INT"),
    ]
    assert decoded([create, other], part="m/1") == []


def test_a_ddl_of_the_daemon_says_only_what_it_does_to_its_table() -> None:
    """A statement about several tables comes whole, once for each of them, in one partition."""

    def names(table: str) -> dict[str, str]:
        return {"database": "shop", "table": table, "charset": "utf8mb4"}

    ms = 1_700_000_000_123
    alter = "ALTER TABLE t RENAME b"
    rename = "/* app */ RENAME TABLE t TO u, v TO `a`"
    blocks = decoded(
        [
            ddl("table-create", "create table t (id int)", ms, **{"def": names("t")}),
            ddl("table-drop", "DROP TABLE t, u", ms),
            ddl("table-alter", rename, ms, old=names("v"), **{"def": names("a")}),
            ddl("table-alter", alter, ms, old=names("t"), **{"def": names("b")}),
            text({"type": "database-drop", "database": "shop", "ts": ms, "sql": "DROP DATABASE s"}),
        ],
        part="m/2",
    )  # fmt: skip
    told = [each for block in blocks for each in block.table().to_pylist()]
    found = [(r["position"], r["table_name"], r["ddl_type"], r["query"]) for r in told]
    assert sorted(found) == [
        (0, "t", "CREATE", "create table t (id int)"),
        (1, "t", "ERASE", "DROP TABLE `shop`.`t`"),
        (2, "a", "RENAME", "RENAME TABLE `shop`.`v` TO `shop`.`a`"),
        (3, "t", "ALTER", "ALTER TABLE t RENAME b"),
        (4, "", "QUERY", "DROP DATABASE s"),
    ]


def test_what_is_no_row_is_bad() -> None:
    values = [
        None, b"", b"{", b"[]", ticdcs("insert"), ticdcs("delete"), daemons("insert", encrypted={}),
        ticdcs("heartbeat"), daemons("insert", data={"id": 1}, primary_key_columns=[1]),
        b'{"database":"shop","table":"t","type":"insert","data":{"a":1,"a":2}}',
        b'{"database":"shop","database":"x","table":"t","type":"insert","data":{"a":1}}',
        b'{"database":"shop","table":"t","type":"insert","ts":1,"data":{"a":{"b":1,"b":2}}}',
    ]  # fmt: skip
    bad = [each for block in decoded(values) for each in block.table().to_pylist()]
    classes = {each["position"]: each["error_class"] for each in bad}
    assert classes == {
        0: "empty", **dict.fromkeys(range(1, len(values)), "malformed"), 6: "encrypted",
        7: "unknown-type",
    }  # fmt: skip
    named = {b.name for b in decoded(values[4:7])}
    assert named == {T}


def test_its_own_time_is_seconds_of_rows_and_more_of_ddls() -> None:
    values = [
        ticdcs("insert", data={"ts": 5}),
        ddl("table-create", "x", TSO),
        ddl("table-create", "x", 1_700_000_000_123),
        b'{"ts":"x"}',
        b'{"data":{"xts":3},"ts": 4}',
        None,
        daemons("insert", query='set v = "\\"ts\\":5"', data={"id": 1}),
    ]
    expected = [
        1_700_000_000_000,
        TSO >> 18,
        1_700_000_000_123,
        None,
        4_000,
        None,
        1_700_000_000_000,
    ]
    assert own_ms(pa.array(values, pa.binary())).to_pylist() == expected
    packed = [v and bytes(pa.Codec("lz4").compress(v, asbytes=True)) for v in values]
    assert own_ms(pa.array(packed, pa.binary())).to_pylist() == expected


class Mutated:
    """TiCDC's recorded messages, and some of the daemon's, with bytes exchanged and doubled."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        sent = [each.value or b"" for each in wire.messages("maxwell")]
        rows = [each for each in sent if len(each) < 2_000 and b'"data":' in each]
        self.good = [
            *(each for each in sent if len(each) < 2_000),
            *(b"".join(self.dice.choices(rows, k=3)) for _ in range(40)),
            *[daemons("update", data={"id": 1, "s": ["a"], "j": {"a": 1}}, old={"id": 2})] * 40,
        ]

    def __call__(self) -> bytes:
        value = bytearray(self.dice.choice(self.good))
        for _ in range(self.dice.randint(0, 4)):
            at, size = self.dice.randrange(len(value) + 1), self.dice.choice((1, 1, 2, 8, 60))
            match self.dice.randrange(4):
                case 0:
                    value[at : at + size] = self.dice.randbytes(size)
                case 1:
                    del value[at : at + size]
                case 2:
                    value[at:at] = value[: self.dice.randrange(200)]
                case _:
                    marks = (b'"', b"{", b"}", b"[", b"null", b"-1", b"\\u", b"}{")
                    value[at : at + 1] = self.dice.choice(marks)
        return bytes(value)


def garbage(seed: int, count: int) -> None:
    make = Mutated(seed)
    values = [make() for _ in range(count)]
    blocks = decoded(list(values))
    bad, good = set[int](), set[int]()
    for block in blocks:
        for each in block.table().to_pylist():
            assert block.kind is not Kind.BAD or each["position"] not in bad | good
            (bad if block.kind is Kind.BAD else good).add(each["position"])
            if block.kind is Kind.BAD:
                assert each["value"] == values[each["position"]]
    assert bad | good == set(range(count))
    assert not bad & good


def test_mutated_messages_are_all_there() -> None:
    for seed in range(5):
        garbage(seed, 1_000)


@pytest.mark.soak
def test_a_million_mutated_messages_are_all_there() -> None:
    for seed in range(1_000):
        garbage(1_000 + seed, 1_000)


@pytest.mark.parametrize("unit", [b"{}", b'{"a":', b"[", b'"', b'{"type":"insert"}', b"\\"])
def test_no_message_costs_more_than_it_may(unit: bytes) -> None:
    (block,) = decoded([ticdcs("insert", data={"id": 1}) + unit * (262_144 // len(unit))])
    assert (block.kind, block.rows) == (Kind.BAD, 1)
