"""A capture, from one reset to the next: a session, and the roles that depend on it.

    pass: session ─► registered? ─► messages in ─► processor, executor ─► leadership ─► messages out

An end of the owner role does not end the capture; the loss of its session or of its key does, and
is raised. If etcd does not answer when the capture registers, that is tried again
(docs/cluster.md 20)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from coordination.capture.context import CaptureContext, SessionContext
from coordination.capture.leadership import Leadership
from coordination.capture.owner.operator_jobs import OwnerJobs
from coordination.capture.owner.owner import OwnerReactor
from coordination.capture.processor import ProcessorReactor
from coordination.errors import CaptureSuicide, LeaseGone, TryAgain
from coordination.etcd import keys
from coordination.etcd.client import Compare, EtcdClient, Put, get
from coordination.etcd.election import Candidate
from coordination.etcd.keys import ChangefeedName
from coordination.etcd.session import Session
from coordination.jobmaster.executor import Executor
from coordination.jobmaster.messages import WorkerMessage, WorkerReport
from coordination.metadata.records import ChangefeedInfo
from coordination.model import CaptureID, CaptureInfo, ProcessorEpoch, Revision, WorkerID
from coordination.scheduler.messages import DispatchTableResponse, HeartbeatResponse, Message
from coordination.transport.transport import PeerMessage
from coordination.trust.close_deadlines import CloseDeadline

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
_FOR_LEADER: Final = (HeartbeatResponse, DispatchTableResponse, WorkerReport)


class Capture:
    """Made by `begin`. One thread; the session has threads of its own, which shut the fence when
    the session is lost."""

    def __init__(self, role: SessionContext, jobs: OwnerJobs, session: Session) -> None:
        self.id = role.id
        self.epoch = role.epoch
        self.session = session
        self._context = context = role.capture
        self._info = role.info  # as etcd has it, unless `_is_doubted`
        self._is_doubted = False  # a put of the info had no answer: etcd may have another one
        self._key = keys.capture_key(context.cluster_id, role.id)
        self._registered = Revision(0)  # create-revision of the capture's key
        candidate = Candidate(
            context.client,
            keys.election_prefix(context.cluster_id),
            session.lease,
            role.id.encode(),
            context.woken.set,
        )
        self._leadership = Leadership(role, jobs, candidate, self._capture_guards)
        self._state = context.new_state()
        self.processor = ProcessorReactor(
            role, owns=lambda: self._leadership.is_held, wake=lambda: self._worker.news()
        )
        units = context.data_plane.units(role.trust)
        self.executor = Executor(role.id, units, context.woken.set)
        self._orders: list[WorkerMessage] = []  # for the executor, since its last tick
        self._unit_deadline: CloseDeadline[WorkerID] = CloseDeadline(role.end_within_s)
        self._worker = context.new_worker(
            self.processor, self._state, self._capture_guards, lambda: self.processor.due_at
        )

    @classmethod
    def begin(cls, context: CaptureContext, jobs: OwnerJobs) -> Capture:
        """A capture with a new ID, lease and epoch; opens the fence. Blocks for calls to etcd;
        raises ``TryAgain``."""
        etcd = _etcd_identity(context.client, context.cluster_id)
        role = SessionContext(
            capture=context,
            info=CaptureInfo(
                id=CaptureID(context.new_id()),
                address=context.address,
                version=context.version,
                start_timestamp=int(context.utc_now().timestamp()),
            ),
            epoch=ProcessorEpoch(context.new_id()),
            etcd=etcd,
        )

        def lost(reason: str) -> None:
            context.fence.shut(reason)
            context.woken.set()

        session = Session(
            context.client,
            context.session,
            context.clock,
            extended=context.fence.extend,
            lost=lost,
            overdue=context.watchdog.overdue,
            is_driven=context.is_driven,
        )
        session.start()
        context.fence.open(role.identity, session.trusted_until)
        context.fence.extend(session.trusted_until)  # in case a renewal came before it was open
        context.transport.set_self(role.id)
        return cls(role, jobs, session)

    @property
    def captures(self) -> Mapping[CaptureID, CaptureInfo]:
        """The registered captures, as this capture has last seen them in etcd. Any thread."""
        return self._state.captures

    def changefeed(self, name: ChangefeedName) -> ChangefeedInfo | None:
        """The changefeed's info, as this capture has last seen it in etcd, or None."""
        found = self._state.changefeeds.get(name)
        return found.info if found is not None else None

    @property
    def owner(self) -> OwnerReactor | None:
        """The owner role, while this capture is the elected one; else None."""
        return self._leadership.owner

    @property
    def is_reached(self) -> bool:
        """Whether an owner's message has reached this capture, so that it may have tables."""
        return self._info.is_reached

    @property
    def leads_since(self) -> Revision:
        return self._leadership.leads_since

    def run_once(self) -> float:
        """One pass; returns in how many seconds the next one is due. Blocks only for calls to etcd.
        Raises the error that ends this capture."""
        waits = [self.session.renew_when_due()]
        if not self.session.is_alive:  # it may have been lost before `begin` opened the fence
            raise CaptureSuicide(self.session.reason)
        if not self._registered and not self._register():
            return min(RETRY_S, *waits)
        self._deliver(self._context.transport.receive())
        waits.append(self._worker.run_once())
        if self._is_handing_over:  # the owner or an operator drains this capture
            self.stop()
        self._announce()
        waits.append(self._leadership.campaign_or_lead())
        outbox: list[PeerMessage] = [*self.processor.take_outbox(), *self._tick_executor()]
        outbox += self._leadership.take_outbox()
        if outbox:
            self._context.transport.send(outbox)
        return min(waits)

    @property
    def _is_handing_over(self) -> bool:
        return self._leadership.is_stopping or self.processor.is_stopping

    def stop(self) -> None:
        """Begin to hand over: resign, and give spans and workers of jobs to other captures."""
        self._leadership.is_stopping = self.processor.is_stopping = True
        self.executor.is_stopping = True

    def serve_again(self) -> bool:
        """Take a drain back: stand for election and take spans again. False if this capture was not
        being drained."""
        was_stopping = self._is_handing_over
        self._leadership.is_stopping = self.executor.is_stopping = False
        self.processor.serve_again()
        return was_stopping

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to hand over, or no other capture is there to take it."""
        if not self._registered:
            return True
        if not self._leadership.has_resigned or self._state.owned_by(self.id):
            return False
        others = (each for each in self._state.captures if each != self.id)
        is_alone = all(self._state.is_gone(each) for each in others)
        is_alone |= not self._state.candidates  # all captures are stopping: no owner moves a table
        return is_alone or (self.processor.span_count == 0 and self.executor.is_closed)

    def close(self, *, drop: bool) -> None:
        """Begin to end all roles; nothing is written to etcd any more."""
        self._leadership.close(drop=drop)
        self.processor.close(drop=drop)
        self.executor.close()
        self._worker.close()

    @property
    def is_closed(self) -> bool:
        are_closed = self.processor.is_closed and self.executor.is_closed
        return are_closed and self._leadership.is_closed

    # registration and messages

    def _register(self) -> bool:
        client = self._context.client
        absent = Compare(self._key, "create", 0)  # a late put must not overwrite a later info
        put = Put(self._key, keys.dump_capture_info(self._info), self.session.lease)
        try:
            client.txn((absent,), (put,))
            found = get(client, self._key)
        except TryAgain as error:
            logger.warning(
                "could not register, and tries again until etcd answers capture_id=%s: %s",
                self.id,
                error,
            )
            return False
        if found is None:
            raise LeaseGone("the capture's key went as soon as it was put")
        try:
            if not self._context.admit(self.id, found.create_revision):
                return False
        except TryAgain as error:
            logger.warning(
                "etcd does not answer, and is asked again until it does capture_id=%s: %s",
                self.id,
                error,
            )
            return False
        self._registered = found.create_revision
        return True

    def _announce(self) -> None:
        """Write to etcd whether this capture hands over its tables and its leadership."""
        is_draining, was_draining = self._is_handing_over, self._info.is_draining
        if is_draining == was_draining and not self._is_doubted:
            return
        info = replace(self._info, is_draining=is_draining)
        if not self._put(info) or is_draining == was_draining:
            return
        if is_draining:
            logger.info(
                "this capture hands over: it leads no more and takes no tables capture_id=%s",
                self.id,
            )
        else:
            logger.info("this capture serves again capture_id=%s", self.id)

    def _put(self, info: CaptureInfo) -> bool:
        """Put the info; returns whether etcd has it. A put without an answer may still take effect,
        but not on top of a later put: so the info is put again until etcd has answered
        (`_is_doubted`)."""
        client = self._context.client
        put = Put(self._key, keys.dump_capture_info(info), self.session.lease)
        try:
            found = get(client, self._key)
            if found is None:
                return False  # the EtcdWorker raises that the key is gone
            unchanged = Compare(self._key, "mod", found.mod_revision)
            is_put = client.txn((*self._capture_guards(), unchanged), (put,)).succeeded
        except TryAgain as error:
            logger.warning(
                "could not say so, and tries again until etcd answers capture_id=%s: %s",
                self.id,
                error,
            )
            self._is_doubted = True
            return False
        if is_put:
            self._info, self._is_doubted = info, False
        return is_put

    def _deliver(self, messages: list[PeerMessage]) -> None:
        """Pass messages on to agents, executor and leader. Agents get none before etcd has that
        this capture was reached: a new owner waits only for the answers of captures that were
        reached, since no other one can have tables."""
        for_leader = [each for each in messages if isinstance(each.body, _FOR_LEADER)]
        others = [each for each in messages if not isinstance(each.body, _FOR_LEADER)]
        for_agents = [each for each in others if isinstance(each, Message)]
        self._orders += [each for each in others if isinstance(each, WorkerMessage)]
        if for_agents and not self._info.is_reached:
            self._put(replace(self._info, is_reached=True))
        if self._info.is_reached:
            self.processor.post(for_agents)
        self._leadership.post(for_leader)

    def _tick_executor(self) -> list[WorkerMessage]:
        """Raises ``CaptureSuicide`` if a unit that was told to stop does not end in time."""
        orders, self._orders = self._orders, []
        outbox = self.executor.tick(orders)
        self._unit_deadline.check(self.executor.closing, self._context.clock.monotonic())
        return outbox

    def _capture_guards(self) -> tuple[Compare, ...]:
        return (Compare(self._key, "create", self._registered),)


def _etcd_identity(client: EtcdClient, cluster_id: str) -> str:
    """`<cluster ID of etcd>/<UUID that was put into it when it was empty>`, for the scope of a
    `run` with `/run-<changefeed>`. Revisions may be compared only if this is equal. Raises
    ``TryAgain``."""
    key = keys.incarnation_key(cluster_id)
    absent = Compare(key, "create", 0)
    client.txn((absent,), (Put(key, str(uuid.uuid4()).encode()),))
    mark = get(client, key)
    if mark is None:
        raise TryAgain("the mark that was put into etcd is gone again")
    scope = keys.cluster_of(cluster_id)[1]
    return f"{client.cluster_id()}/{mark.value.decode()}" + (f"/{scope}" if scope else "")
