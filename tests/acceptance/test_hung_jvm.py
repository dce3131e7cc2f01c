"""Spark's JVM is stopped: every call to it waits for ever, and the process that has it lives on.

What it holds must go to others within the stated time, and nothing may be doubled when the JVM goes
on where it was.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordination.capture.server import DRAIN_S, STOP_AFTER_SUICIDE_S
from coordination.etcd.embedded import EmbeddedEtcd
from streaming.spark.jvm import STOP_S as JVM_STOP_S
from streaming.spark.jvm_watch import ASK_EVERY_S
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import STOP_WITHIN_S, TTL_S, Stage, field
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

ANSWER_TIMEOUT_S = 4
LOAD_S = 60.0  # other people's must not fail the test
# It is asked for the next time, does not answer in time, and the lease is not renewed: it ends.
LET_GO_WITHIN_S = ASK_EVERY_S + ANSWER_TIMEOUT_S + TTL_S / 4 + TTL_S + LOAD_S


@pytest.mark.parametrize(
    "engine", ["merge-on-write", pytest.param("spark", marks=pytest.mark.soak)]
)
def test_who_has_a_hung_jvm_lets_go_of_its_tables_and_doubles_nothing(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, engine: str
):
    settings = {"answer_timeout_s": ANSWER_TIMEOUT_S, "apply_engine": engine}
    with ExitStack() as stack:
        stage = stack.enter_context(Stage(broker, etcd.endpoint, tmp_path))
        one = stage.start("one", **settings)
        one.await_line("capture leads")
        other = stage.start("other", **settings)
        for life in (one, other):
            life.await_line("spark is up")
        # Tables that are made now are spread at once, those of before after a minute.
        feed = stack.enter_context(LiveFeed(broker, stage.topic, seed=5))
        other.await_line("table taken")
        stage.await_checkpoint(1, one)

        hung_at = time.time()
        one.signal_jvm(signal.SIGSTOP)
        assert "Spark's JVM hangs" in one.await_line("capture dies by suicide")
        other.await_line("capture leads", within_s=LET_GO_WITHIN_S)
        print(f"\nSIGSTOP to the successor's lead: {time.time() - hung_at:.1f} s, TTL {TTL_S} s")
        stage.await_progress(other)
        assert len(one.lines("capture starts")) == 1, "it began anew beside what hangs"

        one.signal_jvm(signal.SIGCONT)
        back = one.await_line("capture starts", nth=2)
        assert field(back, "capture_id") != field(one.lines("capture starts")[0], "capture_id")
        one.await_line("joins")

        stage.await_checkpoint(feed.close(), one)
        for life in (one, other):
            life.signal(signal.SIGTERM)
        assert [life.await_exit(STOP_WITHIN_S) for life in (one, other)] == [0, 0]
        stage.assert_equal(feed.events)


@pytest.mark.soak  # in make test without processes: tests/coordination/capture/test_server_ends.py
def test_a_stop_ends_who_has_a_hung_jvm(broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path):
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=6) as feed,
    ):
        one = stage.start("one", answer_timeout_s=ANSWER_TIMEOUT_S)
        stage.await_checkpoint(1, one)
        other = stage.start("other", answer_timeout_s=ANSWER_TIMEOUT_S)
        other.await_line("table taken")
        taken = len(one.lines("table taken"))

        other.signal_jvm(signal.SIGSTOP)
        asked_at = time.time()
        other.signal(signal.SIGTERM)
        assert other.await_exit(DRAIN_S + STOP_AFTER_SUICIDE_S + JVM_STOP_S + LOAD_S) == 1
        print(f"SIGTERM with a hung JVM to the end: {time.time() - asked_at:.1f} s")
        assert "hangs" in other.lines("ERROR")[-1]
        one.await_line("table taken", nth=taken + 1)

        stage.await_checkpoint(feed.close(), one)
        one.signal(signal.SIGTERM)
        assert one.await_exit(STOP_WITHIN_S) == 0, one.tail()
        stage.assert_equal(feed.events)
