"""Where a table goes on that needs no target: it was dropped, or it is not made yet. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sinks.control.progress import DROPPED
from sinks.target.target_table import TargetState
from streaming.changefeed.replicated_table import start_point, where_it_goes_on
from tests.streaming.changefeed.test_table_registry import PROGRESS, ROW, DropLake, Lake

FEED = replace(ROW, incarnation=1)
BACK = replace(ROW, incarnation=2, state="rewinding", checkpoint_ts=20)
UNMADE = replace(PROGRESS, delta_version=None)


@pytest.fixture
def dropped(tmp_path: Path) -> TargetState:
    lake = DropLake(tmp_path)
    state = lake.resumed(state=DROPPED, checkpoint_ts=60).at(PROGRESS.name)
    assert state is not None
    return state


def test_a_row_of_a_dropped_table_needs_no_look_at_the_target() -> None:
    found = where_it_goes_on(replace(PROGRESS, state=DROPPED, checkpoint_ts=60), None, FEED)
    assert found is not None
    assert (found.is_dropped, found.checkpoint) == (True, 60)


def test_a_table_that_is_not_made_yet_begins_at_its_row(tmp_path: Path) -> None:
    for feed, begin in ((FEED, 40), (BACK, 20), (replace(BACK, state="running"), 40)):
        found = where_it_goes_on(UNMADE, None, feed)
        assert found is not None
        assert (found.target, found.checkpoint, found.state) == (None, begin, "replicating")
    assert where_it_goes_on(UNMADE, Lake(tmp_path).state(), FEED) is None  # made, not noted yet


def test_a_drop_counts_from_its_commit_on(dropped: TargetState) -> None:
    for at, is_dropped, begin in ((59, True, 60), (60, False, 60), (70, False, 70)):
        found = where_it_goes_on(replace(PROGRESS, checkpoint_ts=at), dropped, FEED)
        assert found is not None
        assert (found.is_dropped, found.checkpoint) == (is_dropped, begin)


def test_what_is_anothers_is_left_to_who_refuses_it(dropped: TargetState) -> None:
    other = replace(FEED, changefeed_id="other")
    assert where_it_goes_on(PROGRESS, dropped, other) is None
    assert where_it_goes_on(PROGRESS, dropped, replace(FEED, incarnation=0)) is None


@pytest.mark.parametrize(
    ("identity", "feed", "begin"),
    [
        (None, FEED, 40),
        (50, FEED, 50),
        (30, FEED, 40),
        (None, BACK, 20),
        (25, BACK, 25),
        (None, replace(BACK, state="running"), 40),
        (0, replace(BACK, state="running"), 0),
    ],
)
def test_the_start_point(identity: int | None, feed: object, begin: int) -> None:
    assert start_point(PROGRESS, identity, feed) == begin  # type: ignore[arg-type]
