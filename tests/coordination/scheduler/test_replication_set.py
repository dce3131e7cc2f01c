"""Every row of the set's table, all orders of what can come in, and never two writers."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations, product

import pytest

from coordination.model import CaptureID, Ts
from coordination.scheduler.replication_set import (
    AddOrder,
    MultiplePrimaries,
    RemoveOrder,
    ReplicationSet,
    ReplicationState,
)
from coordination.scheduler.table_status import TableState, TableStatus
from tests.coordination.scheduler.cluster import span
from tests.coordination.scheduler.invariants import check_invariants

S, R = TableState, ReplicationState
A, B, C = CaptureID("a"), CaptureID("b"), CaptureID("c")
STATES = [S.ABSENT, S.PREPARING, S.PREPARED, S.REPLICATING, S.STOPPING, S.STOPPED]
PREPARE_A, PREPARE_B = AddOrder(A, is_secondary=True), AddOrder(B, is_secondary=True)
COMMIT_A, COMMIT_B = AddOrder(A, is_secondary=False), AddOrder(B, is_secondary=False)
REMOVE_A, REMOVE_B, REMOVE_C = RemoveOrder(A), RemoveOrder(B), RemoveOrder(C)


def status(state: TableState, ts: int = 0) -> TableStatus:
    return TableStatus(1, state, Ts(ts), Ts(ts))


def made(
    state: ReplicationState,
    primary: CaptureID | None = None,
    secondary: CaptureID | None = None,
    *undetermined: CaptureID,
) -> ReplicationSet:
    one = ReplicationSet(span(1), Ts(100))
    one.state, one.primary, one.secondary, one.undetermined = (
        state, primary, secondary, undetermined,
    )  # fmt: skip
    check_invariants(one)
    return one


def shape(one: ReplicationSet) -> tuple:
    check_invariants(one)
    return one.state, one.primary, one.secondary, one.undetermined


def built(**states: TableState) -> ReplicationSet:
    reported = {CaptureID(name): status(state) for name, state in states.items()}
    return ReplicationSet.build(span(1), Ts(100), reported)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({}, (R.ABSENT, None, None, ())),
        ({"a": S.ABSENT, "b": S.STOPPED}, (R.ABSENT, None, None, ())),
        ({"a": S.REPLICATING}, (R.REPLICATING, A, None, ())),
        ({"a": S.PREPARING}, (R.PREPARE, None, A, ())),
        ({"a": S.PREPARED}, (R.COMMIT, None, A, ())),
        ({"a": S.STOPPING}, (R.REMOVING, None, None, (A,))),
        ({"a": S.REPLICATING, "b": S.PREPARING}, (R.PREPARE, A, B, ())),
        ({"a": S.REPLICATING, "b": S.PREPARED}, (R.COMMIT, A, B, ())),
        ({"a": S.STOPPING, "b": S.PREPARED}, (R.COMMIT, None, B, (A,))),
        ({"a": S.STOPPING, "b": S.PREPARING}, (R.PREPARE, None, B, (A,))),
        ({"a": S.STOPPING, "b": S.REPLICATING}, (R.REPLICATING, B, None, (A,))),
        ({"a": S.PREPARING, "b": S.PREPARED}, (R.COMMIT, None, B, (A,))),
        ({"a": S.PREPARED, "b": S.PREPARED}, (R.COMMIT, None, A, (B,))),
    ],
)
def test_a_set_is_built_from_what_agents_report(reported, expected):
    assert shape(built(**reported)) == expected


def test_two_primaries_in_reports_are_an_error():
    with pytest.raises(MultiplePrimaries, match=r"a and b both replicate table shop\.t1"):
        built(a=S.REPLICATING, b=S.REPLICATING)


def test_a_built_set_starts_from_the_furthest_checkpoint():
    reported = {A: status(S.REPLICATING, 300), B: status(S.PREPARED, 200)}
    one = ReplicationSet.build(span(1), Ts(100), reported)
    assert one.checkpoint == (300, 300)


# set, who reports what -> orders, set afterwards
ROWS = [
    ((R.PREPARE, None, A), A, S.ABSENT, [PREPARE_A], (R.PREPARE, None, A)),
    ((R.PREPARE, None, A), A, S.PREPARING, [], (R.PREPARE, None, A)),
    ((R.PREPARE, None, A), A, S.PREPARED, [COMMIT_A], (R.COMMIT, A, None)),
    ((R.PREPARE, None, A), A, S.STOPPING, [], (R.ABSENT, None, None)),
    ((R.PREPARE, None, A), A, S.STOPPED, [], (R.ABSENT, None, None)),
    ((R.PREPARE, B, A), A, S.PREPARED, [REMOVE_B], (R.COMMIT, B, A)),
    ((R.PREPARE, B, A), A, S.STOPPED, [], (R.REPLICATING, B, None)),
    ((R.PREPARE, B, A), B, S.REPLICATING, [], (R.PREPARE, B, A)),
    ((R.PREPARE, B, A), B, S.STOPPING, [], (R.PREPARE, None, A, B)),
    ((R.PREPARE, B, A), B, S.STOPPED, [], (R.PREPARE, None, A)),
    ((R.PREPARE, B, A), B, S.ABSENT, [], (R.PREPARE, None, A)),
    ((R.PREPARE, None, A, B), A, S.PREPARED, [], (R.COMMIT, None, A, B)),
    ((R.COMMIT, B, A), A, S.PREPARED, [REMOVE_B], (R.COMMIT, B, A)),
    ((R.COMMIT, None, A, B), A, S.PREPARED, [], (R.COMMIT, None, A, B)),
    ((R.COMMIT, None, A), A, S.PREPARED, [COMMIT_A], (R.COMMIT, A, None)),
    ((R.COMMIT, A, None), A, S.PREPARED, [COMMIT_A], (R.COMMIT, A, None)),
    ((R.COMMIT, B, A), B, S.STOPPED, [COMMIT_A], (R.COMMIT, A, None)),
    ((R.COMMIT, B, A), B, S.ABSENT, [COMMIT_A], (R.COMMIT, A, None)),
    ((R.COMMIT, B, A, C), B, S.STOPPED, [], (R.COMMIT, None, A, C)),
    ((R.COMMIT, B, None), B, S.STOPPED, [], (R.ABSENT, None, None)),
    ((R.COMMIT, B, None), B, S.ABSENT, [], (R.ABSENT, None, None)),
    ((R.COMMIT, B, A), B, S.STOPPING, [], (R.COMMIT, B, A)),
    ((R.COMMIT, B, A), A, S.STOPPED, [], (R.COMMIT, B, None)),
    ((R.COMMIT, B, A), A, S.ABSENT, [], (R.COMMIT, B, None)),
    ((R.COMMIT, None, A, B), A, S.STOPPED, [], (R.ABSENT, None, None, B)),
    ((R.COMMIT, None, A, B), B, S.STOPPED, [], (R.COMMIT, None, A)),
    ((R.COMMIT, None, A, B), B, S.ABSENT, [], (R.COMMIT, None, A)),
    ((R.COMMIT, None, A, B), B, S.REPLICATING, [REMOVE_B], (R.COMMIT, None, A, B)),
    ((R.COMMIT, B, A), B, S.REPLICATING, [REMOVE_B], (R.COMMIT, B, A)),
    ((R.COMMIT, B, None), B, S.REPLICATING, [], (R.REPLICATING, B, None)),
    ((R.COMMIT, None, A), A, S.REPLICATING, [], (R.REPLICATING, A, None)),
    ((R.REPLICATING, A, None), A, S.REPLICATING, [], (R.REPLICATING, A, None)),
    ((R.REPLICATING, A, None), A, S.STOPPED, [], (R.ABSENT, None, None)),
    ((R.REPLICATING, A, None), A, S.ABSENT, [], (R.ABSENT, None, None)),
    ((R.REPLICATING, A, None), A, S.STOPPING, [], (R.REPLICATING, A, None)),
    ((R.REPLICATING, A, None), A, S.PREPARING, [], (R.REPLICATING, A, None)),
    ((R.REPLICATING, A, None), A, S.PREPARED, [], (R.REPLICATING, A, None)),
    ((R.REMOVING, A, None), A, S.PREPARING, [REMOVE_A], (R.REMOVING, A, None)),
    ((R.REMOVING, A, None), A, S.PREPARED, [REMOVE_A], (R.REMOVING, A, None)),
    ((R.REMOVING, A, None), A, S.REPLICATING, [REMOVE_A], (R.REMOVING, A, None)),
    ((R.REMOVING, A, None), A, S.STOPPING, [], (R.REMOVING, A, None)),
    ((R.REMOVING, A, None), A, S.STOPPED, [], (R.REMOVING, None, None)),
    ((R.REMOVING, A, None), A, S.ABSENT, [], (R.REMOVING, None, None)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r[0][0].name}-{r[1]}-{r[2].name}")
def test_a_row(row):
    before, capture, state, orders, after = row
    one = made(*before)
    assert one.poll(status(state), capture) == orders
    assert shape(one) == shape(made(*after))


@pytest.mark.parametrize(
    "before",
    [(R.PREPARE, B, A), (R.PREPARE, None, A), (R.COMMIT, B, A), (R.COMMIT, None, A, B)],
)
def test_a_secondary_that_replicates_beside_another_is_an_error(before):
    with pytest.raises(MultiplePrimaries):
        made(*before).poll(status(S.REPLICATING), A)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "before",
    [(R.ABSENT,), (R.PREPARE, A, B), (R.COMMIT, A, B), (R.REPLICATING, A), (R.REMOVING, A)],
)
def test_an_unknown_capture_is_sent_away_and_waited_for(before, state):
    one = made(*before)
    is_live = state in (S.PREPARING, S.PREPARED, S.REPLICATING)
    assert one.poll(status(state), C) == ([REMOVE_C] if is_live else [])
    is_here = is_live or state is S.STOPPING
    assert shape(one) == shape(made(*(*before, None, None)[:3], *((C,) if is_here else ())))
    one.poll(status(S.STOPPED), C)
    assert shape(one) == shape(made(*before))


def test_adding_a_table():
    one = made(R.ABSENT)
    assert one.handle_assign(A) == [PREPARE_A]
    assert one.handle_assign(B) == []
    assert one.poll(status(S.PREPARING), A) == []
    assert one.poll(status(S.PREPARED), A) == [COMMIT_A]
    assert one.poll(status(S.PREPARED), A) == [COMMIT_A], "sent again until it is followed"
    assert one.poll(status(S.REPLICATING, 120), A) == []
    assert shape(one) == (R.REPLICATING, A, None, ())
    assert one.checkpoint == (120, 120)


def test_a_table_is_not_added_where_it_has_yet_to_be_stopped():
    one = made(R.ABSENT, None, None, A)
    assert one.handle_assign(A) == []
    assert one.handle_assign(B) == [PREPARE_B]
    assert one.poll(status(S.PREPARED), B) == [], "A may still write"
    assert one.poll(status(S.ABSENT), A) == []
    assert one.poll(status(S.PREPARED), B) == [COMMIT_B]


def test_removing_a_table():
    one = made(R.REPLICATING, A)
    assert one.handle_remove() == [REMOVE_A]
    assert one.handle_remove() == []
    assert one.poll(status(S.REPLICATING), A) == [REMOVE_A]
    assert not one.has_removed
    assert one.poll(status(S.STOPPED, 130), A) == []
    assert one.has_removed
    assert one.checkpoint_ts == 130


@pytest.mark.parametrize("state", [R.PREPARE, R.COMMIT])
def test_removing_a_table_whatever_is_under_way(state: ReplicationState):
    """Its capture may never get it prepared: the table is gone."""
    one = made(state, B, A)
    assert one.handle_remove() == [REMOVE_B, REMOVE_A]
    assert one.poll(status(S.PREPARING), A) == [REMOVE_A]
    assert one.poll(status(S.STOPPED), A) == []
    assert not one.has_removed
    assert one.poll(status(S.STOPPED), B) == []
    assert one.has_removed


def test_moving_a_table():
    one = made(R.REPLICATING, A)
    assert one.handle_assign(A) == [], "there it is"
    assert one.handle_assign(B) == [PREPARE_B]
    assert one.handle_assign(C) == [], "it is moving"
    assert one.poll(status(S.REPLICATING, 110), A) == []
    assert one.poll(status(S.PREPARED), B) == [REMOVE_A]
    assert one.poll(status(S.PREPARED), B) == [REMOVE_A]
    assert one.poll(status(S.STOPPING, 115), A) == []
    assert one.poll(status(S.STOPPED, 120), A) == [COMMIT_B]
    assert one.checkpoint == (120, 120), "B goes on from where A stopped"
    assert one.poll(status(S.REPLICATING, 125), B) == []
    assert shape(one) == (R.REPLICATING, B, None, ())


def test_moving_goes_on_under_a_new_owner_at_any_point():
    """Commit restarts (TiCDC's test of that name): what both report is all that the new owner
    has."""
    for a, b in [(S.REPLICATING, S.PREPARED), (S.STOPPING, S.PREPARED), (S.STOPPED, S.PREPARED)]:
        one = built(a=a, b=b)
        for state in [s for s in (S.REPLICATING, S.STOPPING) if s >= a]:
            assert COMMIT_B not in one.poll(status(state), A)
            assert COMMIT_B not in one.poll(status(S.PREPARED), B)
        orders = one.poll(status(S.STOPPED), A) + one.poll(status(S.PREPARED), B)
        assert COMMIT_B in orders
        one.poll(status(S.REPLICATING), B)
        assert shape(one) == (R.REPLICATING, B, None, ())


def test_removing_goes_on_under_a_new_owner():
    one = built(a=S.STOPPING)
    assert one.poll(status(S.STOPPING), A) == []
    one.poll(status(S.STOPPED), A)
    assert one.has_removed


def test_a_primary_that_stops_unasked_during_prepare_is_waited_for():
    """tiflow #6538: TiCDC forgets it at Stopping, and promotes beside it."""
    one = made(R.PREPARE, A, B)
    assert one.poll(status(S.STOPPING), A) == []
    assert one.poll(status(S.PREPARED), B) == []
    assert one.poll(status(S.STOPPING), A) == []
    assert one.poll(status(S.PREPARED), B) == []
    assert one.poll(status(S.STOPPED), A) == []
    assert one.poll(status(S.PREPARED), B) == [COMMIT_B]


@pytest.mark.parametrize(
    ("before", "gone", "orders", "after"),
    [
        ((R.ABSENT,), A, [], (R.ABSENT,)),
        ((R.PREPARE, None, A), A, [], (R.ABSENT,)),
        ((R.PREPARE, A, B), A, [], (R.PREPARE, None, B)),
        ((R.PREPARE, A, B), B, [], (R.REPLICATING, A)),
        ((R.PREPARE, A, B), C, [], (R.PREPARE, A, B)),
        ((R.COMMIT, A, B), A, [COMMIT_B], (R.COMMIT, B)),
        ((R.COMMIT, A, B), B, [], (R.COMMIT, A)),
        ((R.COMMIT, B), B, [], (R.ABSENT,)),
        ((R.COMMIT, None, B, A), A, [], (R.COMMIT, None, B)),
        ((R.COMMIT, A, B, C), A, [], (R.COMMIT, None, B, C)),
        ((R.REPLICATING, A), A, [], (R.ABSENT,)),
        ((R.REMOVING, A), A, [], (R.REMOVING,)),
    ],
)
def test_a_capture_shuts_down(before, gone, orders, after):
    one = made(*before)
    assert one.handle_capture_shutdown(gone) == orders
    assert shape(one) == shape(made(*after))


def test_a_capture_shuts_down_after_commit_was_reconstructed():
    one = built(a=S.REPLICATING, b=S.PREPARED)
    assert one.handle_capture_shutdown(B) == []
    assert one.poll(status(S.REPLICATING), A) == []
    assert shape(one) == (R.REPLICATING, A, None, ())


def test_numbers_never_fall():
    one = made(R.REPLICATING, A)
    one.poll(TableStatus(1, S.REPLICATING, Ts(200), Ts(300)), A)
    one.poll(TableStatus(1, S.REPLICATING, Ts(150), Ts(250)), A)
    assert one.checkpoint == (200, 300)


# A model of three agents: who may write is known exactly, whatever the set believes.
WRITES = {S.REPLICATING, S.STOPPING}


def test_all_orders_of_reports_in_all_sets_keep_the_invariants():
    befores = [
        (R.ABSENT,), (R.PREPARE, None, A), (R.PREPARE, A, B), (R.PREPARE, A, B, C), (R.COMMIT, A),
        (R.COMMIT, None, A), (R.COMMIT, A, B), (R.COMMIT, None, A, B), (R.COMMIT, A, B, C),
        (R.REPLICATING, A), (R.REPLICATING, A, None, B), (R.REMOVING, A), (R.REMOVING, A, B, C),
    ]  # fmt: skip
    reports = list(product((A, B, C), STATES))
    for before, trio in product(befores, combinations_with_replacement(reports, 3)):
        for order in set(permutations(trio)):
            one = made(*before)
            for capture, state in order:
                was = shape(one)
                try:
                    orders = one.poll(status(state), capture)
                except MultiplePrimaries:
                    break
                check_invariants(one)
                _check_promotion(was, capture, state, orders)


def _check_promotion(was: tuple, capture: CaptureID, state: TableState, orders: list) -> None:
    """A commit goes out only when whoever else is known has stopped."""
    commits = [o for o in orders if isinstance(o, AddOrder) and not o.is_secondary]
    assert len(commits) <= 1
    if commits:
        _, primary, _, undetermined = was
        others = {primary, *undetermined} - {None, commits[0].capture_id}
        stopped = {capture} if state in (S.STOPPED, S.ABSENT) else set()
        assert others <= stopped, f"{was}: promoted beside {others - stopped}"
