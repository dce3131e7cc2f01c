"""`tidelake run`: a capture that serves one changefeed, and ends with it.

    registered ─► admitted ─► serves, as any capture ─┬─ finished ──────────────► ends in order
                                                      ├─ failed: shown in Delta ► ends, raises it
                                                      └─ asked to stop ─────────► hands over, ends

The captures of one changefeed share a scope of its own in etcd: see ``RunAdmission``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from conf.settings import SessionSettings, Settings
from coordination.capture.capture import Capture
from coordination.capture.context import CaptureContext, new_uuid
from coordination.capture.run_admission import MARGIN_S, RunAdmission, clean_up, waits_for_the_dead
from coordination.capture.server import DRAIN_S, CaptureServer
from coordination.errors import (
    ConfigError,
    SinkUriInvalid,
    SourceUriInvalid,
    TidelakeError,
    TryAgain,
)
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import read_captures
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import CaptureID, Revision
from coordination.transport.grpc_calls import is_answered
from coordination.transport.grpc_transport import GrpcTransport
from coordination.trust.clock import Clock, SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from streaming.changefeed.admission import info_of, refuse_a_clusters, refuse_beside_other_versions
from streaming.jobs.port import EngineOfProcess
from streaming.process import logs
from streaming.process.data_plane import JVM_ENDED, SparkDataPlane

logger = logging.getLogger(__name__)

SAID_WITHIN_S: Final = 10.0  # the wait until a failure is in the changefeed's row
REACHED_WITHIN_S: Final = 10.0  # the wait for the owner's first heartbeat
LEFT_WITHIN_S: Final = 30.0  # the wait for other captures to leave when the changefeed has ended


class RunCapture:
    """The capture of one `tidelake run`; see the module's picture. `run` may be called once."""

    def __init__(
        self,
        settings: Settings,
        *,
        client: EtcdClient,
        cluster_id: str,
        engine: EngineOfProcess,
        new_id: Callable[[], str] = new_uuid,
        open_plane: Callable[..., SparkDataPlane] = SparkDataPlane,
        drain_s: float = DRAIN_S,
    ) -> None:
        """``new_id`` makes IDs for captures and epochs, each only once; ``open_plane`` makes the
        data plane and takes ``SparkDataPlane``'s arguments; ``drain_s``: how many seconds a stop
        waits for other captures to take over the tables."""
        changefeed, session = settings.changefeed, settings.session
        self._info = info_of(changefeed)
        self._client = client
        self._cluster_id = cluster_id
        self._warehouse = changefeed.sink.warehouse
        self._scope = keys.run_scope(cluster_id, self._info.id)
        self._error: TidelakeError | None = None
        self._is_finished = False
        self._over_since: float | None = None  # monotonic: when the changefeed was seen to be over
        self._unreached_at = float("inf")  # monotonic: when to warn that no capture reaches us
        self._was_seen = False  # whether this capture has seen the changefeed in etcd
        self._lease_ends_s = session.ttl_s + MARGIN_S  # of a capture that was killed
        clock = SystemClock()
        watchdog = Watchdog(clock)
        self._admission = RunAdmission(
            client,
            self._scope,
            self._info,
            ttl_s=session.ttl_s,
            clock=clock,
            refuse=self._refuse,
            on_join=engine.begin,
            is_answered=is_answered,
        )
        self._plane = open_plane(
            engine,
            batch=settings.batch,
            session=session,
            watchdog=watchdog,
            own=changefeed,
            jvm_ended=self._jvm_ended,
        )
        self._transport = GrpcTransport(
            settings.transport,
            resolve=lambda capture_id: self._server.address_of(capture_id),
            wake=lambda: self._server.wake(),
        )
        self._address = self._transport.start()
        self._server = CaptureServer(
            self._context(settings.session, new_id, clock, watchdog),
            on_reset=self._identify,
            on_pass=self._look,
            drain_s=drain_s,
        )

    def _context(
        self, session: SessionSettings, new_id: Callable[[], str], clock: Clock, watchdog: Watchdog
    ) -> CaptureContext:
        return CaptureContext(
            client=self._client,
            cluster_id=self._scope,
            session=session,
            clock=clock,
            fence=Fence(clock),
            watchdog=watchdog,
            transport=self._transport,
            data_plane=self._plane,
            address=self._address,
            new_id=new_id,
            # A write that is under way when its capture dies is right even on top of later writes
            # to the table, so nobody has to wait for its end.
            removal_grace_s=0.0,
            tries_again=False,
            leads_jobs=False,
            admit=self._admit,
        )

    def request_stop(self) -> None:
        """Ask the capture to end soon. May be called from any thread and from signal handlers."""
        self._server.request_stop()

    def run(self, *, is_host: bool = False) -> None:
        """Block until the changefeed has ended or a stop was asked for. Raises the TidelakeError
        with which the changefeed failed.

        ``is_host``: other captures use this process's etcd, so it waits for them and ends last.
        """
        try:
            self._server.run()
        finally:
            self._transport.close()
        if self._over_since is None:
            logger.info("capture stopped as asked changefeed_id=%s", self._info.id)
        elif is_host:
            self._await_others()
        if self._is_finished:
            logger.info("replication finished changefeed_id=%s", self._info.id)
            try:
                clean_up(self._client, self._scope)
            except TidelakeError as error:
                logger.debug("etcd keeps the changefeed's keys: %s", error)
        if self._error is not None:
            raise self._error

    # On the coordination thread.

    def _identify(self, capture: Capture) -> None:
        self._was_seen = False
        self._unreached_at = time.monotonic() + REACHED_WITHIN_S
        logs.identity.capture_id = capture.id
        logs.identity.epoch = capture.epoch

    def _admit(self, capture_id: CaptureID, registered: Revision) -> bool:
        try:
            return self._admission(capture_id, registered)
        except TryAgain:
            raise
        except TidelakeError as error:
            self._end(error)
            return False

    def _refuse(self, registered: Revision) -> None:
        refuse_a_clusters(self._client, self._cluster_id, self._info.id, self._warehouse)
        refuse_beside_other_versions(self._client, self._scope, registered)

    def _look(self, capture: Capture) -> None:
        """Called after each pass: end this capture when the changefeed has ended. If it has failed
        and this capture is the owner, wait first until its row in Delta shows that."""
        if self._server.is_stopping:
            return
        info = capture.changefeed(self._info.name)
        if info is None:
            if self._was_seen:
                logger.warning("the changefeed's keys are gone from etcd: it was ended by others")
                self._end(None)
            return
        self._was_seen = True
        state = known_state(info)
        self._tell_if_unreached(capture)
        if state.is_running or state is FeedState.PENDING:
            return
        now_s = time.monotonic()
        self._over_since = self._over_since or now_s
        is_ours_to_show = state is FeedState.FAILED and capture.owner is not None
        is_late = now_s - self._over_since > SAID_WITHIN_S
        if is_ours_to_show and not (is_late or self._plane.has_shown(self._info.id, state)):
            return
        self._is_finished = state is FeedState.FINISHED
        self._end(_failure(info) if state is FeedState.FAILED else None)

    def _tell_if_unreached(self, capture: Capture) -> None:
        """Warn, once per capture, if no owner has reached this capture in time: it gets no tables
        then. Where nobody answers for any other one, their leases are waited for, which was said
        when this one was admitted."""
        if capture.is_reached or time.monotonic() < self._unreached_at:
            return
        others = {each.id: each.address for each in capture.captures.values()}
        others.pop(capture.id, None)
        if others and not any(map(is_answered, others.values())):
            self._unreached_at = time.monotonic() + REACHED_WITHIN_S
            logger.warning("%s", waits_for_the_dead(self._info.id, others, self._lease_ends_s))
            return
        self._unreached_at = float("inf")
        if not others:  # it leads, or is about to
            return
        names = ", ".join(f"capture {each} at {at}" for each, at in sorted(others.items()))
        logger.warning(
            "stands by: changefeed %s is replicated by %s, and none of them reaches this capture "
            "at %s (its --addr). So it gets no tables until they end",
            *(self._info.id, names, self._address),
        )

    def _jvm_ended(self) -> None:
        if not self._server.is_stopping:  # else the SIGTERM that stops us has ended the JVM too
            self._end(TidelakeError(JVM_ENDED))

    def _end(self, error: TidelakeError | None) -> None:
        self._over_since = self._over_since or time.monotonic()
        self._error = error
        self._server.request_stop()

    # After the capture has ended.

    def _await_others(self) -> None:
        deadline, waiting = time.monotonic() + LEFT_WITHIN_S, threading.Event()
        said = ""
        try:
            while (left := read_captures(self._client, self._scope)) and (
                time.monotonic() < deadline
            ):
                names = ", ".join(f"{each.id} at {each.address}" for each in left)
                if names != said:
                    logger.info(
                        "waits for up to %.0f s: captures that use this process's etcd are to end "
                        "before it: %s",
                        *(deadline - time.monotonic(), names),
                    )
                said = names
                waiting.wait(0.2)
        except TidelakeError as error:
            logger.debug("nobody waits for others any more: %s", error)


def _failure(info: ChangefeedInfo) -> TidelakeError:
    error = info.error
    if error is None:
        return TidelakeError(f"changefeed {info.id} has failed, and etcd does not say why")
    codes = {each.code for each in (ConfigError, SourceUriInvalid, SinkUriInvalid)}
    return (ConfigError if error.code in codes else TidelakeError)(error.message)
