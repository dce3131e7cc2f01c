"""canal-json without the extension: TiCDC's messages, and Alibaba Canal's with several rows."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming.protocols.canal_json import flat_decoder
from streaming.protocols.canal_json.flat_decoder import own_ms
from streaming.protocols.canal_json.plain_rows import read_plain
from streaming.protocols.contract import Block, Kind, Messages, Order, key_names, order_of
from streaming.protocols.decoders import decoder_of
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable


def flat(kind: str, data: list[dict[str, str | None]] | None, **more: Any) -> bytes:
    """As Canal's FlatMessage is written: its members in the order of their names."""
    told = {
        "data": data, "database": "shop", "es": 1_700_000_000_000, "id": 12, "isDdl": False,
        "mysqlType": {"id": "bigint(20)", "v": "varchar(10)"}, "old": None, "pkNames": ["id"],
        "sql": "", "sqlType": {"id": -5, "v": 12}, "table": "t", "ts": 1_700_000_000_999,
        "type": kind, **more,
    }  # fmt: skip
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def decoded(values: list[bytes | None]) -> list[Block]:
    chunk = Messages(
        part="t/0",
        positions=pa.array(range(10, 10 + len(values)), pa.int64()),
        values=pa.array(values, pa.binary()),
        commit_ts=pa.array(range(100, 100 + len(values)), pa.int64()),
    )
    return list(decoder_of("canal-json")(chunk, EveryTable(None)))


def test_a_message_has_several_rows_each_with_its_index() -> None:
    (block,) = decoded(
        [
            flat("INSERT", [{"id": "1", "v": "a"}, {"id": "2", "v": None}]),
            flat("UPDATE", [{"id": "1", "v": "b"}, {"id": "9", "v": None}],
                 old=[{"v": "a"}, {"id": "2"}]),
            flat("DELETE", [{"id": "1", "v": "b"}]),
        ]
    )  # fmt: skip
    body = block.table()
    assert (block.rows, block.first, block.last) == (5, 10, 12)
    assert order_of(body.schema) is Order.PLACE
    assert key_names(body.schema) == ("id",)
    rows = body.to_pylist()
    assert [(r["commit_ts"], r["position"], r["index"], r["op"]) for r in rows] == [
        (100, 10, 0, 1), (100, 10, 1, 1), (101, 11, 0, 2), (101, 11, 1, 2), (102, 12, 0, 0),
    ]  # fmt: skip
    assert [each["data"] for each in rows][3] == {"id": "9", "v": None}
    assert [each["old"] for each in rows][2:4] == [
        {"id": "1", "v": "a"},
        {"id": "2", "v": None},
    ]


def test_a_ddl_takes_a_number_like_a_row() -> None:
    ddl = flat(
        "ALTER", None, isDdl=True, sql="ALTER TABLE t ADD c INT", pkNames=None, mysqlType=None
    )
    row, told = decoded([flat("INSERT", [{"id": "1", "v": "a"}]), ddl])
    assert (row.kind, told.kind, told.max_ts) == (Kind.ROW, Kind.DDL, 101)
    (query,) = told.table()["query"].to_pylist()
    assert query == f"/* tidelake sent {json.loads(ddl)['es']} */ ALTER TABLE t ADD c INT"


@pytest.mark.parametrize(
    ("kind", "database", "sql"),
    [
        ("QUERY", "", "/* app */ INSERT INTO t VALUES (1)"),
        ("QUERY", "", "REPLACE INTO t SELECT * FROM u"),
        ("QUERY", "", "SET STATEMENT max_statement_time=1 FOR DELETE FROM t"),
        ("QUERY", "", "CREATE TABLE t SELECT 1"),  # its rows', of MariaDB
        ("XACOMMIT", "", "XA COMMIT 'x'"),
    ],
)
def test_the_text_of_rows_is_passed_over(kind: str, database: str, sql: str) -> None:
    assert decoded([flat(kind, None, database=database, table="", sql=sql)]) == []


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("QUERY", "DROP DATABASE shop"),  # Canal has no kind for it
        ("QUERY", "GRANT SELECT ON *.* TO app"),
        ("INSERT", "INSERT INTO t VALUES (1)"),  # binlog_format = STATEMENT
    ],
)
def test_a_statement_that_is_no_ddl_of_canal_is_one_here(kind: str, sql: str) -> None:
    (told,) = decoded([flat(kind, None, database="shop", table="", sql=sql)])
    assert told.kind is Kind.DDL
    assert told.table()["query"].to_pylist()[0].endswith(sql)


def test_rows_of_a_transaction_that_is_rolled_back_are_told() -> None:
    (told,) = decoded([flat("XAROLLBACK", None, sql="XA ROLLBACK 'x'")])
    assert told.table()["error_message"][0].as_py().startswith("XA ROLLBACK")


def test_what_is_no_row_is_bad() -> None:
    values = [
        flat("INSERT", []),
        flat("UPDATE", [{"id": "1"}, {"id": "2"}], old=[{"id": "3"}]),
        flat("QUERY", None),
        None,
        b"{",
        b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":4}}',
    ]
    bad = [each for block in decoded(values) for each in block.table().to_pylist()]
    assert sorted((each["position"], each["error_class"]) for each in bad) == [
        (10, "malformed"), (11, "malformed"), (13, "empty"),
        (14, "malformed"), (15, "with-extension"),
    ]  # fmt: skip


def test_its_own_time_is_es() -> None:
    values = [flat("INSERT", [{"id": '"es":5,'}]), b'{"es":"x"}', None, b'{"ts":1,"es":7}']
    found = own_ms(pa.array(values, pa.binary())).to_pylist()
    assert found == [1_700_000_000_000, None, None, 7]


def rows_of(blocks: list[Block]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for block in blocks:
        told = (block.kind, block.name, block.part)
        for each in block.table().to_pylist() if block.body is not None else ():
            found.setdefault(each["position"], []).append((told, each))
    return found


def test_plain_rows_are_read_side_by_side_and_mean_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TiCDC's messages many times over, with some of several rows, and some of no use, between."""
    dice = random.Random(5)
    sent = [each.value for each in wire.messages("canal-json-noext")]
    values = [dice.choice(sent) for _ in range(6_000)]
    for at in range(0, 6_000, 50):
        values[at] = dice.choice(
            (flat("INSERT", [{"id": "1", "v": "a"}, {"id": "2", "v": None}]), b"{", None, b"")
        )
    left: list[int] = []

    def counted(values: pa.Array, taking: Any) -> Any:
        rest = read_plain(values, taking)
        left.append(len(rest))
        return rest

    monkeypatch.setattr(flat_decoder, "read_plain", counted)
    plain = rows_of(decoded(values))
    assert left[0] < len(values) / 4
    monkeypatch.setattr(flat_decoder, "read_plain", lambda values, _: np.arange(len(values)))
    assert plain == rows_of(decoded(values))


def mutated(dice: random.Random, good: list[bytes]) -> bytes:
    value = bytearray(dice.choice(good))
    for _ in range(dice.randint(1, 4)):
        at, size = dice.randrange(len(value) + 1), dice.choice((1, 1, 2, 8, 60))
        match dice.randrange(4):
            case 0:
                value[at : at + size] = dice.randbytes(size)
            case 1:
                del value[at : at + size]
            case 2:
                value[at:at] = value[: dice.randrange(200)]
            case _:
                value[at : at + 1] = dice.choice((b'"', b"{", b"}", b"[", b"null", b"-1", b"\\u"))
    return bytes(value)


def garbage(seed: int, count: int) -> None:
    dice = random.Random(seed)
    sent = [each.value for each in wire.messages("canal-json-noext") if each.value]
    good = [each for each in sent if len(each) < 1_000]
    good += [flat("UPDATE", [{"id": "1"}, {"id": "2"}], old=[{"id": "3"}, {"id": "2"}])] * 20
    values: list[bytes | None] = [mutated(dice, good) for _ in range(count)]
    found: set[int] = set()
    for block in decoded(values):
        if block.body is not None:
            found.update(block.table()["position"].to_pylist())
        if block.kind is Kind.BAD:
            for each in block.table().to_pylist():
                assert each["value"] == values[each["position"] - 10]
    assert found == set(range(10, 10 + count))
    own_ms(pa.array(values, pa.binary()))


def test_mutated_messages_are_all_there() -> None:
    for seed in range(10):
        garbage(seed, 1_000)


@pytest.mark.soak
def test_a_million_mutated_messages_are_all_there() -> None:
    for seed in range(1_000):
        garbage(1_000 + seed, 1_000)
