"""A coordinator and its agents on a network that a test, or a seed, plays with."""

from __future__ import annotations

import random
from itertools import count

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, TermNumber, Ts
from coordination.scheduler.agent import NO_OWNER, Agent, OwnerInfo
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.coordinator import (
    Coordinator,
    CoordinatorInfo,
    CoordinatorTick,
)
from coordination.scheduler.messages import Message, Span, decode, encode
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.scheduler.table_status import TableState
from tests.coordination.scheduler.fake_executor import FakeExecutor
from tests.coordination.scheduler.invariants import check_invariants

FEED = ChangefeedID("shop")
CHANGEFEED_EPOCH = 7
_EPOCHS = count(1)  # never the same twice


def span(number: int) -> Span:
    return Span(number, "shop", f"t{number}")


def make_agent(
    capture: str,
    executor: FakeExecutor,
    *,
    changefeed_epoch: int = CHANGEFEED_EPOCH,
    owner: OwnerInfo = NO_OWNER,
) -> Agent:
    return Agent(
        capture_id=CaptureID(capture),
        changefeed_id=FEED,
        changefeed_epoch=changefeed_epoch,
        version="1.0.0",
        replica=executor,
        owner=owner,
        new_epoch=lambda: ProcessorEpoch(f"{capture}-{next(_EPOCHS)}"),
    )


def make_coordinator(
    capture: str = "a",
    *,
    term: int = 1,
    launch: int = 5,
    checkpoint_ts: int = 100,
    seed: int = 0,
    **settings: float,
) -> Coordinator:
    return Coordinator(
        CoordinatorInfo(
            version="1.0.0",
            capture_id=CaptureID(capture),
            changefeed_id=FEED,
            changefeed_epoch=CHANGEFEED_EPOCH,
            launch=launch,
            term=TermNumber(term),
        ),
        SchedulerSettings(**{"heartbeat_tick": 1, **settings}),
        checkpoint_ts=Ts(checkpoint_ts),
        rng=random.Random(seed),
    )


class Cluster:
    """Every message goes through bytes. `lose`, `double` and `delay` are chances of each one."""

    def __init__(self, captures: str, tables: int, *, seed: int = 0, **settings: float) -> None:
        self.rng = random.Random(seed)
        self.lose = self.double = self.delay = 0.0
        self.executors: dict[str, FakeExecutor] = {}
        self.agents: dict[str, Agent] = {}
        self.alive: list[str] = []
        self.term, self.now_s = 1, 0.0
        self.settings = settings
        self.wires: list[tuple[int, bytes]] = []  # (not before tick, message)
        self.ticks = 0
        self.tables = [span(number) for number in range(1, tables + 1)]
        self.barrier = Barrier(Ts(1_000_000))
        self.coordinator = make_coordinator(captures[0], **settings)
        self.last: CoordinatorTick | None = None
        self.checkpoints: dict[int, int] = {}
        self.is_frozen: set[str] = set()  # agents that do not tick
        self.gone: set[str] = set()  # dead, within their grace
        for capture in captures:
            self.start(capture)
        for table in self.tables:
            self.coordinator.add_table(table, Ts(100))

    def start(self, capture: str) -> None:
        self.executors[capture] = FakeExecutor()
        info = self.coordinator.info
        owner = OwnerInfo(id=info.capture_id, launch=info.launch)
        self.agents[capture] = make_agent(capture, self.executors[capture], owner=owner)
        self.alive.append(capture)

    def kill(self, capture: str) -> None:
        self.die(capture)
        self.bury(capture)

    def die(self, capture: str) -> None:
        """Its key is gone from etcd; what it began may still be under way."""
        del self.executors[capture], self.agents[capture]
        self.gone.add(capture)

    def bury(self, capture: str) -> None:
        """Its grace is over."""
        self.gone.remove(capture)
        self.alive.remove(capture)

    def elect(self, capture: str) -> None:
        """Another owner, or the same one in another term; what was sent is still under way."""
        self.term += 1
        checkpoint_ts = self.coordinator.checkpoint.checkpoint_ts
        self.coordinator = make_coordinator(
            capture,
            term=self.term,
            launch=5 * self.term,
            checkpoint_ts=checkpoint_ts,
            **self.settings,
        )
        for table in self.tables:
            self.coordinator.add_table(table, Ts(100))

    def tick(self, times: int = 1, *, get_on: float = 1.0) -> None:
        for _ in range(times):
            self._tick(get_on)
            self.check()

    def _tick(self, get_on: float) -> None:
        self.ticks += 1
        self.now_s += 0.05
        inboxes = self._deliver()
        for capture, agent in self.agents.items():
            executor = self.executors[capture]
            for table_id in sorted(executor.statuses):
                if self.rng.random() < get_on:
                    executor.get_on(table_id)
            if capture not in self.is_frozen:
                agent_inbox = [m for m in inboxes.get(capture, []) if not _is_for_owner(m)]
                self._send(agent.tick(agent_inbox))
        owner_id = self.coordinator.info.capture_id
        owner_inbox = [m for m in inboxes.get(owner_id, []) if _is_for_owner(m)]
        alive = [CaptureID(capture) for capture in self.alive]
        gone = {CaptureID(capture) for capture in self.gone}
        self.last = self.coordinator.poll(owner_inbox, alive, self.barrier, self.now_s, gone=gone)
        self._send(self.last.outbox)

    def _send(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if self.rng.random() < self.lose:
                continue
            for _ in range(1 + (self.rng.random() < self.double)):
                late = self.rng.randrange(1, 12) if self.rng.random() < self.delay else 0
                self.wires.append((self.ticks + 1 + late, encode(message)))

    def _deliver(self) -> dict[str, list[Message]]:
        due = [data for at, data in self.wires if at <= self.ticks]
        self.wires = [(at, data) for at, data in self.wires if at > self.ticks]
        inboxes: dict[str, list[Message]] = {}
        for data in due:
            message = decode(data)
            inboxes.setdefault(message.to, []).append(message)
        return inboxes

    def advance(self, to_ts: int) -> None:
        """All streams have applied everything up to there."""
        for executor in self.executors.values():
            for table_id, status in list(executor.statuses.items()):
                if status.state is TableState.REPLICATING:
                    executor.put(table_id, status.state, checkpoint_ts=to_ts, resolved_ts=to_ts)

    def writers(self, table_id: int) -> list[str]:
        return [c for c in self.agents if table_id in self.executors[c].writers()]

    def where(self) -> dict[int, str | None]:
        return {t: made.primary for t, made in sorted(self.coordinator.replication.sets.items())}

    @property
    def is_settled(self) -> bool:
        replication = self.coordinator.replication
        return replication.is_initialized and replication.is_settled

    def check(self) -> None:
        """I1, I3 and I6 of docs/cluster.md."""
        replication = self.coordinator.replication
        for made in replication.sets.values():
            check_invariants(made)
        for table in self.tables:
            writers = self.writers(table.table_id)
            assert len(writers) <= 1, f"{table} is written by {writers}"
        check_indexes(self.coordinator)
        assert self.last is not None
        now_ts = self.last.checkpoint.checkpoint_ts
        assert now_ts >= self.checkpoints.get(0, 0), "the changefeed's checkpoint fell"
        self.checkpoints[0] = now_ts


def check_indexes(coordinator: Coordinator) -> None:
    """What is kept up to date step by step equals what a walk over all sets finds."""
    replication = coordinator.replication
    held: dict[str, set[int]] = {}
    for table_id, made in replication.sets.items():
        assert made.holders or not made.has_removed
        for capture_id in made.holders:
            held.setdefault(capture_id, set()).add(table_id)
        is_resting = made.is_settled or (made.state.name == "ABSENT" and not made.undetermined)
        assert (table_id in replication.unsettled) is not is_resting, table_id
        is_absent = made.state.name == "ABSENT" and table_id in replication.tables
        assert (table_id in replication.absent) is is_absent, table_id
    assert {c: ids for c, ids in replication.held.items() if ids} == held
    assert set(replication.missing) == set(replication.tables) - set(replication.sets)
    current = [made for t, made in replication.sets.items() if t in replication.tables]
    if current and not replication.missing:
        far = Barrier(Ts(2**62))
        checkpoint_ts = min(made.checkpoint_ts for made in current)
        resolved_ts = min(made.resolved_ts for made in current)
        assert replication.advance_checkpoint(far) == (checkpoint_ts, resolved_ts)


def _is_for_owner(message: Message) -> bool:
    return type(message.body).__name__.endswith("Response")
