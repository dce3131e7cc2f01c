"""The agent: whom it follows, what it drops, what it tells."""

from __future__ import annotations

from dataclasses import replace

from coordination.model import CaptureID, ChangefeedID, Ts
from coordination.scheduler.agent import OwnerInfo
from coordination.scheduler.barrier import Barrier
from coordination.scheduler.messages import (
    DispatchTableResponse,
    Heartbeat,
    Liveness,
    RemoveTable,
)
from coordination.scheduler.table_status import TableState, TableStatus, checksum
from tests.coordination.scheduler.cluster import CHANGEFEED_EPOCH, FEED, make_agent
from tests.coordination.scheduler.fake_executor import FakeExecutor
from tests.coordination.scheduler.speaking_owner import (
    Owner,
    followed,
    replicating,
    response,
)

S = TableState


def test_a_new_agent_waits_for_an_owner_and_says_nothing():
    agent = make_agent("c", FakeExecutor())
    assert agent.tick([]) == ()
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
    assert agent.fences == {1: old.fence}


def test_a_dispatch_of_an_older_epoch_is_dropped():
    agent, executor, owner = followed()
    stale = owner.adds(agent, is_secondary=True)
    new = Owner("new", 9)
    agent.tick([new.says(agent, Heartbeat())])
    same_owner_old_epoch = replace(stale, sender=new.id, launch=new.launch)
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
    assert (tick, agent.barrier, agent.liveness) == ((), None, Liveness.ALIVE)
    assert executor.calls == []


def test_of_two_owners_of_one_launch_the_one_that_etcd_names_is_followed():
    """etcd was restored from a backup: the launch was given away twice."""
    agent, _, owner = followed()
    other = Owner("other", owner.launch)
    assert agent.tick([other.says(agent, Heartbeat())]) == (), "etcd has said nothing of it yet"
    agent.named = OwnerInfo(other.id, other.launch)
    before = agent.epoch
    assert response(agent.tick([other.says(agent, Heartbeat(), epoch="")])).statuses == ()
    assert (agent.owner, agent.epoch != before) == (agent.named, True)
    assert agent.tick([owner.says(agent, Heartbeat(is_stopping=True))]) == ()
    assert agent.liveness is Liveness.ALIVE


def test_an_owner_that_etcd_names_late_is_not_followed_back():
    """The newer owner wrote before the capture read of it: going back and forth would make each
    one's dispatches stale."""
    agent, _, owner = followed()
    late = Owner("late", owner.launch - 1)
    agent.named = OwnerInfo(late.id, late.launch)
    assert agent.tick([late.says(agent, Heartbeat())]) == ()
    assert agent.owner.id == owner.id


def test_a_message_of_another_changefeed_epoch_is_dropped_and_adopts_nobody():
    agent, executor, _ = followed()
    new = Owner("new", 9)
    for body in (Heartbeat(), new.adds(agent, is_secondary=True).body):
        message = new.says(agent, body)
        assert agent.tick([replace(message, changefeed_epoch=6)]) == ()
    assert agent.owner.id == "owner"
    assert executor.calls == []


def test_a_message_for_the_capture_that_this_one_was_before_its_reset_is_dropped():
    agent, _, owner = followed()
    message = owner.says(agent, Heartbeat())
    inbox = [
        replace(message, to=CaptureID("c-before")),
        replace(message, changefeed_id=ChangefeedID("other")),
    ]
    assert agent.tick(inbox) == ()


def test_an_answer_is_not_for_agents():
    agent, _, owner = followed()
    body = DispatchTableResponse(status=TableStatus(1, S.ABSENT), sequence=1)
    assert agent.tick([owner.says(agent, body)]) == ()


def test_a_heartbeat_is_answered_with_all_spans_and_then_with_changes():
    agent, executor, owner = followed()
    for table in (1, 2):
        replicating(agent, owner, table)
    executor.read_positions = {"shop/0": 70}
    full = response(agent.tick([owner.says(agent, Heartbeat())]))
    assert [s.table_id for s in full.statuses] == [1, 2]
    assert full.since == 0
    assert full.checksum == checksum(full.statuses)
    assert full.read_positions == {"shop/0": 70}
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
    assert answer.statuses == (executor.statuses[1], TableStatus(7, S.ABSENT))


def test_a_span_that_is_to_be_removed_shows_stopping_to_heartbeats():
    agent, executor, owner = followed()
    replicating(agent, owner)
    executor.is_eager = False
    tick = agent.tick([owner.removes(agent), owner.says(agent, Heartbeat())])
    assert [s.state for s in response(tick).statuses] == [S.STOPPING]


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


def test_each_new_state_of_a_span_is_told_at_once_and_once():
    agent, executor, owner = followed(is_eager=False)
    told = [agent.tick([owner.adds(agent, is_secondary=True)]), agent.tick([])]
    executor.get_on(1)
    told += [agent.tick([]), agent.tick([owner.adds(agent, is_secondary=False)])]
    executor.get_on(1)
    told.append(agent.tick([]))
    executor.put(1, S.REPLICATING, checkpoint_ts=Ts(90))
    told.append(agent.tick([]))
    states = [[m.body.status.state for m in outbox] for outbox in told]
    assert states == [[S.PREPARING], [], [S.PREPARED], [], [S.REPLICATING], []]


def test_what_is_removed_says_how_far_it_came():
    agent, executor, owner = followed()
    replicating(agent, owner)
    executor.put(1, S.REPLICATING, checkpoint_ts=Ts(60), resolved_ts=Ts(0))
    (stopped,) = agent.tick([owner.removes(agent)])
    status = stopped.body.status
    assert (status.state, status.checkpoint_ts, status.resolved_ts) == (S.STOPPED, 60, 60)
    assert executor.statuses == {}


def test_an_add_whose_fence_is_not_above_the_last_one_is_refused():
    agent, executor, owner = followed()
    owner.fence = 4
    first = owner.adds(agent, is_secondary=True)
    agent.tick([first])
    late = owner.adds(agent, is_secondary=False)
    agent.tick([first, replace(late, body=replace(late.body, fence=5))])
    assert executor.statuses[1].state is S.PREPARED
    agent.tick([late])
    assert executor.statuses[1].state is S.REPLICATING
    agent.tick([owner.says(agent, RemoveTable(table_id=1, fence=5))])
    assert executor.statuses[1].state is S.REPLICATING, "it was sent before the last assignment"
    agent.tick([owner.says(agent, RemoveTable(table_id=1, fence=6))])
    assert executor.statuses == {}
    agent.tick([first, replace(late, body=replace(late.body, is_secondary=True))])
    assert executor.statuses == {}, "fences outlive their spans"


def test_a_fence_counts_as_seen_though_nothing_came_of_it():
    agent, executor, owner = followed()
    owner.fence = 6
    add = owner.adds(agent, is_secondary=True)
    agent.tick([owner.removes(agent)])
    agent.tick([add])
    assert executor.statuses == {}, "it was taken back before it came"


def test_an_order_that_cannot_be_followed_now_is_followed_when_it_comes_again():
    agent, executor, owner = followed()
    executor.refuses = True
    agent.tick([owner.adds(agent, is_secondary=True)])
    executor.refuses = False
    assert executor.statuses == {}
    agent.tick([owner.adds(agent, is_secondary=True)])
    assert executor.statuses[1].state is S.PREPARED


def test_dispatches_are_answered_in_order_with_a_sequence():
    agent, _, owner = followed()
    first = agent.tick([owner.adds(agent, is_secondary=True)])
    second = agent.tick([owner.adds(agent, is_secondary=False)])
    third = agent.tick([owner.removes(agent), owner.says(agent, Heartbeat())])
    bodies = [m.body for m in (*first, *second, *third[:1])]
    assert [b.status.state for b in bodies] == [S.PREPARED, S.REPLICATING, S.STOPPED]
    sequences = [b.sequence for b in bodies] + [third[1].body.sequence]
    assert sequences == sorted(set(sequences))
    assert third[1].body.statuses == (), "a full list does not name what is gone"


def test_answers_carry_who_is_meant_and_which_epoch():
    agent, _, owner = followed()
    (message,) = agent.tick([owner.says(agent, Heartbeat())])
    assert (message.sender, message.to, message.changefeed_id) == ("c", "owner", FEED)
    assert (message.version, message.launch) == ("1.0.0", 5)
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
