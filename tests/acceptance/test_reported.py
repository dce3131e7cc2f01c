"""Inputs after public bug reports lead to what the upstream database shows."""

from __future__ import annotations

import pytest

from tests.acceptance.reported import at, ddl, mark, play, recording, row
from tests.acceptance.small_tables import MakeLives

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_recording_is_played_to_its_last_watermark(new_lives: MakeLives) -> None:
    made = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
    rows = [row(at(n), "t", {"id": f"{n}"}, {"id": "bigint"}) for n in (1, 2, 9)]
    lives = play(new_lives(1, partitions=None), [made, *rows, *mark(at(3))])
    assert lives.rows("t") == [{"id": 1}, {"id": 2}]
    assert not lives.dead_letters()


def test_a_default_has_the_backslashes_that_its_author_wrote(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("default-backslash"))
    assert lives.rows("files") == [
        {"id": 1, "owner_type": r"App\Models\User"},
        {"id": 2, "owner_type": r"App\Models\User"},
    ]


def test_a_default_is_an_element_though_the_two_are_written_in_two_ways(
    new_lives: MakeLives,
) -> None:
    lives = play(new_lives(1, partitions=None), recording("default-backslash-enum"))
    assert lives.rows("files") == [{"id": 1, "sep": "\\"}, {"id": 2, "sep": "/"}]
