"""DDLs whose values depend on the session that ran them, which no message tells."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from conf.settings import TableRule
from tests.acceptance.one_process import Lives
from tests.acceptance.reported import at, ddl, mark, play, recording, row
from tests.acceptance.small_tables import MakeLives
from tests.own_lines import own_text
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

NEW_YEAR = datetime(2024, 1, 1)  # noqa: DTZ001
COMMITTED = datetime(2026, 11, 21, 23, 41, 5)  # noqa: DTZ001 - of the DDL, in Shanghai
RULES = (
    TableRule(matcher=("shop.whole",), key="all-columns"),
    TableRule(matcher=("shop.hist",), write_mode="history"),
    TableRule(matcher=("shop.log",), write_mode="append"),
)
TO_DATETIME = "ALTER TABLE `shop`.`{}` MODIFY COLUMN `s` DATETIME"
NOW = "ALTER TABLE `shop`.`{}` ADD COLUMN `n` DATETIME DEFAULT CURRENT_TIMESTAMP()"


def test_the_zone_of_sessions_is_a_setting(
    new_lives: MakeLives, caplog: pytest.LogCaptureFixture
) -> None:
    messages = recording("session-zone")
    with caplog.at_level(logging.WARNING):
        lives = play(new_lives(1, partitions=None), messages, ddl_time_zone="Asia/Shanghai")
    assert lives.rows("visits") == [
        {
            "id": 1,
            "s": NEW_YEAR,
            "seen": COMMITTED,
            "day0": datetime(2023, 12, 31, 16, tzinfo=UTC),
        }
    ]
    assert "table=shop.visits" in own_text(caplog)
    assert "column seen of old rows has the second of the DDL's commit" in own_text(caplog)
    assert "ddl-time-zone" not in own_text(caplog)


def test_without_it_each_ddl_is_warned_of(
    new_lives: MakeLives, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        lives = play(new_lives(1, partitions=None), recording("session-zone"))
    assert [each["s"] for each in lives.rows("visits")] == [datetime(2023, 12, 31, 16)]  # noqa: DTZ001
    assert "column s of old rows depends on the time zone" in own_text(caplog)
    assert "columns seen, day0 of old rows depends" in own_text(caplog)


def feed(name: str, change: str) -> list[Message]:
    key = "" if name == "whole" else ", PRIMARY KEY (`id`)"
    create = f"CREATE TABLE `shop`.`{name}` (`id` BIGINT NOT NULL, `s` TIMESTAMP NULL{key})"
    data = {"id": "1", "s": "2023-12-31 16:00:00"}
    types = {"id": "bigint", "s": "timestamp"}
    return [
        ddl(at(0), name, create, kind="CREATE"),
        row(at(1), name, data, types, key=None if name == "whole" else ("id",)),
        *mark(at(2)),
        ddl(at(3), name, change.format(name)),
        *mark(at(9)),
    ]


def in_all_forms(new_lives: MakeLives) -> Lives:
    lives = new_lives(1, partitions=None)
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=RULES)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    return lives


def test_a_moment_that_is_of_the_key_waits(new_lives: MakeLives) -> None:
    lives = in_all_forms(new_lives)
    lives.produce(feed("whole", NOW))
    error = str(lives.live(target_ts=at(8), ddl_time_zone="+08:00"))
    for part in ("shop.whole", "column n", "the second at which the statement began"):
        assert part in error, error


@pytest.mark.parametrize("name", ["hist", "log"])
def test_what_could_never_be_mended_waits(new_lives: MakeLives, name: str) -> None:
    lives = in_all_forms(new_lives)
    lives.produce(feed(name, TO_DATETIME))
    error = str(lives.live(target_ts=at(8)))
    for part in (f"shop.{name}", "column s", "ddl-time-zone", "never be mended", "tidelake ddl"):
        assert part in error, error
    lives.finish(target_ts=at(8), ddl_time_zone="+08:00")
    assert [each["s"] for each in lives.rows(name)] == [NEW_YEAR]
    if name == "log":  # its old rows show NULL
        return
    lives.produce([ddl(at(10), name, NOW.format(name)), *mark(at(15))])
    error = str(lives.live(target_ts=at(14), ddl_time_zone="+08:00"))
    for part in ("column n", "the second at which the statement began", "tidelake ddl apply"):
        assert part in error, error
