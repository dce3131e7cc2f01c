"""A topic joins while captures die."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.settings import TableRule
from conf.sources.source_uri import parse_source_uri
from tests.acceptance.one_process import Lives, on_spark
from tests.acceptance.reported import at, mark
from tests.acceptance.topics_of_tables import (
    EXACT,
    Topics,
    added,
    assert_cuts,
    create,
    ids,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


FAILS_AT = ("after-decode", "after-create-table", "after-apply-one", "after-progress")


def test_a_capture_that_dies_while_a_topic_joins_leaves_nothing_out(
    topics: Topics, tmp_path: Path, spark: SparkSession
) -> None:
    """At each step; the next life finds another new topic."""
    topics.make("default", *mark(at(1)))
    topics.make("shop_a", create(at(0), "a"))
    lives = Lives(
        on_spark(spark), topics.broker, tmp_path, source=parse_source_uri(topics.uri(EXACT))
    )
    logs = replace(
        lives.settings.changefeed.sink, tables=(TableRule(matcher=("*.*",), write_mode="append"),)
    )
    lives.finish(target_ts=at(1) - 1, sink=logs)
    events = list[tuple[str, int, int]]()
    for n, step in enumerate(FAILS_AT, 1):
        ts, name = at(10 * n), f"b{n}"
        topics.make(f"shop_{name}", create(ts, name), added(ts + 1, name, n))
        topics.make("shop_a", added(ts + 2, "a", n))
        topics.make("default", *mark(ts + 9))
        events += [(name, n, ts + 1), ("a", n, ts + 2)]
        assert lives.live(f"{step}=raise", target_ts=ts + 8, sink=logs) is not None
    lives.finish(target_ts=ts + 8, sink=logs)
    for name in ("a", *(f"b{n}" for n in range(1, len(FAILS_AT) + 1))):
        assert ids(lives, name) == [id for table, id, _ in events if table == name]
    assert_cuts(lives, events)
    assert lives.dead_letters() == []
