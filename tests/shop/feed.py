"""From a history to the messages that TiCDC would have sent, at-least-once and all.

A window is what lies between two watermarks: some transactions, or one DDL. What TiCDC promises
is kept: the order per table on its first way, watermarks behind their rows. What it
does not promise is made to happen: tables overtake each other, partitions run at different speeds,
tails come twice, a restart sends everything since an older checkpoint again, with rows that had
never come, and a DDL comes before or after the watermark of its own ts.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordination.model import TSO_LOGICAL_BITS
from tests.shop.canal_json import Change, encode_change, encode_ddl, encode_watermark
from tests.shop.dispatch import DDL_PARTITION, partition_of
from tests.shop.history import Event, SchemaChange, Transaction

Message = tuple[int, None, bytes]  # partition, key (canal-json has none), value


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """How the messages are laid out. The defaults make every kind of trouble."""

    seed: int = 1
    partitions: int = 3
    watermark_every: int = 10  # transactions
    replay_every: int = 25  # windows; 0: TiCDC never restarts
    replay_back: int = 6  # windows, at most
    duplicate_tails: float = 0.1  # chance per window
    hold_back: float = 0.2  # chance per window and partition that its messages come later
    interleave: bool = True  # tables overtake each other inside a window
    closing: bool = True  # a last watermark above the last commit-ts


CLEAN = FeedSettings(replay_every=0, duplicate_tails=0, hold_back=0, interleave=False)


@dataclass(frozen=True, slots=True)
class Burst:
    """Messages that go out together; ``ts`` is how far TiDB's clock is then."""

    ts: int
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class _Window:
    events: tuple[Event, ...]
    watermark_ts: int


def messages(events: Iterable[Event], settings: FeedSettings | None = None) -> list[Message]:
    """The whole feed."""
    return [message for burst in bursts(events, settings) for message in burst.messages]


def bursts(events: Iterable[Event], settings: FeedSettings | None = None) -> Iterator[Burst]:
    """The feed in the order of sending, window by window."""
    return _Feed(settings or FeedSettings()).bursts(events)


class _Feed:
    def __init__(self, settings: FeedSettings) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._held: list[deque[bytes]] = [deque() for _ in range(settings.partitions)]
        self._ddls = 0
        self._build_ms = 0  # of the window that is being sent

    def bursts(self, events: Iterable[Event]) -> Iterator[Burst]:
        recent: deque[_Window] = deque(maxlen=self._settings.replay_back + 1)
        ts = 0
        for number, window in enumerate(self._windows(events), 1):
            recent.append(window)
            ts = window.watermark_ts
            if self._settings.replay_every and number % self._settings.replay_every == 0:
                self._crash(window)
                self._send_again(recent)
            else:
                self._send_window(window)
            if self._random.random() < self._settings.duplicate_tails:
                self._send_tail_again()
            yield Burst(ts, list(self._released()))
        if self._settings.closing:
            self._send_watermark(ts + (1 << TSO_LOGICAL_BITS))
        yield Burst(ts, [(p, None, value) for p, held in enumerate(self._held) for value in held])

    def _windows(self, events: Iterable[Event]) -> Iterator[_Window]:
        """Cut before and after a DDL and each so many transactions, never within a commit-ts."""
        open_window: list[Event] = []
        for event in events:
            if open_window and self._is_full(open_window, event):
                yield self._closed(open_window, event.commit_ts)
                open_window = []
            open_window.append(event)
        if open_window:
            yield self._closed(open_window, open_window[-1].commit_ts + 1)

    def _is_full(self, window: list[Event], following: Event) -> bool:
        apart = following.commit_ts > window[-1].commit_ts
        if isinstance(following, SchemaChange) or isinstance(window[-1], SchemaChange):
            return apart  # a RENAME TABLE of several tables is as many events
        return apart and len(window) >= self._settings.watermark_every

    def _closed(self, window: list[Event], following_ts: int) -> _Window:
        """Its watermark is its last commit-ts or lies between that and the next one."""
        last = window[-1].commit_ts
        if isinstance(window[-1], SchemaChange) or self._random.random() < 0.5:
            return _Window(tuple(window), last)
        return _Window(tuple(window), self._random.randrange(last, following_ts))

    def _send_window(self, window: _Window) -> None:
        self._ddls += isinstance(window.events[0], SchemaChange)
        watermark_first = isinstance(window.events[0], SchemaChange) and self._ddls % 3 == 0
        if watermark_first:
            self._send_watermark(window.watermark_ts)
        self._send_events(window)
        if not watermark_first:
            self._send_watermark(window.watermark_ts)

    def _send_events(self, window: _Window) -> None:
        self._build_ms = (window.watermark_ts >> TSO_LOGICAL_BITS) + self._random.randrange(1, 500)
        for event in window.events:
            if isinstance(event, SchemaChange):
                value = encode_ddl(event.ddl, event.commit_ts, self._build_ms)
                self._held[DDL_PARTITION].append(value)
        for change, commit_ts in self._rows(window):
            partition = partition_of(change, self._settings.partitions)
            value = encode_change(change, commit_ts, self._build_ms)
            self._held[partition].append(value)

    def _rows(self, window: _Window) -> list[tuple[Change, int]]:
        """In commit order, or with only the order inside each table kept."""
        rows = [
            (change, event.commit_ts)
            for event in window.events
            if isinstance(event, Transaction)
            for change in event.changes
        ]
        if not self._settings.interleave:
            return rows
        queues: dict[str, deque[tuple[Change, int]]] = defaultdict(deque)
        for row in rows:
            queues[row[0].table.name].append(row)
        turns = [row[0].table.name for row in rows]
        self._random.shuffle(turns)
        return [queues[table].popleft() for table in turns]

    def _crash(self, window: _Window) -> None:
        """TiCDC dies before the window's watermark; what it had for one partition never left it."""
        marks = [len(held) for held in self._held]
        self._send_events(window)
        lost = self._random.randrange(self._settings.partitions)
        while len(self._held[lost]) > marks[lost]:
            self._held[lost].pop()

    def _send_again(self, recent: deque[_Window]) -> None:
        """A restart of TiCDC from an older checkpoint: rows, DDLs and watermarks come again."""
        back = self._random.randint(1, len(recent))
        for window in list(recent)[-back:]:
            self._send_window(window)

    def _send_tail_again(self) -> None:
        """A producer's retry: the last messages of a partition come twice."""
        held = self._random.choice(self._held)
        count = self._random.randint(0, min(len(held), 12))
        held.extend(list(held)[len(held) - count :])

    def _released(self) -> Iterator[Message]:
        """What leaves now; a partition that is held back keeps its later messages for a while."""
        for partition, held in enumerate(self._held):
            keep = 0
            if self._random.random() < self._settings.hold_back:
                keep = self._random.randint(0, len(held))
            while len(held) > keep:
                yield partition, None, held.popleft()

    def _send_watermark(self, ts: int) -> None:
        for held in self._held:
            held.append(encode_watermark(ts, self._build_ms))
