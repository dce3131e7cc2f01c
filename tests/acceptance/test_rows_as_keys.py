"""A table whose rows are told apart by all its columns, through a real broker into real Delta:
DDLs, replays, a death at a DDL, a rewind, and what comes without its old row."""

from __future__ import annotations

import json
from dataclasses import replace

from conf.settings import TableRule
from coordination.failpoint import Failpoint
from tests.acceptance.one_process import Lives
from tests.acceptance.rows_as_keys import NAME, SCHEMA, RowsAsKeys, ordered
from tests.acceptance.small_tables import (
    CREATE_KEYLESS,
    KEYLESS,
    MakeLives,
    marks,
)
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Ddl, encode_change, encode_ddl

RULE = TableRule(matcher=("shop.*",), key="all-columns")


def by_rule(lives: Lives, *rules: TableRule) -> None:
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=rules)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))


def check(lives: Lives, history: RowsAsKeys, ts: int) -> None:
    uri, name = f"{lives.uri}/{SCHEMA}/{NAME}", f"{SCHEMA}.{NAME}"
    assert ordered(read_rows(uri)) == ordered(history.rows_at(ts))
    for cut in lives.ledger():
        if (version := cut["tables"].get(name)) is not None:
            moment = history.rows_at(cut["primary_ts"])
            assert ordered(read_rows(uri, version)) == ordered(moment), cut["primary_ts"]
    assert not lives.dead_letters()
    lives.assert_history()


def test_columns_come_and_change(new_lives: MakeLives) -> None:
    lives, history = new_lives(max_messages=60), RowsAsKeys(21, transactions=80)
    assert {"convert", "add", "add filled", "rename"} <= {*history.kinds}, history.kinds
    by_rule(lives, RULE)
    lives.produce(history.messages)
    middle = history.moments[len(history.moments) // 2][0] + 1
    error = lives.live(f"{Failpoint.AFTER_DDL}=raise:2", target_ts=middle)
    assert f"failpoint {Failpoint.AFTER_DDL}" in str(error)
    lives.finish(target_ts=middle)
    check(lives, history, middle)
    lives.finish(target_ts=history.last_ts, max_messages=10_000)
    check(lives, history, history.last_ts)
    lives.finish(target_ts=history.last_ts, overwrite_checkpoint_ts=middle)
    check(lives, history, history.last_ts)


def test_a_table_waits_at_the_ddl_that_gives_it_a_key(new_lives: MakeLives) -> None:
    """With all below it applied; an UPDATE without its old row is a dead letter."""
    lives = new_lives()
    by_rule(lives, RULE)
    gain = Ddl("shop", "log", "ALTER", "ALTER TABLE `shop`.`log` ADD PRIMARY KEY (`x`)")
    rows = [
        (200, Change(table=KEYLESS, op="INSERT", row={"x": 1})),
        (200, Change(table=KEYLESS, op="INSERT", row={"x": 2})),
        (300, Change(table=KEYLESS, op="UPDATE", row={"x": 3}, old={"x": 1})),
    ]
    bare = json.loads(encode_change(replace(rows[2][1], row={"x": 9}, old={"x": 3}), 400, 0))
    lives.produce([(0, None, encode_ddl(CREATE_KEYLESS, 100, 0))])
    lives.produce([(1, None, encode_change(each, ts, 0)) for ts, each in rows])
    lives.produce([(0, None, json.dumps(bare | {"old": None}).encode()), *marks(600)])
    lives.finish(target_ts=550)
    assert sorted(row["x"] for row in lives.rows("log")) == [2, 3]
    (letter,) = lives.dead_letters()
    assert "an UPDATE without its old row" in letter["message"]

    lives.produce([(0, None, encode_ddl(gain, 700, 0)), *marks(800)])
    error = lives.live(target_ts=790)
    assert "the table gets its first key" in str(error)
    assert "load it anew: `tidelake table reload` where" in str(error)
    assert sorted(row["x"] for row in lives.rows("log")) == [2, 3]

    by_rule(lives)
    error = lives.live(target_ts=790)
    assert "table shop.log has no key and is upserted by all its columns" in str(error)
