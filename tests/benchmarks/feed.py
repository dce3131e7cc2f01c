"""A topic as TiCDC fills it: DDLs, changes by key to partitions, watermarks to every partition.

The feed's clock is its own: ten changes in a millisecond, so a watermark every
``watermark_every`` changes is a fixed interval of it. What was sent is kept as arrays (change ->
table, partition, offset, commit-ts): that is how the yardstick knows which changes a reader can
see.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.benchmarks import messages
from tests.benchmarks.workload import Changes
from tests.services.kafka_broker import KafkaBroker
from tests.services.topic_producer import Outgoing, TopicProducer

PARTITIONS = 2
SCHEMA_NAME = "shop"
WATERMARK_EVERY = 10_000  # changes: one second of the feed's clock, which is TiCDC's own interval
_CHUNK = 100_000  # changes encoded at a time: about 90 MB
_CREATED_MS = messages.FIRST_TS_MS - 10_000
START_TS = messages.tso(_CREATED_MS - 1)
_CREATED_TS = messages.tso(_CREATED_MS + 5_000)
CREATED_TARGET_TS = _CREATED_TS - 1  # a changefeed that ends here has made the tables, empty


class Feed:
    """One topic and what was sent to it. ``changes`` has one history per table, of equal length."""

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        changes: dict[str, Changes],
        *,
        watermark_every: int = WATERMARK_EVERY,
        rounds: int = 1,
    ) -> None:
        self.bootstrap, self.topic, self.changes = broker.bootstrap, topic, changes
        self.tables = list(changes)
        self._every = watermark_every
        self._producer = TopicProducer(broker.bootstrap)
        self._next = np.zeros(PARTITIONS, dtype=np.int64)
        self.sent = 0
        self.watermark_ts = 0
        order = _rounds_in_turn([len(each) for each in changes.values()], rounds)
        self.table_index = order[:, 0]
        self.ids, self.vers, self.ops = (
            _gather([getattr(each, name) for each in changes.values()], order)
            for name in ("ids", "vers", "ops")
        )
        self.partitions = (self.ids * 2_654_435_761 >> 16) % PARTITIONS
        self.commits = messages.commit_ts(0, len(self.ids))
        self.offsets = np.full(len(self.ids), -1, dtype=np.int64)
        broker.create_topic(topic, PARTITIONS)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def source_uri(self) -> str:
        return (
            f"kafka://{self.bootstrap}/{self.topic}?protocol=canal-json"
            f"&partition-num={PARTITIONS}&enable-tidb-extension=true"
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
        self._produce([(0, None, ddl) for ddl in ddls])
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

    def flush(self) -> None:
        """Returns when the broker has it all."""
        self._producer.flush()

    def encode(self, first: int, end: int) -> pa.Array:
        """The messages of changes first … end - 1."""
        part = slice(first, end)
        return messages.encode(
            self.ids[part],
            self.vers[part],
            self.ops[part],
            self.commits[part],
            schema=SCHEMA_NAME,
            tables=self._table_names(part),
        )

    def send_encoded(self, values: pa.Array) -> None:
        """The next changes, and a watermark wherever one is due; does not wait for acks."""
        done = 0
        while done < len(values):
            count = min(len(values) - done, self._every - self.sent % self._every)
            part = slice(self.sent, self.sent + count)
            partitions = self.partitions[part]
            for p in range(PARTITIONS):
                mine = np.flatnonzero(partitions == p)
                self.offsets[self.sent + mine] = self._next[p] + np.arange(len(mine))
            texts = values.slice(done, count).to_pylist()
            self._produce([(p, None, v) for p, v in zip(partitions.tolist(), texts, strict=True)])
            self.sent, done = self.sent + count, done + count
            if self.sent % self._every == 0:
                self._send_watermark(messages.watermark_after(self.sent))

    def _table_names(self, part: slice) -> pa.Array | str:
        if len(self.tables) == 1:
            return self.tables[0]
        return pa.array(self.tables).take(pa.array(self.table_index[part]))

    def _send_watermark(self, ts: int) -> None:
        self.watermark_ts = ts
        self._produce([(p, None, messages.watermark(ts)) for p in range(PARTITIONS)])

    def _produce(self, outgoing: Sequence[Outgoing]) -> None:
        self._producer.send(self.topic, outgoing)
        self._next += np.bincount([p for p, _, _ in outgoing], minlength=PARTITIONS)


def _rounds_in_turn(lengths: list[int], rounds: int) -> np.ndarray:
    """(table, change) pairs: in each round an equal part of each table's changes."""
    if len(lengths) == 1:
        return np.stack([np.zeros(lengths[0], dtype=np.int64), np.arange(lengths[0])], axis=1)
    part = lengths[0] // rounds
    assert all(length == part * rounds for length in lengths)
    return np.array(
        [
            (table, n)
            for r in range(rounds)
            for table in range(len(lengths))
            for n in range(r * part, (r + 1) * part)
        ]
    )


def _gather(columns: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    return columns[0] if len(columns) == 1 else np.stack(columns)[order[:, 0], order[:, 1]]
