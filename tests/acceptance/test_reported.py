"""Inputs after public bug reports lead to what the upstream database shows."""

from __future__ import annotations

import pytest

from tests.acceptance.reported import at, ddl, mark, play, row
from tests.acceptance.small_tables import MakeLives

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_recording_is_played_to_its_last_watermark(new_lives: MakeLives) -> None:
    made = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
    rows = [row(at(n), "t", {"id": f"{n}"}, {"id": "bigint"}) for n in (1, 2, 9)]
    lives = play(new_lives(1, partitions=None), [made, *rows, *mark(at(3))])
    assert lives.rows("t") == [{"id": 1}, {"id": 2}]
    assert not lives.dead_letters()
