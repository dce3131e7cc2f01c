"""Timestamps of the far future, in what an operator gives and in the stream."""

from __future__ import annotations

import logging
import time

import pytest

from coordination.errors import ConfigError
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import MakeLives
from tests.own_lines import own_text

pytestmark = pytest.mark.kafka

CREATE = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
TYPES = {"id": "bigint"}
IN_2090 = 999_999_999_999_999_999


@pytest.mark.parametrize("ahead_s", [120, 3600, None])
def test_a_watermark_of_the_stream_does_not_lift_the_checkpoint_past_later_rows(
    new_lives: MakeLives, caplog: pytest.LogCaptureFixture, ahead_s: int | None
) -> None:
    far = IN_2090 if ahead_s is None else int((time.time() + ahead_s) * 1000) << 18
    lives = new_lives(2, partitions=None)
    lives.produce([CREATE, row(at(1), "t", {"id": "1"}, TYPES), *mark(at(2), 0, 1)])
    lives.produce(mark(far, 0, 1))
    lives.produce([row(at(3), "t", {"id": "2"}, TYPES, partition=1), *mark(at(4), 0, 1)])
    with caplog.at_level(logging.WARNING, logger="streaming"):
        lives.finish(target_ts=at(4) - 1)
    assert [each["id"] for each in lives.rows("t")] == [1, 2]
    letters = lives.dead_letters()
    assert [(int(each["part"][-1]), each["error_class"]) for each in letters] == [
        (0, "far-watermark"),
        (1, "far-watermark"),
    ]
    assert all(str(far).encode() in each["value"] for each in letters)
    for each in letters:
        where = f"topic {lives.topics[0]} partition {each['part'][-1]} offset {each['position']}"
        assert f"{where}: watermark {far}" in own_text(caplog)
    found = lives.changefeed()
    assert found is not None
    assert found.resolved_ts < far


def test_rows_and_ddls_hold_nothing(new_lives: MakeLives) -> None:
    lives = new_lives(1, partitions=None)
    far_ddl = ddl(IN_2090, "t", "ALTER TABLE `shop`.`t` ADD COLUMN `x` INT")
    lives.produce([CREATE, far_ddl, row(IN_2090, "t", {"id": "9"}, TYPES)])
    lives.produce([row(at(1), "t", {"id": "1"}, TYPES), *mark(at(2))])
    lives.finish(target_ts=at(2) - 1)
    assert lives.rows("t") == [{"id": 1}]
    assert [each["error_class"] for each in lives.dead_letters()] == ["far-commit-ts"] * 2
    found = lives.changefeed()
    assert found is not None
    assert found.source_positions == {f"{lives.topics[0]}/0": 5}  # nothing below is needed


@pytest.mark.parametrize("name", ["start_ts", "overwrite_checkpoint_ts"])
def test_a_start_there_is_refused(new_lives: MakeLives, name: str) -> None:
    lives = new_lives(1, partitions=None)
    lives.produce([CREATE, row(at(1), "t", {"id": "1"}, TYPES), *mark(at(2))])
    error = lives.live(**{name: IN_2090})
    assert isinstance(error, ConfigError)
    assert f"start-ts {IN_2090} is the time 2090-11-18" in str(error)
    assert "its newest message is of" in str(error)
    lives.finish(target_ts=at(2) - 1)
    assert lives.rows("t") == [{"id": 1}]
