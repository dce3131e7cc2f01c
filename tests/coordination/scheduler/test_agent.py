"""The agent: whom it follows, what it drops, what it tells."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from coordination.model import CaptureID, ChangefeedID, ProcessorEpoch, Revision, Ts
from coordination.scheduler.agent import Agent, AgentTick, OwnerConflict
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    AddTable,
    Body,
    Checkpoint,
    DispatchTableResponse,
    Heartbeat,
    HeartbeatResponse,
    Liveness,
    Message,
    RemoveTable,
    Scan,
    TableState,
    TableStatus,
)
from coordination.scheduler.reports import checksum
from tests.coordination.scheduler.cluster import CHANGEFEED_EPOCH, FEED, make_agent, span
from tests.coordination.scheduler.fake_executor import FakeExecutor

S = TableState


class Owner:
    """Says things to one agent."""

    def __init__(self, name: str = "owner", revision: int = 5) -> None:
        self.id, self.revision = CaptureID(name), Revision(revision)
        self.fence = revision << 32

    def says(self, agent: Agent, body: Body, epoch: str | None = None) -> Message:
        return Message(
            version="9.9.9",
            owner_revision=self.revision,
            processor_epoch=agent.epoch if epoch is None else ProcessorEpoch(epoch),
            changefeed_epoch=CHANGEFEED_EPOCH,
            sender=self.id,
            to=agent.capture_id,
            changefeed_id=FEED,
            body=body,
        )

    def adds(self, agent: Agent, table: int = 1, *, is_secondary: bool) -> Message:
        self.fence += 1
        return self.says(
            agent,
            AddTable(
                span=span(table),
                is_secondary=is_secondary,
                checkpoint=Checkpoint(Ts(50), Ts(50)),
                fence=self.fence,
            ),
        )

    def removes(self, agent: Agent, table: int = 1) -> Message:
        return self.says(agent, RemoveTable(table_id=table, fence=self.fence))


def followed(*, is_eager: bool = True) -> tuple[Agent, FakeExecutor, Owner]:
    """An agent that has an owner already."""
    executor, owner = FakeExecutor(is_eager=is_eager), Owner()
    agent = make_agent("c", executor)
    agent.tick([owner.says(agent, Heartbeat(), epoch="")])
    return agent, executor, owner


def replicating(agent: Agent, owner: Owner, table: int = 1) -> None:
    agent.tick([owner.adds(agent, table, is_secondary=True)])
    agent.tick([owner.adds(agent, table, is_secondary=False)])


def response(tick: AgentTick) -> HeartbeatResponse:
    (body,) = [m.body for m in tick.outbox if isinstance(m.body, HeartbeatResponse)]
    return body


def test_a_new_agent_waits_for_an_owner_and_says_nothing():
    agent = make_agent("c", FakeExecutor())
    assert agent.tick([]) == AgentTick((), [])
    assert (agent.barrier, agent.liveness) == (None, Liveness.ALIVE)


def test_a_new_owner_is_adopted_with_its_first_message_and_changes_the_epoch():
    agent, executor, old = followed()
    replicating(agent, old)
    before, status = agent.epoch, executor.statuses[1]
    new = Owner("new", 9)
    tick = agent.tick([new.says(agent, Heartbeat(), epoch="")])
    assert agent.epoch != before
    assert agent.owner.id == "new"
    assert executor.statuses[1] == status, "streams and fences stay"
    assert response(tick).statuses == (status,)
    assert agent.spans._fences == {1: old.fence}


def test_a_dispatch_of_an_older_epoch_is_dropped():
    agent, executor, owner = followed()
    stale = owner.adds(agent, is_secondary=True)
    new = Owner("new", 9)
    agent.tick([new.says(agent, Heartbeat())])
    same_owner_old_epoch = replace(stale, sender=new.id, owner_revision=new.revision)
    agent.tick([same_owner_old_epoch])
    assert executor.calls == []
    fresh = new.adds(agent, is_secondary=True)
    agent.tick([fresh])
    assert executor.statuses[1].state is S.PREPARED


def test_a_new_owners_first_message_cannot_be_a_dispatch():
    agent, executor, _ = followed()
    new = Owner("new", 9)
    agent.tick([new.adds(agent, is_secondary=True)])
    assert agent.owner.id == "new"
    assert executor.calls == []


def test_a_stale_owner_is_dropped():
    agent, executor, _ = followed()
    stale = Owner("old", 4)
    inbox = [
        stale.says(agent, Heartbeat(is_stopping=True, barrier=Barrier(Ts(9)))),
        stale.adds(agent, is_secondary=True),
    ]
    tick = agent.tick(inbox)
    assert (tick.outbox, agent.barrier, agent.liveness) == ((), None, Liveness.ALIVE)
    assert executor.calls == []


def test_two_owners_of_one_revision_are_a_broken_election():
    agent, _, owner = followed()
    with pytest.raises(OwnerConflict, match=r"owner and other both own changefeed shop"):
        agent.tick([Owner("other", owner.revision).says(agent, Heartbeat())])


def test_a_message_of_another_changefeed_epoch_is_dropped_and_adopts_nobody():
    agent, executor, _ = followed()
    new = Owner("new", 9)
    for body in (Heartbeat(), new.adds(agent, is_secondary=True).body):
        message = new.says(agent, body)
        assert agent.tick([replace(message, changefeed_epoch=6)]).outbox == ()
    assert agent.owner.id == "owner"
    assert executor.calls == []


def test_a_message_for_the_capture_that_this_one_was_before_its_reset_is_dropped():
    agent, _, owner = followed()
    message = owner.says(agent, Heartbeat())
    inbox = [
        replace(message, to=CaptureID("c-before")),
        replace(message, changefeed_id=ChangefeedID("other")),
    ]
    assert agent.tick(inbox).outbox == ()


def test_an_answer_is_not_for_agents():
    agent, _, owner = followed()
    body = DispatchTableResponse(status=TableStatus(1, S.ABSENT), is_remove=False, sequence=1)
    assert agent.tick([owner.says(agent, body)]).outbox == ()


def test_a_heartbeat_is_answered_with_all_spans_and_then_with_changes():
    agent, executor, owner = followed()
    for table in (1, 2):
        replicating(agent, owner, table)
    executor.scan = Scan(scanned_to_ts=Ts(70))
    full = response(agent.tick([owner.says(agent, Heartbeat())]))
    assert [s.table_id for s in full.statuses] == [1, 2]
    assert full.since == 0
    assert full.checksum == checksum(full.statuses)
    assert full.scan == Scan(scanned_to_ts=Ts(70))
    executor.put(2, S.REPLICATING, checkpoint_ts=Ts(80), resolved_ts=Ts(90))
    changes = response(agent.tick([owner.says(agent, Heartbeat(seen=full.sequence))]))
    assert [s[:4] for s in changes.statuses] == [(2, S.REPLICATING, 80, 90)]
    assert changes.since == full.sequence
    assert changes.checksum == checksum(executor.statuses.values()) != full.checksum


def test_what_an_owner_has_seen_of_another_epoch_counts_for_nothing():
    agent, _, owner = followed()
    replicating(agent, owner)
    for heartbeat, epoch in ((Heartbeat(seen=3), "gone"), (Heartbeat(seen=10_000), None)):
        answer = response(agent.tick([owner.says(agent, heartbeat, epoch=epoch)]))
        assert answer.since == 0
        assert len(answer.statuses) == 1


def test_spans_that_are_asked_for_are_told_changed_or_not_here_or_not():
    agent, executor, owner = followed()
    replicating(agent, owner)
    seen = response(agent.tick([owner.says(agent, Heartbeat())])).sequence
    answer = response(agent.tick([owner.says(agent, Heartbeat(seen=seen, table_ids=(7, 1)))]))
    assert answer.statuses == (TableStatus(7, S.ABSENT), executor.statuses[1])


def test_a_span_that_is_to_be_removed_shows_stopping_to_heartbeats():
    agent, executor, owner = followed()
    replicating(agent, owner)
    executor.is_eager, executor.refuses = False, True
    tick = agent.tick([owner.removes(agent), owner.says(agent, Heartbeat())])
    assert [s.state for s in response(tick).statuses] == [S.STOPPING]
    assert executor.statuses[1].state is S.REPLICATING


def test_a_stopping_heartbeat_is_a_one_way_street():
    agent, _, owner = followed()
    tick = agent.tick([owner.says(agent, Heartbeat(is_stopping=True))])
    assert agent.liveness is response(tick).liveness is Liveness.STOPPING
    tick = agent.tick([owner.says(agent, Heartbeat(is_stopping=False))])
    assert agent.liveness is response(tick).liveness is Liveness.STOPPING


def test_a_capture_that_ends_by_itself_tells_the_owner():
    agent, _, owner = followed()
    agent.liveness = Liveness.STOPPING
    answer = response(agent.tick([owner.says(agent, Heartbeat())]))
    assert answer.liveness is Liveness.STOPPING


def test_a_heartbeat_without_a_barrier_never_loosens_it():
    agent, _, owner = followed()
    assert agent.barrier is None, "which means: not above where it was added"
    held = Barrier(Ts(70), {1: Ts(60)})
    inbox = [owner.says(agent, Heartbeat(barrier=held)), owner.says(agent, Heartbeat())]
    agent.tick(inbox)
    assert agent.barrier == held
    new = Owner("new", 9)
    agent.tick([new.says(agent, Heartbeat())])
    assert agent.barrier == held, "nor does a new owner's"


def test_an_error_of_a_task_is_in_the_tick():
    agent, executor, owner = followed()
    executor.fails[1] = RuntimeError("no space")
    tick = agent.tick([owner.adds(agent, is_secondary=True)])
    assert tick.errors == [executor.fails[1]]


def test_dispatches_are_answered_in_order_with_a_sequence():
    agent, _, owner = followed()
    first = agent.tick([owner.adds(agent, is_secondary=True)]).outbox
    second = agent.tick([owner.adds(agent, is_secondary=False)]).outbox
    third = agent.tick([owner.removes(agent), owner.says(agent, Heartbeat())]).outbox
    bodies = [m.body for m in (*first, *second, *third[:1])]
    assert [(b.status.state, b.is_remove) for b in bodies] == [
        (S.PREPARED, False),
        (S.REPLICATING, False),
        (S.STOPPED, True),
    ]
    sequences = [b.sequence for b in bodies] + [third[1].body.sequence]
    assert sequences == sorted(set(sequences))
    assert third[1].body.statuses == (), "a full list does not name what is gone"


def test_answers_carry_who_is_meant_and_which_epoch():
    agent, _, owner = followed()
    (message,) = agent.tick([owner.says(agent, Heartbeat())]).outbox
    assert (message.sender, message.to, message.changefeed_id) == ("c", "owner", FEED)
    assert (message.version, message.owner_revision) == ("1.0.0", 5)
    assert (message.processor_epoch, message.changefeed_epoch) == (agent.epoch, CHANGEFEED_EPOCH)


def test_a_commit_while_the_span_is_being_stopped_is_not_followed():
    agent, executor, owner = followed()
    replicating(agent, owner)
    executor.is_eager = False
    agent.tick([owner.removes(agent)])
    agent.tick([owner.adds(agent, is_secondary=False)])
    executor.get_on(1)
    agent.tick([])
    assert executor.statuses == {}
    agent.tick([owner.adds(agent, is_secondary=False)])
    assert executor.statuses == {}, "nothing was prepared that it could go on from"


STATES = [S.ABSENT, S.PREPARING, S.PREPARED, S.REPLICATING, S.STOPPING, S.STOPPED]
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
    assert all(not tick.errors for tick in ticks)
    _check_told(agent, executor, ticks)
    _check_kept(executor, order, state, is_one_tick)
    for _ in range(4):  # whatever is under way comes to its end, and then nothing more happens
        if 1 in executor.statuses:
            executor.get_on(1)
        agent.tick([])
    calls = len(executor.calls)
    agent.tick([])
    assert len(executor.calls) == calls, "a task that has ended, or waits for ever"
    final = response(agent.tick([owner.says(agent, Heartbeat(table_ids=(1,)))]))
    assert final.statuses[0].state == executor.get_table_span_status(1).state


def _check_told(agent: Agent, executor: FakeExecutor, ticks: list[AgentTick]) -> None:
    answers = [m.body for tick in ticks for m in tick.outbox]
    assert sum(isinstance(body, HeartbeatResponse) for body in answers) == 1
    sequences = [body.sequence for body in answers]
    assert sequences == sorted(sequences)
    busy = agent.spans._busy.get(1)
    truth = executor.get_table_span_status(1).state
    told = (agent._reports.last(1) or TableStatus(1, S.ABSENT)).state
    is_removing = busy is not None and isinstance(busy.task, RemoveTable)
    assert told == (S.STOPPING if is_removing and truth is not S.ABSENT else truth)


def _check_kept(
    executor: FakeExecutor, order: tuple[str, ...], state: TableState, is_one_tick: bool
) -> None:
    """The first dispatch of a tick is followed, the others find it under way; a commit or a remove
    of what is not here comes to nothing."""
    asked = [call[0] for call in executor.calls]
    dispatches = [kind for kind in order if kind != "heartbeat"]
    if not is_one_tick:
        return
    if state is S.ABSENT:
        dispatches = dispatches[dispatches.index("prepare") :]
    first = dispatches[0]
    if first == "remove":
        assert not any(call[0] == "add" for call in executor.calls)
    else:
        assert "remove" not in asked
        assert all(call[2] is (first == "prepare") for call in executor.calls if call[0] == "add")
