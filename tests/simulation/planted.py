"""Bugs with a name, planted into the program: each must be found, or the simulation is blind.

The first five are slips of TiCDC or near to them; all are one line of the real program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import PropertyMock, patch

from coordination import deadline
from coordination.model import Ts
from coordination.orchestrator.global_state import GlobalReactorState
from coordination.orchestrator.snapshot import Snapshot
from coordination.owner.term import Term
from coordination.scheduler.agent import Agent, AgentInfo
from coordination.scheduler.barrier import Barrier, compute_barrier
from coordination.scheduler.coordinator import Coordinator
from coordination.scheduler.messages import AddTable, TableState
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import (
    ROWS,
    AddOrder,
    CaptureRole,
    ReplicationSet,
    ReplicationState,
)
from coordination.scheduler.table_span import TableSpan, TableSpans
from tests.fakes.fake_data_plane import FakeReplica

Plant = Callable[[ExitStack], None]


def no_op_epoch_reset(stack: ExitStack) -> None:
    """TiCDC's `resetEpoch` has a value receiver: the epoch never changes."""
    stack.enter_context(patch.object(AgentInfo, "reset_epoch", lambda info, _epoch: info))


def early_promotion(stack: ExitStack) -> None:
    """A secondary is told to write before the primary has stopped (tiflow 6538)."""

    def promote(made: ReplicationSet, orders: list[Any]) -> None:
        if made.secondary is not None:
            made.primary, made.secondary = made.secondary, None
            made.status = None
            orders.append(AddOrder(made.primary, is_secondary=False))

    def hand_over(made: ReplicationSet, _: Any, __: Any, orders: list[Any]) -> bool:
        made._promote(orders)
        return False

    rows = (ReplicationState.COMMIT, CaptureRole.SECONDARY)
    stack.enter_context(patch.object(ReplicationSet, "_promote", promote))
    stack.enter_context(_row(rows, TableState.PREPARED, hand_over))


def no_own_write_barrier(stack: ExitStack) -> None:
    """A reactor ticks before its own last write has come back."""
    stack.enter_context(patch.object(Snapshot, "caught_up", PropertyMock(return_value=True)))


def missing_barrier_is_no_limit(stack: ExitStack) -> None:
    """A heartbeat without a barrier lifts it."""
    heed = Agent._heed

    def careless(agent: Agent, heartbeat: Any) -> None:
        heed(agent, heartbeat)
        if heartbeat.barrier is None:
            agent._barrier = Barrier(Ts(2**62))

    stack.enter_context(patch.object(Agent, "_heed", careless))


def late_duplicate_add_table(stack: ExitStack) -> None:
    """A dispatch is followed whatever its fence, and without what it goes on from."""

    def accept(spans: TableSpans, request: Any) -> bool:
        is_add = isinstance(request, AddTable)
        table_id = request.span.table_id if is_add else request.table_id
        span = spans._spans.get(table_id)
        if span is None and is_add:
            span = spans._spans[table_id] = TableSpan(request.span)
        if span is None or not span.inject(request):
            return False
        spans._busy[table_id] = span
        return True

    stack.enter_context(patch.object(TableSpans, "accept", accept))


def no_removal_grace(stack: ExitStack) -> None:
    """What a dead capture had is given away at once."""

    def at_once(gone_seen_at: float, _grace_s: float, now: float) -> bool:
        return now >= gone_seen_at

    stack.enter_context(patch.object(deadline, "is_given_away", at_once))


def stale_owner_accepted(stack: ExitStack) -> None:
    """An agent follows whoever says that it is the owner."""
    accept = Agent._accept_owner

    def anybody(agent: Agent, owner_id: Any, revision: Any, version: Any) -> bool:
        return revision < agent.owner.revision or accept(agent, owner_id, revision, version)

    stack.enter_context(patch.object(Agent, "_accept_owner", anybody))


def unregistered_tables_ignored(stack: ExitStack) -> None:
    """The checkpoint passes tables that nobody has registered."""
    stack.enter_context(patch.object(Coordinator, "_scan_limit_ts", lambda _self: None))


def fence_unchecked(stack: ExitStack) -> None:
    """A commit is sent without a look at the trust in the session."""
    stack.enter_context(patch.object(FakeReplica, "_may_write", lambda _self: True))


def two_primaries_on_reconstruction(stack: ExitStack) -> None:
    """A new owner overlooks the primary of a span that is being moved."""
    build = ReplicationSet.build.__func__  # type: ignore[attr-defined]

    def careless(kind: Any, span: Any, checkpoint_ts: Any, statuses: Mapping[Any, Any]) -> Any:
        made = build(kind, span, checkpoint_ts, statuses)
        if made.state is ReplicationState.COMMIT:
            made.primary = None
        return made

    stack.enter_context(patch.object(ReplicationSet, "build", classmethod(careless)))


def unseen_dead_forgotten(stack: ExitStack) -> None:
    """A new owner gives away at once what no living capture has."""
    known = patch.object(GlobalReactorState, "knows_the_dead", lambda _self, _now: True)
    stack.enter_context(known)


def ddl_scan_is_no_limit(stack: ExitStack) -> None:
    """The barrier lets spans pass where nobody has looked for DDLs."""

    def barrier(term: Term, coordinator: Any, scan: Any) -> Barrier:
        return compute_barrier(
            checkpoint_ts=coordinator.checkpoint.checkpoint_ts,
            ddl_scan_ts=Ts(2**62),
            pending_ddls=scan.pending,
            next_sync_point_ts=term._sync_point_ts,
        )

    stack.enter_context(patch.object(Term, "_barrier", barrier))


def stopped_span_forgets_its_version(stack: ExitStack) -> None:
    """A span that stops tells its checkpoint, not the Delta version there, and a snapshot goes by
    checkpoints."""
    response = TableSpan._response

    def bare(span: TableSpan, *arguments: Any) -> Any:
        answer = response(span, *arguments)
        return replace(answer, status=answer.status._replace(delta_version=None))

    stack.enter_context(patch.object(TableSpan, "_response", bare))
    stack.enter_context(patch.object(ReplicationManager, "is_told", lambda _self, _ts: True))


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        no_op_epoch_reset,
        early_promotion,
        no_own_write_barrier,
        missing_barrier_is_no_limit,
        late_duplicate_add_table,
        no_removal_grace,
        stale_owner_accepted,
        unregistered_tables_ignored,
        fence_unchecked,
        two_primaries_on_reconstruction,
        unseen_dead_forgotten,
        ddl_scan_is_no_limit,
        stopped_span_forgets_its_version,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        PLANTED[name](stack)
        yield


def _row(key: Any, state: TableState, action: Any) -> Any:

    return patch.dict(ROWS[key], {state: action})  # type: ignore[arg-type]
