"""Last change per key, whatever the order of arrival; each test is one Spark job or two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, permutations
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from coordination.model import TableName, Ts
from sinks.schema import Column, MySQLType, TableSchema
from streaming.cells import CastRules
from streaming.due import TableTask, settled_keys
from streaming.events import EVENT_COLUMNS, KAFKA_COLUMNS
from streaming.protocols.canal_json_sql import decode
from streaming.resolve import Resolver
from streaming.segments import Segment, TableCount
from streaming.small_tables import MANY_KINDS, Kinds, SmallTables

pytestmark = pytest.mark.spark

A, B = TableName("shop", "a"), TableName("shop", "b")
RULES = CastRules(time_zone="UTC", zero_date="null")
Text = dict[str, str | None]
Message = tuple[int, int, bytes]  # partition, offset, value


def schema(key: Sequence[str] = ("id",), **types: str) -> TableSchema:
    columns = tuple(
        Column(name=name, type=MySQLType.parse(text), nullable=name not in key)
        for name, text in types.items()
    )
    return TableSchema(columns=columns, key=tuple(key))


PLAIN = schema(id="bigint", v="varchar(20)")


def change(
    op: str, ts: int, data: Text, old: Text | None = None, name: TableName = A, **more: Any
) -> bytes:
    return json.dumps(
        {
            "database": name.schema,
            "table": name.table,
            "pkNames": ["id"],
            "isDdl": False,
            "type": op,
            "sql": "",
            "mysqlType": dict.fromkeys(data, "varchar"),
            "old": None if old is None else [old],
            "data": [data],
            "_tidb": {"commitTs": ts, **more},
        }
    ).encode()


def segment(
    spark: SparkSession, messages: Iterable[Message], tables: dict[TableName, TableSchema]
) -> Segment:
    """As a batch makes it, but with counts that exclude nothing."""
    rows = [("shop", partition, offset, value) for partition, offset, value in messages]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")
    events = decode(frame.select(*KAFKA_COLUMNS), settled_keys(tables)).select(*EVENT_COLUMNS)
    counted = TableCount(rows=len(rows), min_ts=0, max_ts=2**62, key_updates=1)
    return Segment(
        frame=events,
        begin={},
        end={},
        tables=dict.fromkeys(tables, counted),
        watermarks={},
        ddls=(),
        bad=0,
    )


def task(
    segments: Sequence[Segment], name: TableName = A, of: TableSchema = PLAIN, **more: Any
) -> TableTask:
    checkpoint = Ts(more.pop("checkpoint", 0))
    return TableTask(name=name, schema=of, checkpoint=checkpoint, segments=tuple(segments), **more)


def resolved(
    tasks: Sequence[TableTask], limit: int = 1000, rules: CastRules = RULES
) -> list[dict[str, Any]]:
    """Of the one task, by both ways, which must agree."""
    (only,) = tasks
    alone: pa.Table = Resolver(rules).resolve(only, Ts(limit)).toArrow()
    (among_small,) = SmallTables(rules).resolve(tasks, Ts(limit)).read()
    assert among_small.schema.names == alone.schema.names
    assert among_small.schema.types == alone.schema.types
    rows: list[dict[str, Any]] = alone.to_pylist()
    assert sorted(map(repr, among_small.to_pylist())) == sorted(map(repr, rows))
    return rows


def by_key(rows: Iterable[dict[str, Any]], key: str = "id") -> dict[Any, Any]:
    """Key -> its new value, None where it is deleted; every key once, no errors."""
    found: dict[Any, Any] = {}
    for row in rows:
        assert row["_error_class "] is None, row
        assert row[key] not in found, f"{row[key]} twice"
        found[row[key]] = row["v"] if row["_op "] == "U" else None
    return found


def arrivals(orders: Iterable[Sequence[tuple[str, int, str]]]) -> Iterable[Message]:
    """Each order of arrival on a key of its own, all in one topic."""
    offset = count()
    for key, order in enumerate(orders):
        for op, ts, value in order:
            data = {"id": str(key), "v": value}
            yield key % 3, next(offset), change(op, ts, data, data if op == "UPDATE" else None)


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ([("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("DELETE", 30, "b"), ("INSERT", 40, "c")], "c"),
        (
            [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("UPDATE", 30, "c"), ("DELETE", 40, "c")],
            None,
        ),
        ([("INSERT", 10, "a"), ("DELETE", 20, "a"), ("INSERT", 20, "b")], "b"),
        (
            [("UPDATE", 10, "a"), ("DELETE", 20, "a"), ("INSERT", 20, "b"), ("DELETE", 30, "b")],
            None,
        ),
    ],
)
def test_every_order_of_arrival_leads_to_the_last_change(
    spark: SparkSession, changes: list[tuple[str, int, str]], last: str | None
) -> None:
    """With and without a replay of the first that arrived."""
    orders = list(permutations(changes))
    messages = list(arrivals([*orders, *((*order, order[0]) for order in orders)]))
    found = by_key(resolved([task([segment(spark, messages, {A: PLAIN})])]))
    assert found == dict.fromkeys(range(2 * len(orders)), last)


def test_rows_outside_of_checkpoint_and_limit_do_not_count(spark: SparkSession) -> None:
    changes = [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("UPDATE", 30, "c"), ("DELETE", 40, "c")]
    only = [segment(spark, arrivals([changes]), {A: PLAIN})]
    assert by_key(resolved([task(only)], limit=30)) == {0: "c"}
    assert by_key(resolved([task(only)], limit=29)) == {0: "b"}
    assert by_key(resolved([task(only, checkpoint=30)], limit=39)) == {}
    assert by_key(resolved([task(only, checkpoint=30)], limit=40)) == {0: None}


def test_keys_that_swap_within_one_commit_ts(spark: SparkSession) -> None:
    """As TiKV has it without a clustered key: both deleted, both inserted; in any order."""
    steps = [
        ("DELETE", {"id": "1", "v": "one"}),
        ("DELETE", {"id": "2", "v": "two"}),
        ("INSERT", {"id": "1", "v": "two"}),
        ("INSERT", {"id": "2", "v": "one"}),
    ]
    for order in (steps, steps[::-1]):
        messages = [(0, n, change(op, 10, dict(data))) for n, (op, data) in enumerate(order)]
        found = by_key(resolved([task([segment(spark, messages, {A: PLAIN})])]))
        assert found == {1: "two", 2: "one"}


@pytest.mark.parametrize("is_full", [True, False], ids=["full old", "content-compatible old"])
def test_an_update_that_changed_the_key_moves_the_row(spark: SparkSession, is_full: bool) -> None:
    """Composite key: an old row with its changed columns alone keeps the rest of the key."""
    of = schema(("id", "n"), id="bigint", n="bigint", v="varchar(20)")
    old: Text = {"id": "1", "n": "7", "v": "a"} if is_full else {"id": "1"}
    same: Text = {"id": "5", "n": "7", "v": "x"} if is_full else {"v": "x"}
    messages = [
        (0, 0, change("UPDATE", 10, {"id": "2", "n": "7", "v": "b"}, old)),
        (0, 1, change("UPDATE", 10, {"id": "5", "n": "7", "v": "y"}, same)),
    ]
    rows = resolved([task([segment(spark, messages, {A: of})], of=of)])
    found = {(row["id"], row["n"]): (row["_op "], row["v"]) for row in rows}
    assert found[2, 7] == ("U", "b")
    assert found[1, 7][0] == "D"
    assert found[5, 7] == ("U", "y")
    assert len(found) == len(rows) == 3


def test_two_spellings_are_one_key(spark: SparkSession) -> None:
    """-0.0 and 0.0, a DATETIME and a DECIMAL with more and with fewer digits."""
    of = schema(("f", "t", "d"), f="double", t="datetime(6)", d="decimal(10,2)", v="varchar(20)")
    one: Text = {"f": "0", "t": "2020-01-02 03:04:05", "d": "1.5"}
    other: Text = {"f": "-0", "t": "2020-01-02 03:04:05.000000", "d": "1.50"}
    messages = [
        (0, 2, change("UPDATE", 30, {**other, "v": "c"}, {**one, "v": "b"})),
        (0, 1, change("UPDATE", 20, {**one, "v": "b"}, {**other, "v": "a"})),
        (0, 0, change("INSERT", 10, {**other, "v": "a"})),
    ]
    (row,) = resolved([task([segment(spark, messages, {A: of})], of=of)])
    assert (row["_op "], row["v"]) == ("U", "c")
    assert [str(row[key]) for key in of.key] == ["0.0", "2020-01-02 03:04:05", "1.50"]


def test_an_update_that_cannot_be_applied_leaves_the_row_under_its_old_key(
    spark: SparkSession,
) -> None:
    """Its dead letter stands for both halves."""
    of = schema(id="bigint", v="int")
    messages = [
        (0, 0, change("INSERT", 10, {"id": "1", "v": "7"})),
        (0, 1, change("UPDATE", 20, {"id": "2", "v": "seven"}, {"id": "1", "v": "7"})),
        (0, 2, change("UPDATE", 25, {"id": "2", "v": "eight"}, {"id": "1"})),
        (0, 3, change("INSERT", 30, {"id": "3", "v": "8"})),
        (0, 4, change("UPDATE", 40, {"id": None, "v": "9"}, {"id": "3", "v": "8"})),
        (0, 5, change("UPDATE", 50, {"id": "6"}, {"id": "5"}, onlyHandleKey=True)),
    ]
    rows = resolved([task([segment(spark, messages, {A: of})], of=of)])
    assert by_key(row for row in rows if row["_error_class "] is None) == {1: 7, 3: 8}
    assert sorted(row["_offset "] for row in rows if row["_error_class "]) == [1, 2, 4, 5]


def test_updates_that_pass_a_key_on_within_one_commit_ts(spark: SparkSession) -> None:
    """1 -> 2 and 2 -> 3 unsplit: the delete of 2 does not take away the row that moved there."""
    messages = [
        (0, 0, change("UPDATE", 10, {"id": "2", "v": "a"}, {"id": "1", "v": "a"})),
        (0, 1, change("UPDATE", 10, {"id": "3", "v": "b"}, {"id": "2", "v": "b"})),
    ]
    for order in (messages, messages[::-1]):
        found = by_key(resolved([task([segment(spark, order, {A: PLAIN})])]))
        assert found == {1: None, 2: "a", 3: "b"}


def test_a_key_keeps_its_last_good_change_and_the_bad_one_is_told(spark: SparkSession) -> None:
    of = schema(id="bigint", v="int")
    messages = [
        (0, 5, change("INSERT", 10, {"id": "1", "v": "7"})),
        (1, 6, change("UPDATE", 20, {"id": "1", "v": "seven"})),
        (2, 7, change("INSERT", 30, {"id": "2", "v": "many"})),
        (2, 8, change("INSERT", 40, {"id": None, "v": "1"})),
        (2, 9, change("DELETE", 50, {"id": "3", "v": "not a number"})),
    ]
    rows = resolved([task([segment(spark, messages, {A: of})], of=of)])
    good = [row for row in rows if row["_error_class "] is None]
    assert by_key(good) == {1: 7, 3: None}
    bad = {row["_offset "]: row for row in rows if row["_error_class "]}
    assert sorted(bad) == [6, 7, 8]
    assert (bad[6]["_topic "], bad[6]["_partition "], bad[6]["_commit_ts "]) == ("shop", 1, 20)
    assert bad[6]["_error_class "] == "cast"
    assert bad[6]["_error_message "] == "column v: cannot read 'seven' as int"
    assert bad[8]["_error_message "] == "column id: a key column has no value"
    assert all(row["_offset "] is None for row in good)


def test_rows_that_were_cut_to_their_key_are_errors(spark: SparkSession) -> None:
    messages = [
        (0, 0, change("INSERT", 10, {"id": "1", "v": "a"})),
        (0, 1, change("UPDATE", 20, {"id": "1"}, onlyHandleKey=True)),
        (0, 2, change("UPDATE", 30, {"id": "1"}, claimCheckLocation="s3://x")),
        (0, 3, change("DELETE", 30, {"id": "2"}, onlyHandleKey=True)),
        (0, 4, change("DELETE", 30, {"id": "3"}, claimCheckLocation="s3://x")),
    ]
    rows = resolved([task([segment(spark, messages, {A: PLAIN})])])
    good = [row for row in rows if row["_error_class "] is None]
    assert by_key(good) == {1: "a", 2: None, 3: None}  # all that a DELETE needs is its key
    errors = sorted(row["_error_class "] for row in rows if row["_error_class "])
    assert errors == ["claim-check", "handle-key-only"]


def test_ignored_events_do_not_come(spark: SparkSession) -> None:
    changes = [("INSERT", 10, "a"), ("UPDATE", 20, "b"), ("DELETE", 30, "b")]
    only = [segment(spark, arrivals([changes]), {A: PLAIN})]
    ignored = task(only, ignored_events=frozenset(("delete",)))
    assert by_key(resolved([ignored])) == {0: "b"}


def test_columns_come_in_any_order_and_unknown_ones_never_pass_in_silence(
    spark: SparkSession,
) -> None:
    messages = [
        (0, 0, change("INSERT", 10, {"v": "a", "id": "1"})),
        (0, 1, change("INSERT", 10, {"id": "2", "note": "x", "v": "b", "more": None})),
        (0, 2, change("UPDATE", 20, {"id": "3", "v": "c", "note": "y"}, {"id": "1", "v": "a"})),
        (0, 3, change("DELETE", 20, {"id": "4", "v": "d", "note": "z"})),
    ]
    tasks = [task([segment(spark, messages, {A: PLAIN})])]
    rows = resolved(tasks)
    good = [row for row in rows if row["_error_class "] is None]
    assert by_key(good) == {1: "a", 4: None}  # a DELETE needs its key alone
    bad = {row["_offset "]: row for row in rows if row["_error_class "]}
    assert sorted(bad) == [1, 2]
    assert {row["_error_class "] for row in bad.values()} == {"unknown-column"}
    assert "the target table lacks column note, more: add it" in bad[1]["_error_message "]

    dropped = resolved(tasks, rules=replace(RULES, unknown_column="drop"))
    assert by_key(dropped) == {1: None, 2: "b", 3: "c", 4: None}
    counted = {row["id"]: row["_dropped "] for row in dropped}
    assert counted == {1: None, 2: ["note", "more"], 3: ["note"], 4: None}


def test_tables_of_one_group_stay_apart(spark: SparkSession) -> None:
    """Equal keys, own checkpoints, own types; rows of a third table are not taken."""
    other = schema(("k",), k="varchar(9)", v="int")
    third = TableName("shop", "c")
    messages = [
        (0, 0, change("INSERT", 10, {"id": "1", "v": "a"})),
        (0, 1, change("INSERT", 10, {"k": "1", "v": "5"}, name=B)),
        (0, 2, change("INSERT", 10, {"id": "1", "v": "z"}, name=third)),
        (0, 3, change("UPDATE", 20, {"k": "2", "v": "6"}, {"k": "1", "v": "5"}, name=B)),
        (0, 4, change("UPDATE", 30, {"id": "1", "v": "b"}, {"id": "1", "v": "a"})),
        (0, 5, change("UPDATE", 30, {"k": "2", "v": "six"}, {"k": "2", "v": "6"}, name=B)),
    ]
    one = segment(spark, messages[:3], {A: PLAIN, B: other, third: PLAIN})
    two = segment(spark, messages[3:], {A: PLAIN, B: other})
    tasks = [task([one, two], checkpoint=15), task([one, two], name=B, of=other)]

    of_a, of_b = (table.to_pylist() for table in SmallTables(RULES).resolve(tasks, Ts(1000)).read())

    assert [(row["id"], row["v"]) for row in of_a] == [(1, "b")]
    good = {row["k"]: row for row in of_b if row["_error_class "] is None}
    assert {key: row["_op "] for key, row in good.items()} == {"1": "D", "2": "U"}
    assert good["2"]["v"] == 6
    (bad,) = [row for row in of_b if row["_error_class "]]
    assert bad["_offset "] == 5


def test_kinds_do_not_depend_on_which_tables_come_and_in_which_order() -> None:
    def of(**types: str) -> TableTask:
        return task([], of=schema((), **types))

    one = of(a="bigint", b="varchar(9)", c="decimal(10,2)")
    other = of(a="text", b="bigint", c="int unsigned", d="json")
    kinds = Kinds().of([one, other])
    assert [str(each) for each in kinds.types] == [
        "bigint",
        "varchar",
        "decimal(10,2)",
        "int unsigned",
    ]
    assert kinds.fields == ("bigint", "string", "decimal(10,2)")
    assert kinds.of([other]) is kinds.of([one]) is kinds.of([other, one]) is kinds

    many = of(**{f"c{n}": f"decimal(38,{n})" for n in range(MANY_KINDS)})
    assert len(kinds.of([many]).types) == MANY_KINDS  # begun anew
