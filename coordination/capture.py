"""A capture: one process's part in a changefeed, from one reset to the next.

    run ─► reset ──► register ──► campaign ──won──► lead ──finished, or asked to stop──► run returns
            ▲  new ID, lease,        │               │ └───any other error──► run raises it
            │  epoch                 │               │
            └─────── suicide ◄───────┴───────────────┘
               session lost, fenced, term refused: fence shut, replication dropped, lease revoked

Whoever calls `run` is the coordination thread: it owns all of this, and takes one message after the
other from one inbox. Session, watch and replication threads post into it and do nothing else, but
for one thing: a lost session shuts the fence from its own thread, at once.
The replication is stopped *before* the lease is revoked: a successor finds nothing of it running.
In etcd it has a scope of its own (`run-<changefeed>`): a cluster's owner waits for every capture
that is registered with it, and this one has nothing to answer.
An etcd outage shorter than the trust in the session changes nothing; a longer one ends a life, and
the next one begins when etcd answers again.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from conf.settings import EtcdSettings, SessionSettings
from coordination.clock import Clock
from coordination.errors import CaptureSuicide, Fenced, Stop, TidelakeError, TryAgain
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.election import Election
from coordination.etcd.identity import etcd_identity
from coordination.etcd.session import Session
from coordination.fence import Fence
from coordination.model import (
    CaptureID,
    CaptureInfo,
    ChangefeedID,
    LeaseID,
    Ownership,
    ProcessorEpoch,
)
from coordination.reset_limit import ResetLimit
from coordination.version import tidelake_version

logger = logging.getLogger(__name__)

RETRY_MIN_S: Final = 0.25
RETRY_MAX_S: Final = 2.0  # how late the end of an outage is noticed

T = TypeVar("T")


class Replication(Protocol):
    """What a capture runs while it is the owner: implemented by `streaming`."""

    def start(self, ownership: Ownership, ended: Callable[[BaseException | None], None]) -> None:
        """Claim the term in Delta and start the stream in the background.

        `ended` is called once, from any thread: None = finished (target-ts), else the error.
        """
        ...

    def stop(self, *, drop: bool) -> None:
        """Block until nothing of it runs; idempotent, also when `start` raised.

        drop=True: trust is lost, cancel now; False: finish or drop the batch (20 s at most).
        """
        ...


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants `run` to return."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    epoch: ProcessorEpoch
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicationEnded:
    epoch: ProcessorEpoch
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class KeyMoved:
    """A watched election key changed: look again."""

    epoch: ProcessorEpoch


Message = StopRequested | SessionLost | ReplicationEnded | KeyMoved


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a reset makes anew."""

    info: CaptureInfo
    epoch: ProcessorEpoch
    session: Session
    election: Election


class Capture:
    """See the module's picture. `run` may be called once."""

    def __init__(
        self,
        *,
        client: EtcdClient,
        etcd: EtcdSettings,
        session: SessionSettings,
        changefeed_id: str,
        replication: Replication,
        fence: Fence,
        clock: Clock,
        address: str,
        warehouse: str = "",
        reset_limit: ResetLimit | None = None,
        admitted: Callable[[], None] = lambda: None,
        on_reset: Callable[[CaptureID, ProcessorEpoch], None] = lambda _id, _epoch: None,
        on_standby: Callable[[], None] = lambda: None,
    ) -> None:
        """`warehouse` is registered with it. `admitted` raises what forbids this capture to run,
        and is asked once registered, in each life; `on_reset` is told who this capture now is, for
        log lines; `on_standby` is called, and returns at once, when another one is the owner."""
        self._client = client
        self._cluster_id = etcd.cluster_id
        self._settings = session
        self._changefeed_id = ChangefeedID(changefeed_id)
        self._scope = keys.run_scope(self._changefeed_id)
        self._replication = replication
        self._fence = fence
        self._clock = clock
        self._address = address
        self._warehouse = warehouse
        self._admitted = admitted
        self._reset_limit = reset_limit or ResetLimit()
        self._on_reset = on_reset
        self._on_standby = on_standby
        self._unrevoked: list[LeaseID] = []  # of lives that ended while etcd was away
        self._stands_by = False
        # SimpleQueue and not Queue: a signal handler may put while the same thread is inside get
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def request_stop(self) -> None:
        """Make `run` return soon, also before it began. Any thread, signal handlers too."""
        self._inbox.put(StopRequested())

    def run(self) -> None:
        """Block until the replication has finished or a stop was asked for; raise its error."""
        lives = 0
        try:
            while True:
                self._pause(None, self._reset_limit.take(self._clock.monotonic()))
                lives += 1
                if self._live(is_back=lives > 1):
                    return
        except Stop:
            logger.info("capture stopped as asked changefeed_id=%s", self._changefeed_id)

    def _live(self, *, is_back: bool) -> bool:
        """One life, from reset to release; False if it ended by suicide."""
        life = self._retry(None, "reset", self._reset)
        event = "capture is back as a new one" if is_back else "capture starts"
        self._log(event, life)
        try:
            self._retry(life, "register", lambda: self._register(life))
            self._lead(life, self._campaign(life))
        except (CaptureSuicide, Fenced) as error:
            logger.warning(
                "capture dies by suicide capture_id=%s epoch=%s changefeed_id=%s: %s",
                life.info.id,
                life.epoch,
                self._changefeed_id,
                error,
            )
            return False
        else:
            return True
        finally:
            self._release(life)

    def _reset(self) -> Life:
        capture_id, epoch = CaptureID(str(uuid.uuid4())), ProcessorEpoch(str(uuid.uuid4()))
        session = Session.open(
            self._client,
            self._settings,
            self._clock,
            extended=self._fence.extend,
            lost=lambda reason: self._session_lost(epoch, reason),
        )
        prefix = keys.owner_prefix(self._cluster_id, self._changefeed_id)
        self._on_reset(capture_id, epoch)
        return Life(
            info=CaptureInfo(
                id=capture_id,
                address=self._address,
                version=tidelake_version(),
                start_timestamp=int(time.time()),
            ),
            epoch=epoch,
            session=session,
            election=Election(
                self._client, prefix, session.lease, lambda: self._inbox.put(KeyMoved(epoch))
            ),
        )

    def _session_lost(self, epoch: ProcessorEpoch, reason: str) -> None:
        self._fence.shut(reason)
        self._inbox.put(SessionLost(epoch, reason))

    def _register(self, life: Life) -> None:
        while self._unrevoked:  # else this life stands in line behind its own last one
            self._client.revoke(self._unrevoked[-1])
            self._unrevoked.pop()
        key = keys.run_capture_key(self._cluster_id, self._changefeed_id, life.info.id)
        info = keys.dump_capture_info(life.info, warehouse=self._warehouse)
        self._client.put(key, info, life.session.lease)
        self._admitted()

    def _campaign(self, life: Life) -> Ownership:
        """Block until this capture is the owner."""

        self._stands_by = False

        def won() -> Ownership:
            revision = life.election.campaign(
                life.info.id.encode(), lambda timeout_s: self._stand_by(life, timeout_s)
            )
            return Ownership(
                capture_id=life.info.id,
                epoch=life.epoch,
                etcd_cluster_id=f"{etcd_identity(self._client, self._cluster_id)}/{self._scope}",
                owner_revision=revision,
            )

        self._log("capture campaigns", life)
        ownership = self._retry(life, "campaign", won)
        self._log("capture won the election", life)
        return ownership

    def _lead(self, life: Life, ownership: Ownership) -> None:
        drop = True
        try:
            self._open_fence(life, ownership)
            self._replication.start(
                ownership, lambda error: self._inbox.put(ReplicationEnded(life.epoch, error))
            )
            self._watch_over(life)
            drop = False
        except Stop:
            drop = False
            raise
        except (CaptureSuicide, Fenced) as error:
            self._fence.shut(str(error))
            raise
        finally:
            if drop:
                self._fence.shut("the replication failed")
            try:
                self._replication.stop(drop=drop)
            finally:
                self._fence.shut("this capture has stopped")

    def _open_fence(self, life: Life, ownership: Ownership) -> None:
        self._fence.open(ownership, life.session.trusted_until)
        self._fence.extend(life.session.trusted_until)  # a renewal just before found it shut
        if not life.session.is_alive:  # lost just before: its shutting came too early
            raise CaptureSuicide(life.session.reason)

    def _watch_over(self, life: Life) -> None:
        """Return when the replication has finished; raise when it or this life has ended."""
        cancel_watch = life.election.watch_own_key()
        try:
            while True:
                message = self._take(life, self._settings.ttl_s / 3)
                if not isinstance(message, ReplicationEnded):
                    self._assure_leading(life)
                elif message.error is None:
                    self._log("replication finished", life)
                    return
                else:
                    raise message.error
        finally:
            cancel_watch()

    def _assure_leading(self, life: Life) -> None:
        try:
            if life.election.leads():
                return
            life.session.verify()
        except TryAgain:
            return  # not reached: the session's clock decides
        raise CaptureSuicide(life.session.reason or "the election key was deleted")

    def _release(self, life: Life) -> None:
        """Hand over at once: the next one in the queue does not wait for the TTL."""
        try:
            if life.session.is_alive:
                life.election.resign()
        except TidelakeError as error:
            logger.warning("could not resign capture_id=%s: %s", life.info.id, error)
        if not life.session.close():  # the capture's own key goes with the lease
            self._unrevoked.append(life.session.lease)
        self._log("capture is released", life)

    def _retry(self, life: Life | None, what: str, action: Callable[[], T]) -> T:
        """Until etcd answers; ends when this life does, or when asked to stop."""
        for delay_s in _delays():
            try:
                return action()
            except TryAgain as error:
                if delay_s == RETRY_MIN_S:
                    logger.warning("etcd does not answer, trying again what=%s: %s", what, error)
                self._pause(life, delay_s)
        raise AssertionError("unreachable")

    def _pause(self, life: Life | None, pause_s: float) -> None:
        deadline = self._clock.monotonic() + pause_s
        while True:
            self._take(life, deadline - self._clock.monotonic())
            if self._clock.monotonic() >= deadline:
                return

    def _stand_by(self, life: Life, timeout_s: float) -> None:
        if not self._stands_by:  # at once, and once
            self._stands_by = True
            logger.warning(
                "stands by: another capture is the owner of changefeed %s; this one goes on with "
                "it as soon as that one ends",
                self._changefeed_id,
            )
        self._on_standby()
        self._take(life, timeout_s)

    def _take(self, life: Life | None, timeout_s: float) -> KeyMoved | ReplicationEnded | None:
        """The next message of this life; None when the time is over. Raises what ends it."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            try:
                message = self._inbox.get(timeout=max(0.0, deadline - self._clock.monotonic()))
            except queue.Empty:
                return None
            match message:
                case StopRequested():
                    raise Stop("asked to stop")
                case _ if life is None or message.epoch != life.epoch:
                    continue  # from a life that is over
                case SessionLost():
                    raise CaptureSuicide(message.reason)
                case _:
                    return message

    def _log(self, event: str, life: Life) -> None:
        logger.info(
            "%s capture_id=%s epoch=%s changefeed_id=%s lease=%x revision=%s",
            event,
            life.info.id,
            life.epoch,
            self._changefeed_id,
            life.session.lease,
            life.election.revision,
        )


def _delays() -> Iterator[float]:
    delay_s = RETRY_MIN_S
    while True:
        yield delay_s
        delay_s = min(RETRY_MAX_S, delay_s * 2)
