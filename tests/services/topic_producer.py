"""Sends messages to exact partitions, fast: what TiCDC's producer does with its own partitioner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError, Message, Producer

Outgoing = tuple[int, bytes | None, bytes | None]  # partition, key, value


class BrokerError(RuntimeError):
    """The broker did not do what a test or the demo needs."""


class TopicProducer:
    """Sends bytes to exact partitions; the order per partition is the order of the calls."""

    def __init__(self, bootstrap: str) -> None:
        self._errors: list[KafkaError] = []
        self._known: set[str] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "max.in.flight.requests.per.connection": 1,  # keeps the order over retries
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "message.max.bytes": 15 << 20,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 << 10,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )

    def send(self, topic: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages; blocks while the queue is full. ``flush`` waits for the acks."""
        for partition, key, value in messages:
            while True:
                try:
                    self._producer.produce(
                        topic, value, key, partition=partition, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self._know(topic)
        self._producer.poll(0)

    def send_values(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """The same for many messages of one partition, without keys: twice as fast."""
        if topic not in self._known:
            self.send(topic, [(partition, None, value) for value in values[:1]])
            values = values[1:]
        batch = [{"value": value} for value in values]
        while batch:
            queued = self._producer.produce_batch(
                topic, batch, partition=partition, on_delivery=self._delivered
            )
            batch = batch[queued:]  # the queue is full: librdkafka took the first ones
            self._producer.poll(0.02 if batch else 0)

    def _know(self, topic: str) -> None:
        """The first message of a topic goes alone: what librdkafka is given before it knows the
        partitions it parks, and others overtake it."""
        if topic not in self._known:
            self.flush()
            self._known.add(topic)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Returns when the broker has acknowledged everything."""
        unsent = self._producer.flush(timeout_s)
        errors, self._errors = self._errors, []  # who comes next sends other messages
        if errors or unsent:
            raise BrokerError(f"{unsent} messages not sent, errors: {errors[:3]}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)
