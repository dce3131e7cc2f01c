"""Looks inside: what every part promises the others, checked where it happens.

These are promises of which the program holds two or three at once, so that a broken one alone
seldom shows in a table: an own write that is waited for, an owner of the past that is
not followed, an epoch that changes with the owner (docs/cluster.md 13), a transaction that takes
effect on what its reactor went by, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from coordination.etcd.client import Compare
from coordination.orchestrator import snapshot
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import counter_compare
from coordination.scheduler.agent import Agent
from coordination.scheduler.messages import Message
from tests.fakes.fake_warehouse import require
from tests.simulation.etcd_link import EtcdLink, Sender
from tests.simulation.world import MAX_TXN_OPS


@contextmanager
def instruments() -> Iterator[None]:
    with (
        patch.object(EtcdWorker, "_tick", _ticks_on_own_writes(EtcdWorker._tick)),
        patch.object(EtcdWorker, "_send", _says_who_sends(EtcdWorker._send)),
        patch.object(snapshot, "fold", _keeps_its_reads(snapshot.fold)),
        patch.object(snapshot, "MAX_TXN_OPS", MAX_TXN_OPS),
        patch.object(Agent, "tick", _changes_its_epoch(Agent.tick)),
        patch.object(Agent, "_receive", _follows_the_living(Agent._receive)),
    ):
        yield


def _ticks_on_own_writes(tick: Any) -> Any:
    def checked(worker: Any) -> None:
        state = worker._snapshot
        require(
            state.revision >= state._barrier,
            "a reactor runs on a state that is older than its own last write",
        )
        link = worker._client
        if isinstance(link, EtcdLink):
            link.ticks[worker] = link.ticks.get(worker, 0) + 1
        tick(worker)

    return checked


class _LastFold:
    reads: frozenset[str] = frozenset()


def _says_who_sends(send: Any) -> Any:
    def checked(worker: Any, plan: Any) -> bool:
        link = worker._client
        if not isinstance(link, EtcdLink):
            return bool(send(worker, plan))
        state = worker._snapshot
        read = (Compare(key, "mod", state._mod_revision(key)) for key in _LastFold.reads)
        deletes = counter_compare(state.counter_key, state._counter())
        depends_on = (*state._guards(), *read, deletes)
        link.sender = Sender(worker, depends_on, link.ticks.get(worker, 0))
        try:
            return bool(send(worker, plan))
        finally:
            link.sender = None

    return checked


def _keeps_its_reads(fold: Any) -> Any:
    def folded(*arguments: Any, **options: Any) -> Any:
        result = fold(*arguments, **options)
        _LastFold.reads = result.reads
        return result

    return folded


def _changes_its_epoch(tick: Any) -> Any:
    def checked(agent: Agent, inbox: Sequence[Message]) -> tuple[Message, ...]:
        owner, epoch = agent.owner, agent.epoch
        outbox: tuple[Message, ...] = tick(agent, inbox)
        if agent.owner != owner:
            require(agent.epoch != epoch, "an agent keeps its epoch under another owner")
        return outbox

    return checked


def _follows_the_living(receive: Any) -> Any:
    def checked(agent: Agent, message: Message, heartbeats: Any) -> None:
        require(message.launch >= agent.owner.launch, "an agent follows an owner of the past")
        require(
            message.changefeed_epoch == agent.changefeed_epoch,
            "an agent follows another epoch of its changefeed",
        )
        receive(agent, message, heartbeats)

    return checked
