"""Where a life may begin: it never skips anything in silence, and shows no cut that is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conf.settings import FilterSettings
from coordination.errors import TidelakeError
from coordination.ports import Advance
from streaming.owner.control_writer import DeltaControlWriter
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import (
    IDLE,
    PARTITIONS,
    A,
    B,
    MakeLives,
    advised_ts,
    made,
    marks,
    row,
    values,
)

pytestmark = pytest.mark.kafka


def test_a_start_where_kafka_has_forgotten_is_refused_until_it_cannot_matter(
    new_lives: MakeLives,
) -> None:
    """Rows above a watermark may be sent before it: one that is left shows nothing."""
    lives = new_lives()
    lives.produce([*made(10, A), (1, None, row(40, 1, "gone")), *marks(30)])
    lives.broker.delete_records(lives.topics[0], {1: 1})

    error = lives.live(start_ts=30, target_ts=45)

    assert isinstance(error, TidelakeError)
    assert f"topic {lives.topics[0]} partition 1 begins at offset 1" in str(error)
    stopped = lives.changefeed()
    assert stopped is not None
    assert (stopped.state, stopped.error) == ("failed", str(error))
    start_ts = advised_ts(error)
    lives.produce([(1, None, row(start_ts + 40, 2, "x")), *marks(start_ts + 50)])
    lives.finish(start_ts=start_ts, target_ts=start_ts + 45)
    assert values(lives, "a") == {2: "x"}
    error = lives.live(target_ts=start_ts + 45, overwrite_checkpoint_ts=30)
    assert f"It can be rewound to {start_ts} at the earliest" in str(error)


def test_what_kafka_deleted_comes_by_a_new_topic(new_lives: MakeLives) -> None:
    """What the refusal says is done, to the letter: the tables are taken up as they are."""
    lives = new_lives()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), *marks(30)])
    lives.finish(target_ts=25)
    lives.produce([(1, None, row(40, 2, "lost")), *marks(50)])
    lives.broker.delete_records(lives.topics[0], {1: 4})

    error = lives.live(target_ts=45)

    assert isinstance(error, TidelakeError)
    assert "messages were deleted before they were applied" in str(error)
    for said in ("new topic from start-ts 25", "source-uri", "--overwrite-checkpoint-ts 25"):
        assert said in str(error)
    topic = f"{lives.topics[0]}-again"
    lives.broker.create_topic(topic, partitions=PARTITIONS)
    lives.produce([(1, None, row(40, 2, "lost")), *marks(50)], topic)
    source = replace(lives.settings.changefeed.source, topic=topic, topics=(topic,))
    lives.finish(source=source, target_ts=45, overwrite_checkpoint_ts=25)
    assert values(lives, "a") == {1: "x", 2: "lost"}
    lives.broker.delete_topic(topic)


def test_what_a_wider_filter_would_take_up_in_the_middle_is_refused(
    new_lives: MakeLives,
) -> None:
    """A rewind has all of it; a table that is made behind the change is whole."""
    lives = new_lives()
    only_a = FilterSettings(rules=("shop.a",))
    lives.produce([*made(10, A, B), (1, None, row(20, 1, "x")), *marks(30)])
    lives.produce([(1, None, row(40, 1, "x", table=B)), *marks(50)])
    lives.finish(target_ts=45, filter=only_a)
    lives.produce([*made(60, IDLE), (1, None, row(65, 2, "y", table=B)), *marks(70)])

    error = lives.live(target_ts=67)

    assert isinstance(error, TidelakeError)
    assert "table shop.b is wanted now, and [filter] left it out up to 45" in str(error)
    stopped = lives.changefeed()
    assert stopped is not None
    assert (stopped.state, stopped.error) == ("failed", str(error))
    lives.finish(target_ts=67, overwrite_checkpoint_ts=1)
    assert values(lives, "b") == {1: "x", 2: "y"}


def test_a_table_that_a_filter_leaves_out_stays_where_it_was(new_lives: MakeLives) -> None:
    """Its progress would otherwise say that changes are in it which were never applied."""
    lives = new_lives()
    without_b = FilterSettings(rules=("*.*", "!shop.b"))
    lives.produce(
        [*made(10, A, B), (1, None, row(20, 1, "x")), (1, None, row(20, 1, "x", table=B))]
    )
    lives.produce([*marks(50), (1, None, row(60, 2, "y")), (1, None, row(60, 2, "y", table=B))])
    lives.produce([*marks(80)])
    lives.finish(target_ts=40)

    lives.finish(target_ts=70, filter=without_b)

    assert values(lives, "a") == {1: "x", 2: "y"}
    assert values(lives, "b") == {1: "x"}
    at = {name: found.checkpoint_ts for name, found in lives.progress().items()}
    assert at == {"shop.a": 70, "shop.b": 40}
    assert sorted(lives.ledger()[-1]["tables"]) == ["shop.a"]
    error = lives.live(target_ts=75)
    assert isinstance(error, TidelakeError)
    assert "table shop.b is at checkpoint-ts 40 and the changefeed at 70" in str(error)
    error = lives.live(target_ts=75, overwrite_checkpoint_ts=60)  # not far enough
    assert "table shop.b is at checkpoint-ts 40 and the changefeed at 60" in str(error)
    lives.finish(target_ts=75, overwrite_checkpoint_ts=40)
    assert values(lives, "b") == {1: "x", 2: "y"}


def fails_above(ts: int) -> Callable[[DeltaControlWriter, Any, Advance], None]:
    """Instead of writing down that the changefeed is so far."""
    write = DeltaControlWriter._write

    def write_or_fail(control: DeltaControlWriter, term: Any, advance: Advance) -> None:
        if advance.checkpoint_ts > ts:
            raise TidelakeError("nothing is written")
        write(control, term, advance)

    return write_or_fail


def test_no_cut_is_published_while_a_table_shows_what_it_had_beyond_a_rewind(
    new_lives: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may have been far ahead of what the changefeed's row says."""
    lives = new_lives()
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), *marks(30)])
    lives.finish(target_ts=25)
    later = [(1, None, row(ts, 1, f"at {ts}", op="UPDATE")) for ts in (40, 60)]
    lives.produce([*later, *marks(70)])
    with monkeypatch.context() as patch:  # nobody hears how far the table is
        patch.setattr(DeltaControlWriter, "_write", fails_above(60))
        assert lives.live(target_ts=65) is not None
    assert values(lives, "a") == {1: "at 60"}

    lives.finish(target_ts=45, overwrite_checkpoint_ts=15)

    before = cuts_above_creation(lives)
    assert before in ([25], [25, 29])  # what was seen of the feed when it stopped at 25
    rewinding = lives.changefeed()
    assert rewinding is not None
    assert rewinding.max_published_ts == 65
    lives.produce(marks(90))
    lives.finish(target_ts=80)
    assert cuts_above_creation(lives) == [*before, 80]
    assert values(lives, "a") == {1: "at 60"}


def cuts_above_creation(lives: Lives) -> list[int]:
    """A slow owner may see the table at its CREATE, empty: a cut as well."""
    return [cut["primary_ts"] for cut in lives.ledger() if cut["primary_ts"] > 10]
