"""Looks inside: what every part promises the others, checked where it happens.

These are promises of which the program holds two or three at once, so that a broken one alone
seldom shows in a table: an own write that is waited for, an owner of the past that is
not followed, an epoch that changes with the owner (docs/cluster.md 13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.scheduler.agent import Agent, AgentTick
from coordination.scheduler.messages import Message
from tests.fakes.fake_warehouse import require


@contextmanager
def instruments() -> Iterator[None]:
    with (
        patch.object(EtcdWorker, "_tick", _ticks_on_own_writes(EtcdWorker._tick)),
        patch.object(Agent, "tick", _follows_the_living(Agent.tick)),
    ):
        yield


def _ticks_on_own_writes(tick: Any) -> Any:
    def checked(worker: Any) -> None:
        snapshot = worker._snapshot
        require(
            snapshot.revision >= snapshot._barrier,
            "a reactor runs on a state that is older than its own last write",
        )
        tick(worker)

    return checked


def _follows_the_living(tick: Any) -> Any:
    def checked(agent: Agent, inbox: Sequence[Message]) -> AgentTick:
        owner, epoch = agent.owner, agent.info.epoch
        ticked: AgentTick = tick(agent, inbox)
        if agent.owner != owner:
            require(agent.info.epoch != epoch, "an agent keeps its epoch under another owner")
        dropped = {id(message) for _, message in ticked.dropped}
        newest = owner.revision
        for message in inbox:
            if id(message) in dropped:
                continue
            revision = message.header.owner_revision
            require(revision >= newest, "an agent follows an owner of the past")
            newest = max(newest, revision)
        return ticked

    return checked
