"""What is said of tables that wait for an operator, and how an operator's word is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import BatchSettings, Changefeed, DeltaSink, TableRule
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.kafka_uri import KafkaSettings
from coordination.model import TableName, Ts
from sinks.control.blocked_ddls import BlockedDdls
from sinks.control.reloads import Reloads
from streaming.owner import blocked_tables
from streaming.owner.blocked_tables import ASK_EVERY_S, REMIND_EVERY_S, BlockedTables
from streaming.owner.ddl.plan import HeldTable
from streaming.source.positions import counted
from streaming.stream.lasting_warnings import LastingWarnings
from tests.own_lines import own_lines
from tests.streaming.owner.ddl.test_held_tables import unknown

PLACE = TableName("shop", "t"), Ts(20)
HELD = HeldTable(event=unknown(20), why="it is unknown here")
OTHER = HeldTable(event=unknown(30, "u"), why="it is unknown here")


class Ground:
    def __init__(self, folder: Path) -> None:
        source = KafkaSettings(
            brokers=("h:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=1
        )
        self.stored = BlockedDdls(str(folder))
        self.concerns = LastingWarnings()
        context: Any = SimpleNamespace(
            changefeed=Changefeed(id="shop", source=source, sink=DeltaSink(warehouse=str(folder))),
            tables=SimpleNamespace(blocked_ddls=self.stored),
            trust=SimpleNamespace(check=lambda: None),
            concerns=self.concerns,
            source=SimpleNamespace(distance=counted),
            batch=BatchSettings(held_messages=100),
            start_epoch=None,
        )
        self.blocked = BlockedTables(context)


def test_each_is_noted_and_said_once_and_again_at_a_low_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ground = Ground(tmp_path)
    ground.blocked.look([HELD, OTHER], 99.0, 18)
    assert not ground.stored.read("shop"), "what lies below is not applied yet"
    for now_s in (100.0, 101.0, 103.0):
        assert not ground.blocked.look([HELD, OTHER], now_s, 19)
    noted = ground.stored.read("shop")
    assert [row.reason for row in noted.values()] == ["it is unknown here"] * 2
    assert len(own_lines(caplog)) == 2
    said = ground.concerns.first
    assert said is not None
    assert "table shop.t waits, the other tables go on" in said
    assert "FROBNICATE" in said
    assert "`tidelake ddl skip -c shop --table shop.t --commit-ts 20" in said
    ground.blocked.look([HELD, OTHER], 103.0 + REMIND_EVERY_S, 19)
    assert [text.startswith("still: ") for text in own_lines(caplog)] == [False] * 2 + [True] * 2
    ground.blocked.look([OTHER], 104.0 + REMIND_EVERY_S, 19)
    assert "table shop.u waits" in (ground.concerns.first or "")
    ground.blocked.look([], 105.0 + REMIND_EVERY_S, 19)
    assert ground.concerns.first is None


def test_a_word_is_found_and_what_was_tried_may_be_tried_again(tmp_path: Path) -> None:
    ground, now_s = Ground(tmp_path), 100.0
    assert not ground.blocked.look([HELD], now_s, 19)
    ground.stored.order("shop", PLACE, "apply")
    assert not ground.blocked.look([HELD], now_s + 0.1, 19), "it is asked now and then"
    assert ground.blocked.look([HELD], now_s + ASK_EVERY_S, 19)
    assert ground.blocked.orders[PLACE].action == "apply"
    assert not ground.blocked.look([], now_s + 2 * ASK_EVERY_S, 19)
    ground.blocked.fail(unknown(20), "a value is too big")
    failed = HeldTable(event=unknown(20), why=ground.blocked.failed[PLACE])
    assert not ground.blocked.look([failed], now_s + 3 * ASK_EVERY_S, 19)
    assert ground.stored.read("shop")[PLACE].reason == "a value is too big"
    ground.stored.order("shop", PLACE, "apply")
    assert ground.blocked.look([failed], now_s + 4 * ASK_EVERY_S, 19)
    assert ground.blocked.failed == {}


def test_the_next_term_of_this_capture_does_not_warn_of_what_is_over(tmp_path: Path) -> None:
    """Meanwhile another capture was the owner, and an operator has spoken. The stream, and what is
    said of it, may have stayed."""
    ground = Ground(tmp_path)
    ground.blocked.look([HELD], 100.0, 19)
    assert "table shop.t waits" in (ground.concerns.first or "")
    ground.blocked.close()
    assert ground.concerns.first is None


def test_how_far_the_others_may_go(tmp_path: Path) -> None:
    blocked = Ground(tmp_path).blocked
    low_water = {"t/0": 40, "t/1": 7}
    assert blocked.too_far({"t/0": 100, "t/1": 47, "t/2": 9}, low_water) == ""
    assert "101 messages lie" in blocked.too_far({"t/0": 101, "t/1": 47}, low_water)
    assert "held-messages" in blocked.too_far({"t/0": 101, "t/1": 47}, low_water)
    assert blocked_tables.noted_row("shop", HELD).place == PLACE


def test_a_table_is_ordered_anew_once_for_a_ddl(tmp_path: Path) -> None:
    reloads = Reloads(str(tmp_path))
    first = reloads.order("shop", PLACE[0], 20)
    assert reloads.order("shop", PLACE[0], 20) == first
    reloads.note(replace(first, state="given up", error="it has no key"))
    assert reloads.order("shop", PLACE[0], 20).state == "given up"
    assert reloads.order("shop", PLACE[0], 30).is_open
    reloads.note(replace(reloads.read("shop")[PLACE[0]], state="done"))
    assert reloads.order("shop", PLACE[0]).is_open, "an operator may, as often as he likes"


@pytest.mark.parametrize("is_soft", [False, True])
def test_a_table_with_marked_rows_is_not_loaded_anew_by_itself(
    tmp_path: Path, is_soft: bool
) -> None:
    """No copy has its rows that are marked as deleted."""
    ground = Ground(tmp_path)
    context: Any = ground.blocked._context
    rules = (TableRule(matcher=("shop.t",), soft_delete=is_soft),)
    context.changefeed = Changefeed(
        id="shop",
        source=BinlogSettings(host="h", port=3306, user="reader"),
        sink=DeltaSink(warehouse=str(tmp_path), tables=rules),
        on_unknown_values="reload",
    )
    context.tables.reloads = Reloads(str(tmp_path))
    BlockedTables(context).look([HELD], 100.0, 19)
    assert (PLACE[0] in context.tables.reloads.read("shop")) is not is_soft
