"""What a changefeed's owner costs at 100,000 and 1,000,000 spans over 100 captures.

The real coordinator and real encoded bytes, both ways; the agents' halves of the reports are real
too, but no data is behind them. A tick is: decode what came, `poll`, encode what goes out, take
what has changed for the progress rows. Memory is what the process grows by when the coordinator
takes the spans over: the agents, in the same process, were there before.

    python -m tests.benchmarks.scheduler_scale [--spans 100000 1000000] [--captures 100]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import psutil

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, TermNumber, Ts
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.coordinator import (
    Coordinator,
    CoordinatorInfo,
    CoordinatorTick,
)
from coordination.scheduler.messages import (
    AddTable,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    Span,
    decode,
    encode,
    stored_table_id,
)
from coordination.scheduler.reports import SpanReports
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.scheduler.table_status import Statuses, TableState, TableStatus

FEED = ChangefeedID("shop")
START_TS = Ts(468_000_000_000_000_000)
TICK_S = 0.05
MAX_RECOVERY_TICKS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One size's numbers; bytes are those of all captures in one round of heartbeats."""

    spans: int
    captures: int
    memory_per_span_bytes: int
    take_over_ms: float  # a new owner's tick with everybody's full list
    steady_tick_ms: float  # nothing has changed
    advancing_tick_ms: float  # every span has moved
    advancing_poll_ms: float  # of it, without the bytes
    lost_tick_ms: float  # a capture is gone: its spans are marked
    recovery_tick_ms: float  # the median of the ticks in which they are given away
    recovery_ticks: int  # until all replicate again, one tick a message: 50 are added in each
    full_response_bytes: int
    steady_response_bytes: int
    advancing_response_bytes: int
    request_bytes: int


class FakeCapture:
    """An agent without data: it follows every order at once."""

    def __init__(self, number: int, table_ids: Sequence[int]) -> None:
        self.id = CaptureID(f"6b1f0f0e-0000-4000-8000-{number:012d}")
        self.epoch = ProcessorEpoch(f"e{number}")
        self.reports = SpanReports()
        self.statuses: dict[int, TableStatus] = {}
        for fence, table_id in enumerate(table_ids):
            self.put(_status(table_id, START_TS, (1 << 32) + fence))

    def put(self, status: TableStatus) -> None:
        self.statuses[status.table_id] = status
        self.reports.observe(status)

    def advance(self, ts: Ts) -> None:
        for status in [*self.statuses.values()]:
            self.put(status._replace(checkpoint_ts=ts, resolved_ts=ts))

    def follow(self, add: AddTable) -> None:
        state = TableState.PREPARED if add.is_secondary else TableState.REPLICATING
        status = _status(add.span.table_id, add.checkpoint.checkpoint_ts, add.fence)
        self.put(status._replace(state=state))

    def answer(self, heartbeat: Heartbeat) -> bytes:
        statuses = self.reports.since(heartbeat.seen)
        named = {status.table_id for status in statuses}
        asked = [self.statuses.get(t) or TableStatus(t, TableState.ABSENT)
                 for t in heartbeat.table_ids if t not in named]  # fmt: skip
        body = HeartbeatResponse(
            statuses=Statuses.of((*statuses, *asked)),
            liveness=Liveness.ALIVE,
            sequence=self.reports.sequence,
            since=heartbeat.seen,
            checksum=self.reports.checksum,
            read_positions={},
        )
        return encode(
            Message(
                version="8.5.4",
                launch=77,
                processor_epoch=self.epoch,
                changefeed_epoch=1,
                sender=self.id,
                to=CaptureID("owner"),
                changefeed_id=FEED,
                body=body,
            )
        )


def _status(table_id: int, ts: int, fence: int) -> TableStatus:
    at = Ts(ts)
    return TableStatus(table_id, TableState.REPLICATING, at, at, at, fence, 17, 0, "delta-rs")


class Bench:
    """A coordinator, its captures, and the bytes between them."""

    def __init__(self, spans: int, captures: int) -> None:
        ids = [stored_table_id(1, "shop", f"orders_{n}", START_TS) for n in range(spans)]
        self.captures = {
            made.id: made for made in (FakeCapture(n, ids[n::captures]) for n in range(captures))
        }
        self.now_s = 0.0
        self.barrier = Barrier(Ts(START_TS + 10**12))
        before = _rss()
        self.coordinator = _coordinator()
        for number, table_id in enumerate(ids):
            self.coordinator.add_table(Span(table_id, "shop", f"orders_{number}"), START_TS)
        del ids
        self.requests: list[bytes] = []
        self.tick([])
        self.full_bytes = 0
        self.take_over_s = self._take_over()
        self.memory_bytes = _rss() - before

    def _take_over(self) -> float:
        """The full lists one after the other, so that no more than one is in memory as text."""
        spent_s = 0.0
        heartbeats = [decode(request) for request in self.requests]
        for request in heartbeats:
            answers = self.answers([request])
            self.full_bytes += sum(map(len, answers))
            spent_s += self.tick(answers)[0]
        return spent_s

    def tick(self, inbox: list[bytes]) -> tuple[float, CoordinatorTick, float]:
        """Seconds for all of it, what came of it, and seconds of the poll alone."""
        self.now_s += TICK_S
        start = time.perf_counter()
        messages = [decode(data) for data in inbox]
        polling = time.perf_counter()
        tick = self.coordinator.poll(messages, self.captures, self.barrier, self.now_s)
        polled = time.perf_counter()
        self.requests = [encode(message) for message in tick.outbox]
        return time.perf_counter() - start, tick, polled - polling

    def answers(self, requests: Iterable[Message]) -> list[bytes]:
        """What the captures make of what was sent to them."""
        heartbeats = []
        for message in requests:
            capture = self.captures.get(message.to)
            if capture is not None and isinstance(message.body, AddTable):
                capture.follow(message.body)
            elif capture is not None and isinstance(message.body, Heartbeat):
                heartbeats.append((capture, message.body))
        return [capture.answer(heartbeat) for capture, heartbeat in heartbeats]

    def round(self, change: Callable[[], None] = lambda: None) -> tuple[list[bytes], float, float]:
        """Go on to the next heartbeats and answer them: the answers, the tick's ms, its poll's."""
        while not any(isinstance(decode(data).body, Heartbeat) for data in self.requests):
            self.tick([])
        change()
        answers = self.answers(map(decode, self.requests))
        spent_s, _, polled_s = self.tick(answers)
        start = time.perf_counter()
        self.coordinator.take_progress()
        spent_s += time.perf_counter() - start
        return answers, spent_s * 1e3, polled_s * 1e3

    def lose_one(self) -> tuple[float, list[float]]:
        """Kill a capture: ms of the tick that notices, and of those until all replicate again."""
        self.captures.pop(next(reversed(self.captures)))
        first_s, tick, _ = self.tick([])
        spent_ms: list[float] = []
        for _ in range(MAX_RECOVERY_TICKS):
            if self.coordinator.replication.is_settled:
                break
            spent_s, tick, _ = self.tick(self.answers(tick.outbox))
            spent_ms.append(spent_s * 1e3)
        assert self.coordinator.replication.is_settled
        return first_s * 1e3, spent_ms


def measure(spans: int, captures: int, rounds: int) -> Scale:
    bench = Bench(spans, captures)
    bench.round()
    steady = [bench.round() for _ in range(rounds)]
    request_bytes = 0
    advancing = []
    for number in range(1, rounds + 1):

        def advance(by: int = number) -> None:
            for place, capture in enumerate(bench.captures.values()):
                capture.advance(Ts(START_TS + by * 10**9 + place))  # each capture has its own L

        advancing.append(bench.round(advance))
        moved = bench.coordinator.checkpoint.checkpoint_ts
        assert moved == START_TS + number * 10**9, "the changefeed's checkpoint has not followed"
    while not bench.requests:
        bench.tick([])
    request_bytes = sum(map(len, bench.requests))
    lost_ms, recovery_ms = bench.lose_one()
    return Scale(
        spans=spans,
        captures=captures,
        memory_per_span_bytes=bench.memory_bytes // spans,
        take_over_ms=round(bench.take_over_s * 1e3, 1),
        steady_tick_ms=round(statistics.median(ms for _, ms, _ in steady), 2),
        advancing_tick_ms=round(statistics.median(ms for _, ms, _ in advancing), 1),
        advancing_poll_ms=round(statistics.median(ms for _, _, ms in advancing), 1),
        lost_tick_ms=round(lost_ms, 1),
        recovery_tick_ms=round(statistics.median(recovery_ms), 2),
        recovery_ticks=len(recovery_ms),
        full_response_bytes=bench.full_bytes,
        steady_response_bytes=sum(map(len, steady[-1][0])),
        advancing_response_bytes=sum(map(len, advancing[-1][0])),
        request_bytes=request_bytes,
    )


def _coordinator() -> Coordinator:
    info = CoordinatorInfo(
        version="8.5.4",
        capture_id=CaptureID("owner"),
        changefeed_id=FEED,
        changefeed_epoch=1,
        launch=77,
        term=TermNumber(2),
    )
    settings = replace(SchedulerSettings(), heartbeat_tick=1)
    return Coordinator(info, settings, checkpoint_ts=START_TS, rng=random.Random(0))


def _rss() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def main(arguments: Sequence[str] | None = None) -> list[Scale]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--captures", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    scales = []
    for spans in chosen.spans:
        scales.append(measure(spans, chosen.captures, chosen.rounds))
        sys.stdout.write(json.dumps(asdict(scales[-1]), indent=1) + "\n")
    return scales


if __name__ == "__main__":
    main()
