"""The agent under messages in every order, in every state of a span."""

from __future__ import annotations

from itertools import permutations

import pytest

from coordination.scheduler.agent import Agent
from coordination.scheduler.messages import Heartbeat, HeartbeatResponse, Message
from coordination.scheduler.table_status import TableState, TableStatus
from tests.coordination.scheduler.fake_executor import FakeExecutor
from tests.coordination.scheduler.speaking_owner import (
    Outbox,
    Owner,
    followed,
    replicating,
    response,
)

S = TableState

STATES = [S.ABSENT, S.PREPARING, S.PREPARED, S.REPLICATING, S.STOPPING, S.STOPPED]
GOES_ON = (
    S.ABSENT,
    S.PREPARED,
    S.STOPPED,
)  # that are added, or asked to be written; the last is gone
KINDS = ("prepare", "commit", "remove", "heartbeat")


def _say(owner: Owner, agent: Agent, kind: str) -> Message:
    match kind:
        case "prepare" | "commit":
            return owner.adds(agent, is_secondary=kind == "prepare")
        case "remove":
            return owner.removes(agent)
        case _:
            return owner.says(agent, Heartbeat(table_ids=(1,)))


def _bring(agent: Agent, executor: FakeExecutor, owner: Owner, state: TableState) -> None:
    if state is S.ABSENT:
        return
    replicating(agent, owner)
    executor._is_commit.clear()
    executor.put(1, state)
    if state is S.REPLICATING:
        executor._is_commit.add(1)
    agent.tick([])
    executor.calls.clear()


@pytest.mark.parametrize("is_eager", [True, False])
@pytest.mark.parametrize("is_one_tick", [True, False])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("order", list(permutations(KINDS)), ids="-".join)
def test_all_orders_of_messages_in_all_states(order, state, is_one_tick, is_eager):
    agent, executor, owner = followed()
    _bring(agent, executor, owner, state)
    executor.is_eager = is_eager
    inbox = [_say(owner, agent, kind) for kind in order]
    ticks = [agent.tick(inbox)] if is_one_tick else [agent.tick([m]) for m in inbox]
    _check_told(agent, executor, ticks)
    for call in executor.calls:  # what comes after a remove finds it stopping, or gone
        assert call[0] == "remove" or is_eager or state in (S.ABSENT, S.PREPARED, S.STOPPED)
    for _ in range(4):  # whatever is under way comes to its end, and then nothing more happens
        if 1 in executor.statuses:
            executor.get_on(1)
        agent.tick([])
    calls = len(executor.calls)
    assert agent.tick([]) == ()
    assert len(executor.calls) == calls
    final = response(agent.tick([owner.says(agent, Heartbeat(table_ids=(1,)))]))
    assert final.statuses[0].state == executor.get_table_span_status(1).state


def _check_told(agent: Agent, executor: FakeExecutor, ticks: list[Outbox]) -> None:
    answers = [m.body for outbox in ticks for m in outbox]
    assert sum(isinstance(body, HeartbeatResponse) for body in answers) == 1
    sequences = [body.sequence for body in answers]
    assert sequences == sorted(sequences)
    told = (agent._reports.last(1) or TableStatus(1, S.ABSENT)).state
    assert told is executor.get_table_span_status(1).state
