"""The units of a job's tasks on this capture: `dump` and `load` are the two halves of a first copy,
`sync` is a changefeed of the cluster.

A task's changefeed has the job's ID and the task's: ``job-task``. A unit works on a thread of its
own, from its start or resumption to its end or pause.

A copy whose chunks were read at different moments is exact where the binlog has been followed to
its end. So in mode `full` the load ends when the task's changefeed has come that far, and finished.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

from coordination.errors import Stop, TidelakeError, TryAgain
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import UnitHolder, UnitReport
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.errors import ChangefeedExists, ChangefeedNotFound
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import find_changefeed
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import JobID, Ts
from sinks.control.warehouse import ControlTables
from streaming.changefeed.preflight import end_of_copy
from streaming.source.dump.silent_reads import WATCH
from streaming.spans.cluster_reloads import is_reloading
from streaming.spans.copies.first_copy import FirstCopy, TableProgress
from streaming.spans.task_checkpoints import Staging, TaskPlace

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0  # between two looks at a changefeed in etcd
RETRY_S: Final = 5.0  # after an error that may pass
WAITS_FOR: Final = "waits_for"  # in a status
A_RELOAD: Final = (
    "a table is loaded anew (`tidelake table reload`); `tidelake progress` shows how far it is, "
    "and the capture that leads logs why it does not go on"
)


class TaskUnits:
    """Opens units: `coordination.jobmaster.ports.Units`."""

    def __init__(
        self, client: EtcdClient, cluster_id: str, staging: Staging, *, check: Callable[[], None]
    ) -> None:
        """``check`` is called before anything is written; it raises without trust."""
        self._client = client
        self._cluster_id = cluster_id
        self._staging = staging
        self._check = check

    def open_unit(self, job_id: JobID, order: CreateWorker, wake: Callable[[], None]) -> UnitHolder:
        place = TaskPlace.of(job_id, order.task_id, order.epoch, order.config, self._staging)
        work: _Work
        is_full = place.source.task_mode == "full"
        sync = _Sync(place, self._client, self._cluster_id, self._check, is_full=is_full)
        if order.unit is Unit.SYNC:
            work = sync
        else:
            work = _Copy(place, order.unit, self._check)
            if order.unit is Unit.LOAD and is_full:
                work = _FullLoad(work, sync)
        return _Holder(
            work,
            f"{order.unit} of {job_id}/{order.task_id}",
            is_paused=order.stage is TaskStage.PAUSED,
            wake=wake,
        )


class _Work:
    """What a unit does, on the holder's thread."""

    status: Mapping[str, Any]

    def run(self, stop: threading.Event, begun: Callable[[], None]) -> bool:
        """Until it has finished (True) or is to stop (False). ``begun`` is called when it is at
        work. Raises TryAgain, which passes, and errors that hold the unit."""
        raise NotImplementedError

    def paused(self) -> None:
        """It has stopped, and is to rest until an operator resumes the task. Raises as ``run``."""


class _Copy(_Work):
    """One half of a first copy."""

    def __init__(self, place: TaskPlace, unit: Unit, check: Callable[[], None]) -> None:
        self._place = place
        self._unit = unit
        self._check = check
        self._tables: dict[str, TableProgress] = {}

    @property
    def status(self) -> dict[str, Any]:  # type: ignore[override]
        told = list(self._tables.values())
        silent = WATCH.told(self._place.source.address)
        return {
            **({WAITS_FOR: silent} if silent else {}),
            "tables": len(told),
            "whole_tables": sum(each.is_done for each in told),
            "rows": sum(each.rows for each in told),
            "of_about_rows": sum(max(each.of_rows, each.rows) for each in told),
            "bytes": sum(each.bytes for each in told),
        }

    def run(self, stop: threading.Event, begun: Callable[[], None]) -> bool:
        def look(now: TableProgress) -> None:
            self._tables[str(now.table)] = now
            begun()

        copy = FirstCopy(
            self._place.changefeed,
            self._place.folder,
            progress=look,
            loading=look,
            is_stopped=stop.is_set,
            check=self._check,
        )
        with closing(copy):
            try:
                if self._unit is Unit.DUMP:
                    copy.dump()
                elif not copy.is_done:
                    copy.load()
                else:
                    copy.clean_up()
            except Stop:
                return False
        return True


class _Sync(_Work):
    """A changefeed, which the cluster's captures replicate; the unit sees to it that it runs."""

    def __init__(
        self,
        place: TaskPlace,
        client: EtcdClient,
        cluster_id: str,
        check: Callable[[], None],
        *,
        is_full: bool,
    ) -> None:
        """``is_full``: it ends where the copy has."""
        self._place = place
        self._check = check
        self._client = client
        self._cluster_id = cluster_id
        self._is_full = is_full
        self._operator = ChangefeedOperator(client, cluster_id)
        self.status: dict[str, Any] = {"changefeed": place.info.id}

    def run(self, stop: threading.Event, begun: Callable[[], None]) -> bool:
        name = self._place.info.name
        while self._is_reloading():  # the leader has the changefeed, until it is
            begun()
            if stop.wait(LOOK_EVERY_S):
                return False
        found = find_changefeed(self._client, self._cluster_id, name)
        wanted = self._wanted()
        self._check()
        if found is None:
            with suppress(ChangefeedExists):
                self._operator.create(wanted)
        else:
            begun()
            try:
                self._go_on(found.known_info, wanted, stop)
            except Stop:
                return False
        begun()
        while not stop.wait(LOOK_EVERY_S):
            found = find_changefeed(self._client, self._cluster_id, name)
            if found is None:
                raise TidelakeError(f"changefeed {name} was removed: resume the task to make it")
            if self._look(found.known_info):
                return True
        return False

    def _wanted(self) -> ChangefeedInfo:
        """Begun where the copy has left the tables; without a copy, where the task begins."""
        info, changefeed = self._place.info, self._place.changefeed
        row = ControlTables.of(changefeed.sink).changefeeds.read(changefeed.id)
        if row is None or not row.source_positions:
            return info
        end = end_of_copy(row) if self._is_full else None
        return replace(info, start_ts=Ts(row.start_ts), target_ts=Ts(end or 0))

    def _go_on(self, info: ChangefeedInfo, wanted: ChangefeedInfo, stop: threading.Event) -> None:
        """The task may have been updated since: a filter may take more tables, which then join, and
        a mode that ended with its copy may not end any more. Raises TryAgain until the captures
        have left the changefeed."""
        state = known_state(info)
        is_other = _settings(info) != _settings(wanted)
        if is_other and (state.is_running or state is FeedState.PENDING):
            self._operator.pause(wanted.name)
        if is_other:
            self._join(stop)
            updated = replace(
                info, sink_uri=wanted.sink_uri, config=wanted.config, target_ts=wanted.target_ts
            )
            self._operator.update(wanted.name, updated)
        if is_other or state in (FeedState.STOPPED, FeedState.FAILED):
            self._operator.resume(wanted.name)

    def _join(self, stop: threading.Event) -> None:
        if self._place.source.task_mode != "all":
            return
        copy = FirstCopy(
            self._place.changefeed,
            self._place.folder,
            is_stopped=stop.is_set,
            check=self._check,
        )
        with closing(copy):
            if copy.is_done:
                copy.join()

    def paused(self) -> None:
        while self._is_reloading():
            self._check()
            time.sleep(LOOK_EVERY_S)
        self._check()  # without trust, the task's next worker may have the changefeed by now
        try:
            self._operator.pause(self._place.info.name)
        except ChangefeedNotFound:
            return

    def _is_reloading(self) -> bool:
        """Says so, since it lasts as long as a copy, or as its database is away."""
        found = is_reloading(self._place.changefeed)
        if not found:
            self.status = {name: told for name, told in self.status.items() if name != WAITS_FOR}
        elif WAITS_FOR not in self.status:
            self.status = {**self.status, WAITS_FOR: A_RELOAD}
            logger.info("the task waits changefeed_id=%s: %s", self._place.info.id, A_RELOAD)
        return found

    def _look(self, info: ChangefeedInfo) -> bool:
        """Whether it has finished. Raises what holds it."""
        state = known_state(info)
        self.status = {"changefeed": info.id, "state": state.value}
        error = info.error or info.warning
        if state in (FeedState.FAILED, FeedState.PENDING) and error is not None:
            self.status["error"] = f"{error.code}: {error.message}"
        if state is FeedState.FAILED:
            raise TidelakeError(f"changefeed {info.id} has failed: {error and error.message}")
        if state is FeedState.STOPPED and not self._has_gone_on(info.name):
            raise TidelakeError(f"changefeed {info.id} was paused beside its task: resume the task")
        return state is FeedState.FINISHED

    def _has_gone_on(self, name: ChangefeedName) -> bool:
        """Or goes on, once the leader has done an order. It may have resumed it, and closed the
        order, since the changefeed was read."""
        if is_reloading(self._place.changefeed):
            return True
        found = find_changefeed(self._client, self._cluster_id, name)
        return found is not None and known_state(found.known_info) is not FeedState.STOPPED


def _settings(info: ChangefeedInfo) -> tuple[object, ...]:
    return info.sink_uri, info.config, info.target_ts


class _FullLoad(_Work):
    """The load of a task that ends with its copy."""

    def __init__(self, load: _Copy, sync: _Sync) -> None:
        self._load = load
        self._sync = sync
        self._now: _Copy | _Sync = load

    @property
    def status(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self._now.status

    def run(self, stop: threading.Event, begun: Callable[[], None]) -> bool:
        self._now = self._load
        if not self._load.run(stop, begun):
            return False
        self._now = self._sync
        return self._sync.run(stop, begun)

    def paused(self) -> None:
        self._now.paused()


class _Holder:
    """`coordination.jobmaster.ports.UnitHolder`: the thread of a unit, and how it is."""

    def __init__(
        self, work: _Work, name: str, *, is_paused: bool, wake: Callable[[], None]
    ) -> None:
        self._work = work
        self._name = name
        self._wake = wake
        self._lock = threading.Lock()
        self._stage = TaskStage.PAUSED if is_paused else TaskStage.INITING
        self._error = ""
        self._is_closing = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if not is_paused:
            self._begin()

    def report(self) -> UnitReport:
        with self._lock:
            return UnitReport(stage=self._stage, error=self._error, status=self._work.status)

    def pause(self) -> None:
        with self._lock:
            if self._stage is TaskStage.ERROR:
                self._stage, self._error = TaskStage.PAUSED, ""
            elif self._stage in (TaskStage.RUNNING, TaskStage.INITING):
                self._stage = TaskStage.PAUSING
                self._stop.set()

    def resume(self) -> None:
        with self._lock:
            if self._stage in (TaskStage.PAUSED, TaskStage.ERROR) and not self._is_closing:
                self._stage, self._error = TaskStage.INITING, ""
                self._begin()

    def close(self) -> None:
        with self._lock:
            self._is_closing = True
            self._stop.set()

    @property
    def is_closed(self) -> bool:
        thread = self._thread
        return self._is_closing and (thread is None or not thread.is_alive())

    @property
    def _is_pausing(self) -> bool:
        with self._lock:
            return self._stage is TaskStage.PAUSING

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stop,), name=self._name, daemon=True
        )
        self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        while True:
            try:
                if self._work.run(stop, self._begun):
                    self._tell(TaskStage.FINISHED)
                    return
                if (
                    self._is_pausing
                ):  # else its capture is drained, say, and the next worker goes on
                    self._work.paused()
            except TryAgain as error:
                logger.warning("%s waits, and goes on where it was: %s", self._name, error)
                self._tell(TaskStage.RUNNING, str(error))
                stop.wait(RETRY_S)
                continue
            except Exception as error:
                if not isinstance(error, TidelakeError):
                    logger.exception("%s has failed", self._name)
                self._tell(TaskStage.ERROR, str(error))
                return
            self._tell(TaskStage.PAUSED)
            return

    def _begun(self) -> None:
        if self._stage is TaskStage.INITING or self._error:
            self._tell(TaskStage.RUNNING)

    def _tell(self, stage: TaskStage, error: str = "") -> None:
        with self._lock:
            is_pausing = self._stage is TaskStage.PAUSING and stage is TaskStage.RUNNING
            self._stage = TaskStage.PAUSING if is_pausing else stage
            self._error = error
        self._wake()
