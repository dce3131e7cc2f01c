"""Topics in memory: what Kafka's log says of offsets, times, keys and transactions."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message, Uuid

Transaction = object  # one of a producer's; the next is another object


@dataclass(frozen=True, slots=True)
class Entry:
    """What takes an offset. ``message``: None for the marker that ends a transaction."""

    time_ms: int
    key: bytes | None = None
    message: Message | None = None
    transaction: Transaction | None = None


class PartitionLog:
    """One partition. Its offsets from ``start`` to before ``end`` may have holes."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        # Of all that ever came: Kafka too counts what is cut off, until its segment goes.
        self.newest_ms = self.newest_at = -1
        self._offsets: list[int] = []
        self._entries: list[Entry] = []
        self._open: dict[Transaction, int] = {}  # and the first offset that each has here
        self._aborted: set[int] = set()

    @property
    def stable_end(self) -> int:
        """A reader of committed transactions gets what is before it."""
        return min(self._open.values(), default=self.end)

    def append(self, entry: Entry) -> None:
        if entry.transaction is not None and entry.message is not None:
            self._open.setdefault(entry.transaction, self.end)
        self._offsets.append(self.end)
        self._entries.append(entry)
        if entry.time_ms > self.newest_ms:
            self.newest_ms, self.newest_at = entry.time_ms, self.end
        self.end += 1

    def end_transaction(self, ended: Transaction, at_ms: int, *, is_committed: bool) -> None:
        """Its marker takes an offset."""
        first = self._open.pop(ended)
        if not is_committed:
            begin = bisect_left(self._offsets, first)
            both = zip(self._offsets[begin:], self._entries[begin:], strict=True)
            self._aborted |= {at for at, each in both if each.transaction is ended}
        self.append(Entry(at_ms, transaction=ended))

    def read(self, at: int, count: int) -> tuple[list[Message], int]:
        """At most so many committed messages from an offset on, and the offset to go on from."""
        found: list[Message] = []
        stable = self.stable_end
        for index in range(bisect_left(self._offsets, at), len(self._offsets)):
            offset, message = self._offsets[index], self._entries[index].message
            if offset >= stable:
                break
            if message is None or offset in self._aborted:
                continue
            if len(found) == count:
                return found, (found[-1].offset() or 0) + 1 if found else at
            found.append(message)
        return found, max(at, stable)

    def first_at(self, at_ms: int) -> int:
        """The first offset with this time or a later one, a marker's too; -1 if there is none."""
        both = zip(self._offsets, self._entries, strict=True)
        return next((offset for offset, each in both if each.time_ms >= at_ms), -1)

    def cut(self, before: int) -> None:
        """Delete what is before an offset."""
        self.start = max(self.start, before)
        self._keep([at >= self.start for at in self._offsets])

    def compact(self, before: int) -> None:
        """Of each key keep the last message of those before an offset, a tombstone too, and no
        aborted ones. Messages of open transactions, and what came after them, stay."""
        before = min(before, self.stable_end)
        last: dict[bytes | None, int] = {}
        for offset, each in zip(self._offsets, self._entries, strict=True):
            if offset < before and each.message is not None and offset not in self._aborted:
                last[each.key] = offset
        self._keep([
            at >= before
            or each.message is None
            or (at not in self._aborted and last[each.key] == at)
            for at, each in zip(self._offsets, self._entries, strict=True)
        ])  # fmt: skip

    def _keep(self, stays: list[bool]) -> None:
        both = zip(self._offsets, self._entries, stays, strict=True)
        kept = [(offset, entry) for offset, entry, is_kept in both if is_kept]
        self._offsets = [offset for offset, _ in kept]
        self._entries = [entry for _, entry in kept]


def _new_id() -> Uuid:
    """As KRaft makes them, at random."""
    number = uuid.uuid4().int
    return Uuid(*(half - (1 << 64 if half >> 63 else 0) for half in divmod(number, 1 << 64)))


@dataclass(slots=True)
class Topic:
    configs: Mapping[str, str]
    partitions: list[PartitionLog]
    id: Uuid = field(default_factory=_new_id)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs["cleanup.policy"]


class Topics:
    """All of a cluster, which clients on several threads share: hold ``changed`` to look or
    write, and notify those who wait for messages."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.by_name: dict[str, Topic] = {}
        self.changed = threading.Condition(threading.RLock())

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        found = self.by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]
