"""The data plane of one process: implements ``coordination.ports.DataPlane`` on one engine, Spark.

The replica and the control writer of one changefeed share one stream, so that a capture reads the
topics once. Whichever is opened first begins the stream. A capture may have only one of the two: an
owner may hold no span, and most captures that hold spans are not the owner."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final

from py4j.protocol import Py4JError

from conf.settings import BatchSettings, Changefeed, SessionSettings
from coordination.errors import Stop, TidelakeError
from coordination.etcd.client import EtcdClient
from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import CheckpointAgent, UnitHolder, Units
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID, JobID, Ownership
from coordination.ports import ShownState, Wake
from coordination.trust.fence import Trust
from coordination.trust.watchdog import Watchdog, Watched
from streaming.changefeed.settings_in_etcd import changefeed_settings
from streaming.jobs.port import EngineOfProcess
from streaming.owner.control_writer import DeltaControlWriter
from streaming.owner.shown_state import StateUpdate, StateUpdates
from streaming.process.copy_first import own_staging, staging_folder
from streaming.spans.cluster_reloads import ClusterReloads
from streaming.spans.replica import StreamReplica
from streaming.spans.task_checkpoints import TaskCheckpoints
from streaming.spans.task_units import TaskUnits
from streaming.spark.jvm_watch import JvmWatch
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.role import StreamContext
from streaming.stream.role_context import RoleContext, job_tag, recorded_marks
from streaming.stream.shared_stream import SharedStream

logger = logging.getLogger(__name__)

JVM_ENDED: Final = (
    "Spark has ended: its JVM was killed, or was out of memory (SPARK_DRIVER_MEMORY), or its "
    "cluster ended the application. Start the same command again, it goes on where the tables are"
)


class SparkDataPlane:
    """See the port. Its arguments are what all changefeeds of a process share."""

    def __init__(
        self,
        engine: EngineOfProcess,
        *,
        batch: BatchSettings,
        session: SessionSettings,
        watchdog: Watchdog,
        own: Changefeed | None = None,
        jobs: tuple[EtcdClient, str] | None = None,
        jvm_ended: Callable[[], None],
    ) -> None:
        """``jobs``: the etcd and the cluster ID of jobs; None: there are none. ``own``: the
        changefeed of a `run`. It is not described in etcd, and it starts where its row in Delta
        says, however often it is created. ``jvm_ended``: called when Spark's JVM is gone, also
        where the process ends and has ended it."""
        self._engine = engine
        self._batch = batch
        self._session = session
        self._own = own
        self._jobs = jobs
        self._jvm_ended = jvm_ended
        self._watchdog = watchdog
        answers = watchdog.watch("Spark's JVM", session.answer_timeout_s)
        self._pulse = JvmWatch(lambda: engine.started, answers, self.check_jvm)
        self._updates = StateUpdates()
        self._shown: dict[ChangefeedID, FeedState] = {}
        # By changefeed settings and capture session: when either changes, the changefeed gets a
        # new stream. A stream lives as long as a role refers to it.
        self._streams_lock = threading.Lock()
        self._streams: weakref.WeakValueDictionary[tuple[str, ...], SharedStream] = (
            weakref.WeakValueDictionary()
        )

    def open_replica(self, info: ChangefeedInfo, trust: Trust, wake: Wake) -> StreamReplica:
        return StreamReplica(self._role_context("replica", info, trust, wake))

    def open_control_writer(
        self, info: ChangefeedInfo, trust: Trust, ownership: Ownership, wake: Wake
    ) -> DeltaControlWriter:
        return DeltaControlWriter(self._role_context("control", info, trust, wake), ownership)

    def show(
        self,
        info: ChangefeedInfo,
        trust: Trust,
        ownership: Ownership,
        shown: ShownState,
        wake: Wake,
    ) -> None:
        try:
            changefeed = self._own or changefeed_settings(info)
        except TidelakeError as error:  # this failed the changefeed: its warehouse is not known
            logger.debug("no control tables are known changefeed_id=%s: %s", info.id, error)
        else:
            self._updates.put(
                StateUpdate(
                    changefeed_id=info.id,
                    sink=changefeed.sink,
                    ownership=ownership,
                    trust=trust,
                    shown=shown,
                    wake=wake,
                )
            )
        self._shown[info.id] = shown.state

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        self._shown.pop(changefeed_id, None)
        self._updates.withdraw(changefeed_id)

    def units(self, trust: Trust) -> Units:
        if self._jobs is None:
            return _NoUnits()
        return TaskUnits(*self._jobs, staging_folder, check=trust.check)

    def checkpoint_agent(self, trust: Trust, wake: Wake) -> CheckpointAgent:
        assert self._jobs is not None, "a `run` has no jobs"
        return TaskCheckpoints(*self._jobs, staging_folder, wake, check=trust.check)

    def open_reloads(self, trust: Trust) -> ClusterReloads:
        assert self._jobs is not None, "a `run` carries its orders out itself"
        return ClusterReloads(*self._jobs, own_staging, trusted=trust.check)

    def has_shown(self, changefeed_id: ChangefeedID, state: FeedState) -> bool:
        """Whether `show` was called with this state, and it is written by now or cannot be."""
        was_asked = self._shown.get(changefeed_id) is state
        return was_asked and not self._updates.is_waiting(changefeed_id)

    def _role_context(
        self, role: str, info: ChangefeedInfo, trust: Trust, wake: Wake
    ) -> RoleContext:
        return RoleContext(
            role=role,
            stream=self._stream(self._own or changefeed_settings(info), trust),
            ttl_s=self._session.ttl_s,
            start_epoch=None if self._own is not None else info.start_epoch,
            wake=wake,
            watch=self._watch,
        )

    def _stream(self, changefeed: Changefeed, trust: Trust) -> SharedStream:
        """The stream that the roles of a changefeed on this capture share; made if there is
        none."""
        identity = trust.identity
        key = (repr(changefeed), identity.capture_id, identity.epoch)
        with self._streams_lock:
            if (stream := self._streams.get(key)) is not None:
                return stream
            name = f"tidelake-{changefeed.id}-{identity.capture_id}"
            tag = job_tag("replica", changefeed.id, identity)
            concerns = LastingWarnings()
            context = StreamContext(
                changefeed=changefeed,
                batch=self._batch,
                engine=self._engine.of_stream(),
                trust=trust,
                name=name,
                concerns=concerns,
                check_jvm=self.check_jvm,
                watch=lambda what: self._pulse.follow(
                    self._watch(what), tag, partial(concerns.say, f"slots for {what}")
                ),
                recorded=lambda: recorded_marks(changefeed),
            )
            stream = self._streams[key] = SharedStream(context)
            return stream

    def _watch(self, what: str) -> Watched:
        return self._watchdog.watch(what, self._session.stall_timeout_s)

    def check_jvm(self) -> None:
        """Raises Stop when Spark's JVM is gone or its application has ended (a cluster's master
        may end it), after `jvm_ended` was called. Neither comes back within this process."""
        session = self._engine.started
        try:
            context = session.sparkContext._jsc if session is not None else None
            has_ended = context is not None and context.sc().isStopped()
        except (Py4JError, OSError):
            has_ended = True
        if has_ended:
            self._jvm_ended()
            raise Stop("Spark has ended")


class _NoUnits:
    """Those of a `run`, which no job knows."""

    def open_unit(self, job_id: JobID, order: CreateWorker, wake: Wake) -> UnitHolder:  # noqa: ARG002
        raise TidelakeError(f"the unit {order.unit} of a job cannot run in a `tidelake run`")
