"""The data side of one capture over sources and warehouses in memory, one of each changefeed.

Its steps take virtual time, and get on when `step` is called: not while their capture is frozen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from coordination.errors import Fenced
from coordination.metadata.records import ChangefeedInfo
from coordination.model import ChangefeedID, Ownership
from coordination.ports import ShownState, Wake
from coordination.trust.fence import Trust
from tests.fakes.fake_control_writer import FakeControlWriter
from tests.fakes.fake_replica import FakeReplica, Sent
from tests.fakes.fake_source import ts_at
from tests.fakes.fake_units import Copies, FakeCheckpoints, FakeUnit, FakeUnits
from tests.fakes.fake_warehouse import FakeWarehouse


def is_open(trust: Trust) -> bool:
    try:
        trust.check()
    except Fenced:
        return False
    return True


@dataclass
class Pace:
    """How slow a data plane is."""

    slow_s: float = 0.6  # the longest that a step takes
    commit_s: float = 2.0  # the longest that a commit takes
    long_chance: float = 0.2  # of a commit that may take so long; the others are quick
    long_least: float = 0.6  # of the longest, a long one takes
    batch_s: float | None = None  # of history in one write, so that there is a backlog
    doubt: float = 0.0  # of commits, that get no answer
    read: int = 40  # messages of a partition that are read in a step, at most
    unit_steps: int = 0  # the longest that a unit of a job takes to begin, and to close
    checkpoint_calls: int = 1  # the most that a read of the units' checkpoints takes
    checkpoints_fail: float = 0.0  # of these reads


class FakeReloads:
    """No changefeed of the fakes is a database's."""

    def close(self) -> None: ...


class FakeDataPlane:
    """One per process."""

    def __init__(
        self,
        warehouse_of: Callable[[ChangefeedID], FakeWarehouse],
        *,
        rng: random.Random,
        now: Callable[[], float],
        pace: Pace,
        copies: Copies | None = None,
        node: str = "n1",
    ) -> None:
        """``copies``: what the units of jobs have done, on all captures."""
        self.copies = copies or Copies()
        self.node = node
        self.unit_sets: list[FakeUnits] = []  # one of each session
        self._agents: list[FakeCheckpoints] = []  # one of each leadership
        self.holds_unit: Callable[[FakeUnit], bool] = lambda _: False
        self.send_chunk: Callable[[FakeUnit], None] = self.copies.land
        self.warehouse_of = warehouse_of
        self.rng = rng
        self.now = now
        self.pace = pace
        self.replicas: list[FakeReplica] = []
        self.controls: list[FakeControlWriter] = []
        self.in_doubt: list[Sent] = []  # commits without an answer, that land all the same
        self.fails_at: float | None = None  # the next write after it fails, once
        self.hangs = False  # nothing of it gets on, or ends

    def open_replica(self, info: ChangefeedInfo, trust: Trust, wake: Wake) -> FakeReplica:
        here = [each for each in self.replicas if each.changefeed_id == info.id]
        assert all(each.is_closed() for each in here), "two replicas of one changefeed"
        opened = FakeReplica(self, info, trust, wake)
        self.replicas = [opened, *(each for each in self.replicas if each not in here)]
        return opened

    def open_control_writer(
        self, info: ChangefeedInfo, trust: Trust, ownership: Ownership, wake: Wake
    ) -> FakeControlWriter:
        here = [each for each in self.controls if each.changefeed_id == info.id]
        assert all(each.is_closed() for each in here), "two control writers of one changefeed"
        opened = FakeControlWriter(self, info=info, ownership=ownership, trust=trust, wake=wake)
        self.controls = [opened, *(each for each in self.controls if each not in here)]
        return opened

    def show(
        self,
        info: ChangefeedInfo,
        trust: Trust,  # noqa: ARG002 - the port's
        ownership: Ownership,  # noqa: ARG002
        shown: ShownState,
        wake: Wake,
    ) -> None:
        here = [each for each in self.controls if each.changefeed_id == info.id]
        assert all(each.is_closed() for each in here), "a control writer is open to say it"
        self.warehouse_of(info.id).shown = shown
        wake()

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        """Nothing waits."""

    def units(self, trust: Trust) -> FakeUnits:
        made = FakeUnits(
            self.copies,
            self.node,
            rng=self.rng,
            is_trusted=lambda: is_open(trust),
            send=lambda unit: self.send_chunk(unit),
            holds=lambda unit: self.holds_unit(unit),
        )
        made.slow_steps = self.pace.unit_steps
        self.unit_sets.append(made)
        return made

    def open_reloads(self, trust: Trust) -> FakeReloads:  # noqa: ARG002
        return FakeReloads()

    def checkpoint_agent(self, trust: Trust, wake: Wake) -> FakeCheckpoints:  # noqa: ARG002
        agent = FakeCheckpoints(self.copies, self.rng)
        agent.slow_calls = self.pace.checkpoint_calls
        self._agents.append(agent)
        return agent

    def step(self) -> None:
        """Let what is under way get on."""
        if self.hangs:
            return
        for agent in self._agents:
            agent.fails = self.pace.checkpoints_fail
        for units in self.unit_sets:
            units.step()
        for replica in self.replicas:
            replica.step()
        for control in self.controls:
            control.step()

    @property
    def is_writing(self) -> bool:
        return any(replica.is_writing for replica in self.replicas)

    def take_in_doubt(self) -> list[Sent]:
        taken, self.in_doubt = self.in_doubt, []
        return taken

    def freeze(self) -> list[Sent]:
        """What has been sent, and lands though nobody here gets on; the rest lands on waking."""
        return [sent for replica in self.replicas for sent in replica.take_sent()]

    def commit_at(self) -> float:
        """When a commit that is sent now lands."""
        is_long = self.rng.random() < self.pace.long_chance
        least, most = (self.pace.long_least, 1.0) if is_long else (0.0, 0.1)
        return self.now() + self.rng.uniform(least, most) * self.pace.commit_s

    def delay(self) -> float:
        return self.now() + self.rng.random() * self.pace.slow_s

    def watermark_ts(self) -> int:
        """Everything below has been sent; what a capture reads is a little late."""
        return ts_at(self.now() - 0.1)
