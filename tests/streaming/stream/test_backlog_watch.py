"""The log lines of a backlog: when a batch begins, and one every ten seconds."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from coordination.errors import TryAgain
from streaming.stream.backlog_watch import BacklogWatch
from streaming.stream.lasting_warnings import LastingWarnings
from tests.own_lines import own_lines, own_records

T0, T1 = "t/0", "t/1"


class Broker:
    """Stands in for a source."""

    server = "the broker"

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_away = False
        self.asked = threading.Event()

    def ends(self, partitions: Any) -> dict[str, int]:
        self.asked.set()
        if self.is_away:
            raise TryAgain("no answer")
        return dict.fromkeys(partitions, self.end)

    def close(self) -> None:
        pass


class ManualClock:
    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def watch(broker: Broker, clock: ManualClock, **options: Any) -> BacklogWatch:
    made = BacklogWatch(lambda: broker, clock=clock, **options)  # type: ignore
    made.begin({T0: 0, T1: 0})
    return made


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return own_lines(caplog)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_batch_of_a_backlog_is_announced_with_what_is_known(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    watching = watch(Broker(50_000), clock)
    clock.now_s += 9  # Spark starts: that is no time of reading
    watching.batch_begins()
    (record,) = own_records(caplog)
    assert record.getMessage() == "a batch begins"
    assert record.messages_behind == 100_000
    assert not hasattr(record, "messages_per_s")  # nobody knows yet
    clock.now_s += 5
    watching.batch_ends({T0: 5_000, T1: 5_000})
    watching.batch_begins()
    record = own_records(caplog)[-1]
    assert (record.messages_behind, record.messages_per_s) == (90_000, 2_000)
    assert record.time_left_s == 45
    watching.close()


def test_small_batches_are_not_announced(clock: ManualClock, caplog: pytest.LogCaptureFixture):
    watching = watch(Broker(100), clock)
    watching.batch_begins()
    watching.batch_ends({T0: 100, T1: 100})
    clock.now_s += 60
    watching.say()
    assert lines(caplog) == []
    watching.close()


def test_every_ten_seconds_there_is_a_line(clock: ManualClock, caplog: pytest.LogCaptureFixture):
    watching = watch(Broker(50_000), clock)
    watching.batch_begins()
    for _ in range(25):
        clock.now_s += 1
        watching.say()
    assert lines(caplog) == ["a batch begins", *["a batch is under way"] * 2]
    assert own_records(caplog)[-1].batch_s == 20
    watching.batch_ends({T0: 5_000, T1: 5_000})
    clock.now_s += 10
    watching.say()
    assert lines(caplog)[-1] == "backlog"
    watching.close()


def test_a_long_batch_of_few_messages_is_told_of_too(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    watching = watch(Broker(10), clock)
    watching.batch_begins()
    clock.now_s += 30
    watching.say()
    assert lines(caplog) == ["a batch is under way"]
    watching.close()


def test_a_broker_that_is_away_leaves_what_is_known(clock: ManualClock):
    broker = Broker(50)
    watching = watch(broker, clock)
    broker.is_away = True
    watching._ask(broker)  # type: ignore[arg-type]
    assert watching.look().behind == 100
    watching.close()


def test_the_broker_is_asked_again_and_again_until_it_is_closed(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("streaming.stream.backlog_watch.ASK_EVERY_S", 0.01)
    broker = Broker(50)
    watching = watch(broker, clock)
    broker.end = 70
    for _ in range(2):  # the second one has seen the new end
        broker.asked.clear()
        assert broker.asked.wait(60)
    assert watching.look().behind == 140
    thread = watching._thread
    watching.close()
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()


def test_a_broker_that_does_not_answer_for_ten_seconds_is_told_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, concerns = Broker(7), LastingWarnings()
    watching = watch(broker, clock, concerns=concerns)
    broker.is_away = True
    for _ in range(4):
        assert concerns.first is None
        watching._ask(broker)  # type: ignore
        clock.now_s += 3.0
    for _ in range(3):
        watching._ask(broker)  # type: ignore
        assert concerns.first == "the broker has not answered for 10 s: no answer"
    assert len([each for each in own_records(caplog) if each.levelname == "WARNING"]) == 1
    broker.is_away = False
    watching._ask(broker)  # type: ignore
    assert concerns.first is None
    watching.close()
