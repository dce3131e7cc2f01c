"""A shop that goes on until it is told to close: its feed into a topic, by a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.services.kafka_broker import KafkaBroker
from tests.services.topic_producer import TopicProducer
from tests.shop.feed import FeedSettings, bursts
from tests.shop.history import Event, HistorySettings, history

ENDLESS = 1_000_000  # transactions
REPLAY_EVERY = 8  # windows: several of them in the life of a test


class LiveFeed:
    """A context manager. ``events`` is what happened; complete after ``close``.

    ``rate`` transactions a second, with a watermark every ``interval_s``: who follows the feed has
    little to do in between, and two tests share the machine.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        *,
        seed: int,
        rate: float = 20.0,
        interval_s: float = 1.5,
    ) -> None:
        self.events: list[Event] = []
        self._settings = HistorySettings(seed=seed, transactions=ENDLESS)
        self._layout = FeedSettings(
            seed=seed, watermark_every=round(rate * interval_s), replay_every=REPLAY_EVERY
        )
        self._topic = topic
        self._rate = rate
        self._producer = TopicProducer(broker.bootstrap)
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> LiveFeed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    @property
    def latest_ts(self) -> int:
        """Of the newest event that happened."""
        return self.events[-1].commit_ts if self.events else 0

    def close(self) -> int:
        """The last commit-ts; a watermark above it has been sent to every partition."""
        self._closing.set()
        self._thread.join()
        assert self._error is None, f"the feed failed: {self._error!r}"
        return self.events[-1].commit_ts

    def _run(self) -> None:
        try:
            sent = 0
            for burst in bursts(self._happening(), self._layout):
                self._producer.send(self._topic, burst.messages)
                self._closing.wait((len(self.events) - sent) / self._rate)
                sent = len(self.events)
            self._producer.flush()
        except Exception as error:  # noqa: BLE001  # said by close
            self._error = error

    def _happening(self) -> Iterator[Event]:
        for event in history(self._settings):
            if self._closing.is_set():
                return
            self.events.append(event)
            yield event
