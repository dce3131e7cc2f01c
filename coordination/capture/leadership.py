"""How one capture becomes the elected one and ceases to be: it campaigns, leads, and resigns.

    campaigns ──► leads ──key gone, drained, failed──► ends its role ──► resigned
        ▲                                                                   │
        └────── after a pause, when nothing of the role runs any more ◄─────┘

Only errors that end the session too end the capture: its key is lost, or etcd went back to an older
revision. If etcd does not answer a campaign or a resignation, the capture tries again
(docs/cluster.md 20).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.capture.context import SessionContext
from coordination.capture.leader import LeaderReactor
from coordination.capture.owner.operator_jobs import OwnerJobs
from coordination.capture.owner.owner import OwnerReactor
from coordination.errors import CaptureSuicide, TidelakeError, TryAgain
from coordination.etcd.client import Compare
from coordination.etcd.election import Candidate
from coordination.jobmaster.jobs_state import JobsReactorState
from coordination.model import Ownership, Revision
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import GuardLost
from coordination.transport.transport import PeerMessage

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
CAMPAIGN_PAUSE_S: Final = 1.0  # after an owner role has ended (TiCDC: one campaign a second)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaderRole:
    """The role of the elected capture, from a won election to its end."""

    reactor: LeaderReactor
    worker: EtcdWorker[JobsReactorState]
    revision: Revision


class Leadership:
    """One thread. Once `is_stopping` is set, it resigns and campaigns no more."""

    def __init__(
        self,
        role: SessionContext,
        jobs: OwnerJobs,
        candidate: Candidate,
        guards: Callable[[], Sequence[Compare]],
    ) -> None:
        """``guards`` are the conditions that hold while the capture is registered."""
        self.is_stopping = False
        self._role = role
        self._jobs = jobs
        self._candidate = candidate
        self._guards = guards
        self._campaign_at = float("-inf")
        self._leader: _LeaderRole | None = None
        self._ending: _LeaderRole | None = None
        self._ends_by = float("inf")  # when the ending role must have ended, else the capture ends
        self._must_resign = False

    @property
    def owner(self) -> OwnerReactor | None:
        """The owner role, while this capture is the elected one; else None."""
        return self._leader.reactor.owner if self._leader is not None else None

    def post(self, messages: Sequence[PeerMessage]) -> None:
        """Take messages of agents and executors; dropped while this capture is not elected: they
        are sent again to the one that is."""
        if self._leader is not None:
            self._leader.reactor.post(messages)

    def take_outbox(self) -> list[PeerMessage]:
        return self._leader.reactor.take_outbox() if self._leader is not None else []

    @property
    def leads_since(self) -> Revision:
        """The create-revision of the election key with which it was elected; 0 if it is not."""
        return self._leader.revision if self._leader is not None else Revision(0)

    @property
    def is_held(self) -> bool:
        """Whether this capture is elected, or its owner role has not ended yet."""
        return self._leader is not None or self._ending is not None

    @property
    def has_resigned(self) -> bool:
        """Whether it is not elected, and its election key keeps no other capture waiting."""
        return not self.is_held and not self._must_resign

    @property
    def is_closed(self) -> bool:
        return self._ending is None or self._ending.reactor.is_closed

    def close(self, *, drop: bool) -> None:
        """Begin to end the owner role because the capture ends; the election key goes with the
        lease."""
        self.end(drop=drop, resigns=False)
        if self._ending is not None:
            self._ending.reactor.close(drop=drop)
        self._candidate.close()

    def campaign_or_lead(self) -> float:
        """One pass; returns in how many seconds the next one is due. Blocks only for calls to etcd.
        Raises the error that ends the capture."""
        now = self._role.capture.clock.monotonic()
        if self._leader is None:
            self._jobs.carry_out(None)
        if not self._may_campaign(now):
            return RETRY_S
        if self.is_stopping:  # leave the queue of candidates too: the next one must not wait
            self.end(drop=False, resigns=True)
            self._must_resign |= bool(self._candidate.revision)
            return RETRY_S
        wait_s = self._campaign(now)
        return wait_s if self._leader is None else min(wait_s, self._lead(self._leader))

    def _may_campaign(self, now: float) -> bool:
        """Whether the last owner role has ended and its election key is deleted; if not, goes on
        with that. Raises ``CaptureSuicide`` if the role does not end in time."""
        if self._ending is not None:
            if not self._ending.reactor.is_closed:
                if now > self._ends_by:
                    within_s = self._role.end_within_s
                    raise CaptureSuicide(f"the owner's role has not ended within {within_s:g} s")
                return False
            self._ending = None
        if self._must_resign:
            try:
                self._candidate.resign()
            except TryAgain as error:
                logger.warning(
                    "could not resign, and tries again until etcd answers capture_id=%s: %s",
                    self._role.id,
                    error,
                )
                return False
            self._must_resign = False
        return now >= self._campaign_at

    def _campaign(self, now: float) -> float:
        candidate = self._candidate
        try:
            wait_s = candidate.campaign(now)
        except TryAgain as error:
            logger.warning("the election is not known capture_id=%s: %s", self._role.id, error)
            wait_s = RETRY_S  # an owner goes on: the guards check the election at each write
        if self._leader is not None and self._leader.revision != candidate.revision:
            logger.warning("the election key is gone capture_id=%s", self._role.id)
            self.end(drop=True, resigns=False)
        elif self._leader is not None and not candidate.leads:
            logger.warning(
                "another capture leads again, with an earlier election key: etcd was restored from "
                "a backup capture_id=%s",
                self._role.id,
            )
            self.end(drop=True, resigns=False)
        elif self._leader is None and candidate.leads:
            self._leader = self._new_leader(candidate.revision)
            logger.info(
                "capture leads capture_id=%s revision=%s", self._role.id, candidate.revision
            )
        return wait_s

    def _lead(self, leader: _LeaderRole) -> float:
        try:
            wait_s = leader.worker.run_once()
        except GuardLost as error:
            if error.key != self._candidate.key:
                raise
            logger.warning("the election key is gone capture_id=%s", self._role.id)
            self.end(drop=True, resigns=False)
            self._candidate.close()  # so the next campaign asks etcd at once
        except TidelakeError:
            raise
        except Exception:
            logger.exception("the owner failed, it resigns capture_id=%s", self._role.id)
            self.end(drop=True, resigns=True)
        else:
            if leader.reactor.owner.wants_to_resign:
                logger.info("the owner is drained, it resigns capture_id=%s", self._role.id)
                self.is_stopping = True
            return wait_s
        return 0.0

    def end(self, *, drop: bool, resigns: bool) -> None:
        """Begin to end the owner role, if there is one. `drop`: write nothing more; `resigns`:
        delete the election key once the role has ended."""
        if self._leader is None:
            return
        self._ending, self._leader = self._leader, None
        self._ending.reactor.close(drop=drop)
        self._ending.worker.close()
        self._must_resign = resigns
        now = self._role.capture.clock.monotonic()
        self._campaign_at = now + CAMPAIGN_PAUSE_S
        self._ends_by = now + self._role.end_within_s
        self._jobs.carry_out(None)

    def _new_leader(self, revision: Revision) -> _LeaderRole:
        leads = Compare(self._candidate.key, "create", revision)
        ownership = Ownership(
            capture_id=self._role.id,
            epoch=self._role.epoch,
            etcd_cluster_id=self._role.etcd,
            election_revision=revision,
        )
        reactor = LeaderReactor(self._role, ownership, self._jobs, wake=lambda: worker.news())
        capture = self._role.capture
        worker = capture.new_worker(
            reactor,
            JobsReactorState(capture.cluster_id, removal_grace_s=capture.grace_s),
            lambda: (*self._guards(), leads),
            lambda: reactor.due_at,
        )
        return _LeaderRole(reactor=reactor, worker=worker, revision=revision)
