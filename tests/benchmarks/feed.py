"""A topic as TiCDC fills it: DDLs, changes by key to partitions, watermarks to every partition.

The feed's clock is its own: ten changes in a millisecond, so a watermark every
``watermark_every`` changes is a fixed interval of it. What was sent is kept as arrays (change ->
table, partition, offset, commit-ts): that is how the yardstick knows which changes a reader can
see.
"""

from __future__ import annotations

import numpy as np

from tests.benchmarks import messages
from tests.benchmarks.garbage import garbage_of
from tests.benchmarks.workload import Changes
from tests.services.kafka_broker import KafkaBroker
from tests.services.topic_producer import TopicProducer

PARTITIONS = 2
SCHEMA_NAME = "shop"
WATERMARK_EVERY = 10_000  # changes: one second of the feed's clock, which is TiCDC's own interval
_CHUNK = 100_000  # changes encoded at a time: about 95 MB
_CREATED_MS = messages.FIRST_TS_MS - 10_000
START_TS = messages.tso(_CREATED_MS - 1)
_CREATED_TS = messages.tso(_CREATED_MS + 5_000)
CREATED_TARGET_TS = _CREATED_TS - 1  # a changefeed that ends here has made the tables, empty


class Feed:
    """One topic and what was sent to it. ``changes`` has one history per table, of equal length.

    ``garbage``: this share of all row messages is mutated copies, between the good ones.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        changes: dict[str, Changes],
        *,
        watermark_every: int = WATERMARK_EVERY,
        rounds: int = 1,
        partitions: int = PARTITIONS,
        garbage: float = 0.0,
    ) -> None:
        self.bootstrap, self.topic, self.changes = broker.bootstrap, topic, changes
        self.tables = list(changes)
        self._every = watermark_every
        self._producer = TopicProducer(broker.bootstrap)
        self.partition_count, self._garbage = partitions, garbage
        self.garbage_sent = 0
        self._names = np.array([name.encode() for name in changes])
        assert len({len(name) for name in changes}) == 1, "names of one width"
        self._next = np.zeros(partitions, dtype=np.int64)
        self.sent = 0
        self.watermark_ts = 0
        order = _rounds_in_turn([len(each) for each in changes.values()], rounds)
        self.table_index = order[:, 0]
        self.ids, self.vers, self.ops = (
            _gather([getattr(each, name) for each in changes.values()], order)
            for name in ("ids", "vers", "ops")
        )
        self.partitions = (self.ids * 2_654_435_761 >> 16) % partitions
        self.commits = messages.commit_ts(0, len(self.ids))
        self.offsets = np.full(len(self.ids), -1, dtype=np.int64)
        broker.create_topic(topic, partitions)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def source_uri(self) -> str:
        return (
            f"kafka://{self.bootstrap}/{self.topic}?protocol=canal-json"
            f"&partition-num={self.partition_count}&enable-tidb-extension=true"
        )

    @property
    def target_ts(self) -> int:
        """The largest target-ts that what was sent so far reaches."""
        return self.watermark_ts - 1

    def end_offsets(self) -> dict[int, int]:
        """Partition -> the offset of the next message."""
        return {p: int(offset) for p, offset in enumerate(self._next)}

    def send_creates(self) -> None:
        """CREATE DATABASE and CREATE TABLE to partition 0, then a watermark above them."""
        create = messages.ddl(
            SCHEMA_NAME, "", "QUERY", f"CREATE DATABASE `{SCHEMA_NAME}`", messages.tso(_CREATED_MS)
        )
        ddls = [create] + [
            messages.create_table(SCHEMA_NAME, table, messages.tso(_CREATED_MS + 1 + n))
            for n, table in enumerate(self.tables)
        ]
        self._produce(0, ddls)
        self._send_watermark(_CREATED_TS)
        self.flush()

    def send(self, count: int | None = None, *, close: bool = True) -> None:
        """The next ``count`` changes (default: all); ``close`` ends them with a watermark."""
        end = len(self) if count is None else self.sent + count
        while self.sent < end:
            self.send_encoded(self.encode(self.sent, min(self.sent + _CHUNK, end)))
        if close:
            self.close()

    def close(self) -> None:
        """A watermark above everything, a second of the feed's clock later."""
        last_ms = messages.FIRST_TS_MS + self.sent // messages.CHANGES_PER_MS
        self._send_watermark(max(messages.tso(last_ms + 1_000), self.watermark_ts))
        self.flush()

    def tick(self) -> None:
        """A watermark a second of the feed's clock later, with nothing below it."""
        self._send_watermark(self.watermark_ts + messages.tso(1_000))
        self.flush()

    def flush(self) -> None:
        """Returns when the broker has it all."""
        self._producer.flush()

    def encode(self, first: int, end: int) -> np.ndarray:
        """The messages of changes first … end - 1."""
        part = slice(first, end)
        return messages.encode(
            self.ids[part],
            self.vers[part],
            self.ops[part],
            self.commits[part],
            schema=SCHEMA_NAME,
            tables=self._names[self.table_index[part]],
        )

    def send_encoded(self, values: np.ndarray) -> None:
        """The next changes, and a watermark wherever one is due; does not wait for acks."""
        done = 0
        while done < len(values):
            count = min(len(values) - done, self._every - self.sent % self._every)
            changes = np.arange(self.sent, self.sent + count)
            self._send_rows(changes, values[done : done + count])
            self.sent, done = self.sent + count, done + count
            if self.sent % self._every == 0:
                self._send_watermark(messages.watermark_after(self.sent))

    def _send_rows(self, changes: np.ndarray, values: np.ndarray) -> None:
        if self._garbage:
            changes, values = self._with_garbage(changes, values)
        partitions = self.partitions[changes]
        for p in np.unique(partitions).tolist():
            mine = np.flatnonzero(partitions == p)
            self.offsets[changes[mine]] = self._next[p] + np.arange(len(mine))
            self._produce(p, values[mine].tolist())

    def _with_garbage(
        self, changes: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each mutated copy comes before the message that it is a copy of."""
        rng = np.random.default_rng(self.sent)
        times = rng.poisson(self._garbage / (1 - self._garbage), len(values))
        copies = np.repeat(np.arange(len(values)), times + 1)
        is_last = np.append(copies[1:] != copies[:-1], True)
        self.garbage_sent += int((~is_last).sum())
        mixed = values[copies]
        for n in np.flatnonzero(~is_last).tolist():
            mixed[n] = garbage_of(mixed[n], rng)
        return changes[copies], mixed

    def _send_watermark(self, ts: int) -> None:
        self.watermark_ts = ts
        for p in range(self.partition_count):
            self._produce(p, [messages.watermark(ts)])

    def _produce(self, partition: int, values: list[bytes]) -> None:
        self._producer.send_values(self.topic, partition, values)
        self._next[partition] += len(values)


def _rounds_in_turn(lengths: list[int], rounds: int) -> np.ndarray:
    """(table, change) pairs: in each round an equal part of each table's changes."""
    part, tables = lengths[0] // rounds, len(lengths)
    assert tables == 1 or all(length == part * rounds for length in lengths)
    if tables == 1:
        return np.stack([np.zeros(lengths[0], dtype=np.int64), np.arange(lengths[0])], axis=1)
    shape = (rounds, tables, part)
    table = np.broadcast_to(np.arange(tables)[None, :, None], shape)
    change = np.arange(rounds * part).reshape(rounds, 1, part)
    return np.stack([table.ravel(), np.broadcast_to(change, shape).ravel()], axis=1)


def _gather(columns: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    return columns[0] if len(columns) == 1 else np.stack(columns)[order[:, 0], order[:, 1]]
