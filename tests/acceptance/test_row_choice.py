"""Which rows come to the tables: conditions on values, in the life of a changefeed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings, TableRule
from streaming.cli.main import main
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import A, B, MakeLives, made, marks, row, values
from tests.shop.canal_json import Change, Ddl, Row, encode_change, encode_ddl

pytestmark = pytest.mark.kafka

TAKEN = FilterSettings(
    event_filters=(
        EventFilter(
            matcher=("shop.a",),
            ignore_insert_value_expr="v = 'draft' OR n BETWEEN 5 AND 9",
            ignore_update_old_value_expr="n = 1",
            ignore_update_new_value_expr="v IS NULL",
            ignore_delete_value_expr="v LIKE 'keep%'",
        ),
        EventFilter(matcher=("shop.b",), ignore_insert_value_expr="id % 2 = 0"),
    )
)
LOG = (TableRule(matcher=("shop.b",), write_mode="append"),)
BIG = 77_777_777_777
WIDEN = Ddl("shop", "a", "ALTER", "ALTER TABLE `shop`.`a` MODIFY COLUMN `n` BIGINT")


def told(lives: Lives) -> dict[str, Any]:
    return {"filter": TAKEN, "sink": replace(lives.settings.changefeed.sink, tables=LOG)}


def changed(ts: int, id: int, before: Row, after: Row) -> bytes:
    change = Change(table=A, op="UPDATE", row={"id": id, **after}, old={"id": id, **before})
    return encode_change(change, ts, 0)


def test_ignored_events_are_as_if_they_had_not_come(
    new_lives: MakeLives, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever read they come in, in an upserted table and in a change log."""
    lives = new_lives()
    lives.produce(made(10, A, B))
    lives.produce(
        [
            (1, None, row(20, 1, "draft")),
            (1, None, row(21, 2, "x", n=7)),
            (2, None, row(22, 3, "kept")),
            (1, None, row(23, 4, "keep me")),
            (1, None, row(24, 5, "draft", n=BIG)),  # no int: a dead letter
            *((2, None, row(30 + n, n, f"v{n}", table=B)) for n in range(6)),
        ]
    )
    lives.produce(marks(50))
    lives.finish(target_ts=45, **told(lives))
    assert values(lives, "a") == {3: "kept", 4: "keep me"}
    assert sorted(each["id"] for each in lives.rows("b")) == [1, 3, 5]

    lives.produce(
        [
            (1, None, changed(60, 3, {"n": 1, "v": "kept"}, {"n": 2, "v": "lost"})),
            (1, None, changed(61, 4, {"n": 0, "v": "keep me"}, {"n": 0, "v": None})),
            (1, None, changed(62, 1, {"n": 0, "v": "draft"}, {"n": 3, "v": "done"})),
            (1, None, row(63, 4, "keep me", op="DELETE")),
        ]
    )
    lives.produce(marks(80))
    lives.finish(target_ts=75, **told(lives))
    assert values(lives, "a") == {1: "done", 3: "kept", 4: "keep me"}
    (letter,) = lives.dead_letters()
    assert f"n: cannot read '{BIG}'" in letter["message"]

    lives.produce([(0, None, encode_ddl(WIDEN, 90, 0)), *marks(99)])
    lives.finish(target_ts=95, **told(lives))
    arguments = ["--sink-uri", f"delta://{lives.warehouse}", "--format", "json"]
    capfd.readouterr()
    with pytest.raises(SystemExit):
        main(["dead-letters", "replay", "--all", *arguments])
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert "an event filter ignores its event" in found["rows"][0]["refusal"]
    assert set(values(lives, "a")) == {1, 3, 4}
