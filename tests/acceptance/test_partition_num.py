"""``partition-num`` of the source URI and the partitions that the topic has (rules 1 and 2)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streaming.operations.progress_report import without_watermark
from tests.acceptance.one_process import Lives
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import MakeLives
from tests.own_lines import own_text
from tests.services.topic_producer import TopicProducer
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

CREATE = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")


def rows(first: int, *partitions: int) -> list[Message]:
    """A row for each of these partitions, at moments of their own."""
    types = {"id": "bigint"}
    return [
        row(at(n), "t", {"id": f"{n}"}, types, partition=each)
        for n, each in enumerate(partitions, first)
    ]


def ids(lives: Lives) -> list[Any]:
    return sorted(each["id"] for each in lives.rows("t"))


def with_num(lives: Lives, count: int | None) -> dict[str, Any]:
    return {"source": replace(lives.settings.changefeed.source, partition_num=count)}


def add_partitions(lives: Lives, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": lives.broker.bootstrap})
    for done in admin.create_partitions([NewPartitions(lives.topics[0], count)]).values():
        done.result()


def produce_anew(lives: Lives, messages: list[Message]) -> None:
    """With a producer that knows the partitions of now."""
    producer = TopicProducer(lives.broker.bootstrap)
    producer.send(lives.topics[0], messages)
    producer.flush()


@pytest.mark.parametrize("count", [1, 2, 3, None])
def test_rows_in_all_partitions_are_all_applied(new_lives: MakeLives, count: int | None) -> None:
    """As TiCDC 6.1 to 7.1 spreads them, whatever its partition-num."""
    lives = new_lives(3, partitions=count)
    lives.produce([CREATE, *rows(1, 0, 1, 2, 2, 1, 0), *mark(at(9), 0, 1, 2)])
    lives.finish(target_ts=at(9) - 1)
    assert ids(lives) == [1, 2, 3, 4, 5, 6]
    assert not lives.dead_letters()


def test_what_is_said_of_it(new_lives: MakeLives, caplog: pytest.LogCaptureFixture) -> None:
    lives = new_lives(3, partitions=1)
    lives.produce([CREATE, *rows(1, 0, 1, 1), *mark(at(9), 0)])
    with caplog.at_level(logging.WARNING, logger="streaming"):
        lives.finish(target_ts=at(9) - 1)
    topic = lives.topics[0]
    said = own_text(caplog)
    assert f"topic {topic} has 3 partitions, and the source URI says partition-num=1" in said
    assert f"{topic}/1 [0, 2)" in said
    assert f"{topic}/2" not in said


def test_those_beyond_need_no_watermark(new_lives: MakeLives) -> None:
    """As later ones of TiCDC write: nothing goes there any more, and what did is still there."""
    lives = new_lives(4, partitions=2)
    lives.produce([CREATE, *rows(1, 0, 1, 2), *mark(at(4), 0, 1, 2), *rows(5, 1, 2)])
    lives.produce(mark(at(9), 0, 1))
    lives.finish(target_ts=at(9) - 1)
    assert ids(lives) == [1, 2, 3, 5, 6]
    found = lives.changefeed()
    assert found is not None
    assert without_watermark(found) == []
    assert sorted(found.source_positions) == [f"{lives.topics[0]}/{n}" for n in range(4)]

    lives.produce([*rows(10, 0, 3), *mark(at(12), 0, 1)])
    lives.finish(target_ts=at(12) - 1)
    assert ids(lives) == [1, 2, 3, 5, 6, 10, 11]


def test_a_target_is_reached_where_nothing_comes_to_those_beyond(new_lives: MakeLives) -> None:
    """A feed that ended at the target-ts itself, and partitions that are added after its end."""
    lives = new_lives(1, partitions=1, quiet_s=0.5)
    lives.produce([CREATE, *rows(1, 0), *mark(at(3))])
    lives.finish(target_ts=at(2))
    add_partitions(lives, 3)
    lives.finish(target_ts=at(3))
    assert ids(lives) == [1]


def test_partitions_that_are_added_while_it_runs(new_lives: MakeLives) -> None:
    """Empty ones are passed over until their first message, which no checkpoint passes."""
    lives = new_lives(2, partitions=2)
    lives.produce([CREATE, *rows(1, 0, 1), *mark(at(3), 0, 1)])
    life = lives.begin(target_ts=at(20) - 1)

    def is_at(ts: int) -> bool:
        found = lives.changefeed()
        return found is not None and found.checkpoint_ts >= ts - 1

    life.wait_until(lambda: is_at(at(3)))
    add_partitions(lives, 4)
    lives.produce([*rows(4, 0), *mark(at(5), 0, 1)])
    life.wait_until(lambda: is_at(at(5)))
    produce_anew(lives, [*rows(6, 3, 2, 0, 1), *mark(at(20), 0, 1)])
    assert life.join() is None
    assert ids(lives) == [1, 2, 4, 6, 7, 8, 9]


def test_one_that_has_lost_its_beginning_is_refused(new_lives: MakeLives) -> None:
    """It held messages: some of those may be above the start."""
    lives = new_lives(2, partitions=1)
    lives.produce([CREATE, *rows(1, 0, 1), *mark(at(9), 0)])
    lives.broker.delete_records(lives.topics[0], {1: 1})
    error = lives.live(target_ts=at(9) - 1)
    assert f"topic {lives.topics[0]} partition 1 begins at offset 1" in str(error)
    assert "may have been deleted" in str(error)


def test_fewer_than_the_uri_says_is_refused(new_lives: MakeLives) -> None:
    lives = new_lives(2, partitions=3)
    lives.produce([CREATE, *mark(at(1), 0, 1)])
    error = lives.live(target_ts=at(1) - 1)
    assert f"topic {lives.topics[0]} has 2 partitions, the source URI says partition-num=3" in str(
        error
    )


def test_it_may_be_given_changed_and_left_out(new_lives: MakeLives) -> None:
    lives = new_lives(3, partitions=3)
    lives.produce([CREATE, *rows(1, 0, 1, 2), *mark(at(5), 0, 1, 2)])
    lives.finish(target_ts=at(5) - 1)
    lives.produce([*rows(6, 2, 1), *mark(at(8), 0)])  # TiCDC went on with one, after these
    lives.finish(target_ts=at(8) - 1, **with_num(lives, 1))
    assert ids(lives) == [1, 2, 3, 6, 7]
    lives.produce([*rows(9, 1), *mark(at(10), 0, 1, 2)])
    lives.finish(target_ts=at(10) - 1, **with_num(lives, None))
    assert ids(lives) == [1, 2, 3, 6, 7, 9]


def test_captures_of_one_changefeed_read_them_all(new_lives: MakeLives) -> None:
    lives = new_lives(3, partitions=1)
    lives.produce([CREATE, *rows(1, 0, 1, 2, 1, 2), *mark(at(9), 0)])
    assert lives.live_together(2, target_ts=at(9) - 1) == [None, None]
    assert ids(lives) == [1, 2, 3, 4, 5]
