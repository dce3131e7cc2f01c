"""Topics by an expression, as TiCDC's dispatchers have them: those that are there, and those that
come while the changefeed runs."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.settings import TableRule
from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.acceptance.reported import at, ddl, mark
from tests.acceptance.topics_of_tables import (
    EXACT,
    Topics,
    added,
    assert_cuts,
    create,
    ids,
    wait_for,
)
from tests.own_lines import own_text
from tests.services.delta_rows import read_rows
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka


def test_a_tables_topic_joins_while_it_runs_and_nothing_is_lost_or_doubled(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TiCDC makes a topic for a new table, writes to it, and then sends a watermark to the default
    topic. To a table's own topic it need not send any. Each event is there once, in change logs."""
    topics.make("default", *mark(at(3)))
    topics.make("shop_a", create(at(0), "a"), added(at(1), "a", 1), added(at(4), "a", 2))
    foreign = topics.make("foreign", (0, None, b"of another program"))
    lives = Lives(
        ThreadsOfProcess, topics.broker, tmp_path, source=parse_source_uri(topics.uri(EXACT))
    )
    logs = replace(
        lives.settings.changefeed.sink, tables=(TableRule(matcher=("*.*",), write_mode="append"),)
    )
    with caplog.at_level(logging.INFO, logger="streaming"):
        life = lives.begin(target_ts=at(30) - 1, sink=logs)
        wait_for(life, lives, at(3) - 1)
        assert ids(lives, "a") == [1]
        for n in range(5, 20, 5):  # a new table's topic, each of which has another table too
            name = f"b{n}"
            messages = [create(at(n), name), added(at(n + 1), name, n, 1), added(at(n + 2), "a", n)]
            topics.make(f"shop_{name}", *messages, partitions=2)
            topics.make("default", *mark(at(n + 3)))
            wait_for(life, lives, at(n + 3) - 1)
            assert ids(lives, name) == [n]
        topics.make("default", *mark(at(30)))
        assert life.join() is None
    assert ids(lives, "a") == [1, 2, 5, 10, 15]
    events = [("a", 1, at(1)), ("a", 2, at(4))]
    events += [(f"b{n}", n, at(n + 1)) for n in range(5, 20, 5)]
    assert_cuts(lives, events + [("a", n, at(n + 2)) for n in range(5, 20, 5)])
    assert lives.dead_letters() == []
    assert f"{topics.head}-shop_a" in own_text(caplog)
    found = lives.changefeed()
    assert found is not None
    assert foreign not in {each.rpartition("/")[0] for each in found.source_positions}


def test_a_topic_that_came_between_two_runs_and_one_that_is_gone(
    topics: Topics, tmp_path: Path
) -> None:
    topics.make("default", *mark(at(3)))
    gone = topics.make("shop_a", create(at(0), "a"), added(at(1), "a", 1))
    lives = Lives(
        ThreadsOfProcess, topics.broker, tmp_path, source=parse_source_uri(topics.uri(EXACT))
    )
    lives.finish(target_ts=at(3) - 1)
    topics.make("shop_b", create(at(4), "b"), added(at(5), "b", 2))
    topics.make("default", *mark(at(6)))
    lives.finish(target_ts=at(6) - 1)
    assert (ids(lives, "a"), ids(lives, "b")) == ([1], [2])

    topics.broker.delete_topic(gone)
    topics.made.remove(gone)
    topics.make("shop_b", added(at(7), "b", 3))
    topics.make("default", *mark(at(9)))
    error = lives.live(target_ts=at(9) - 1)
    assert f"topic {gone} was read and is gone" in str(error)
    assert f"topics=…,!{gone}" in str(error)
    without = parse_source_uri(topics.uri(EXACT, f",!{gone}"))
    lives.finish(target_ts=at(9) - 1, source=without)
    assert (ids(lives, "a"), ids(lives, "b")) == ([1], [2, 3])


def test_a_listed_topic_whose_table_is_gone_holds_nothing_back(
    topics: Topics, tmp_path: Path
) -> None:
    """TiCDC sends it no more watermarks. One behind the others counts as the URI's topic does."""
    topics.make("default", *mark(at(3)))
    gone = topics.make("shop_a", create(at(0), "a"), added(at(1), "a", 1), *mark(at(3)))
    other = topics.make("shop_b", create(at(0), "b"), added(at(4), "b", 2))
    listed = f"{topics.uri(EXACT).partition('&topics=')[0]}&topics={gone},{other}"
    lives = Lives(ThreadsOfProcess, topics.broker, tmp_path, source=parse_source_uri(listed))
    life = lives.begin(target_ts=at(9) - 1)
    wait_for(life, lives, at(3) - 1)
    drop = ddl(at(5), "a", "DROP TABLE `shop`.`a`", kind="ERASE")
    topics.make("shop_a", drop)
    topics.make("shop_b", added(at(6), "b", 3))
    topics.make("default", *mark(at(9)))
    assert life.join() is None
    assert ids(lives, "b") == [2, 3]


def test_topics_of_another_changefeed_are_refused_and_those_of_one_that_went_back_are_not(
    topics: Topics, tmp_path: Path
) -> None:
    """TiCDC sends a watermark to all its topics before it sends the next. So one whose watermarks
    stay behind those of the URI's topic is another changefeed's, and its rows would be taken for
    old ones. When TiCDC starts again, the watermarks of all topics go back."""
    east = topics.make("east", create(at(0), "a"), *mark(at(3)))
    west = topics.make("west", create(at(0), "b"), added(at(1), "b", 1), *mark(at(3)))
    uri = f"kafka://{topics.broker.bootstrap}/{east}?{EXACT}&topics={west}"
    lives = Lives(ThreadsOfProcess, topics.broker, tmp_path, source=parse_source_uri(uri))
    life = lives.begin(target_ts=at(99))
    for n in (9, 19):  # TiCDC goes back
        topics.make("east", *mark(at(n)))
        wait_for(life, lives, at(n) - 1)
        topics.make("west", *mark(at(n - 4)))
        time.sleep(1)
        topics.make("east", *mark(at(n - 4)), *mark(at(n)))
        topics.make("west", *mark(at(n)))
    for n in (30, 40):  # two changefeeds
        topics.make("east", *mark(at(n)))
        wait_for(life, lives, at(n) - 1)
        topics.make("west", added(at(n - 6), "b", n), *mark(at(n - 5)))
    error = life.join()
    assert f"topic {west} has watermarks of another changefeed" in str(error)
    assert f"!{west}" in str(error)


def maxwells(table: str, ts_s: float, **told: Any) -> Message:
    found = {"database": "shop", "table": table, "ts": int(ts_s), "xid": 3, "commit": True, **told}
    return 0, None, json.dumps(found).encode()


def test_a_topic_of_messages_without_a_commit_ts_joins_though_nothing_else_comes(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maxwell's daemon with a topic for each table. What a topic that joins has is numbered above
    all that may have been resolved: two minutes later, and here two seconds."""
    monkeypatch.setattr("streaming.stream.reading.PARTS_EVERY_S", 0.5)
    for module in ("stream.reading", "source.kafka.source"):
        monkeypatch.setattr(
            f"streaming.{module}.beyond_ts", lambda ms: int(ms + 2_000) << TSO_LOGICAL_BITS
        )
    now_s = time.time() - 100
    made = "CREATE TABLE {0} (id INT PRIMARY KEY, e ENUM('5','x'), d DECIMAL(20,2), b BLOB, j JSON)"

    def created(table: str) -> Message:
        ms = int(now_s * 1e3)
        told = {"type": "table-create", "sql": made.format(table), "ts": ms, "def": {}}
        return maxwells(table, 0, **told)

    def inserted(table: str, id: int) -> Message:
        data = {"id": id, "e": "5", "d": 1.5, "b": "AP8=", "j": {"a": [id, "x"]}}
        return maxwells(table, now_s + 5, type="insert", data=data)

    topics.make("default", created("a"))
    topics.make("shop_a", inserted("a", 1))
    source = parse_source_uri(topics.uri("protocol=maxwell&at-least-once=true"))
    lives = Lives(ThreadsOfProcess, topics.broker, tmp_path, source=source)
    life = lives.begin()
    log = "warehouse/shop/{0}/_delta_log/00000000000000000000.json"
    life.wait_until((tmp_path / log.format("a")).exists)
    life.wait_until(lambda: ids(lives, "a") == [1])
    topics.make("default", created("b"))
    life.wait_until((tmp_path / log.format("b")).exists)
    topics.make("shop_b", inserted("b", 1), inserted("b", 2))
    life.wait_until(lambda: ids(lives, "b") == [1, 2])
    assert life.stop() is None
    (first, _) = sorted(read_rows(Path(lives.uri, "shop", "b")), key=lambda each: each["id"])
    assert (first["e"], first["b"], first["j"]) == ("5", b"\0\xff", '{"a": [1, "x"]}')
    assert str(first["d"]) == "1.50"
    assert lives.dead_letters() == []
