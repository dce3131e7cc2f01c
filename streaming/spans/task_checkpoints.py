"""What the units of a job's tasks have left: staged files, a changefeed's row, a changefeed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError
from coordination.etcd.client import EtcdClient
from coordination.jobmaster.jobs_state import read_jobs
from coordination.jobmaster.ports import Checkpoints, CheckpointStatus
from coordination.jobmaster.records import Job
from coordination.jobmaster.units import Unit
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.errors import ChangefeedNotFound
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import find_changefeed
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID, JobID, TaskID
from sinks.control.warehouse import ControlTables
from streaming.changefeed.settings_in_etcd import DELTA_URI, changefeed_settings
from streaming.spans.copies.settled_copy import SettledCopy, end_copy

Staging = Callable[[Changefeed], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """What the units of a task have in common."""

    info: ChangefeedInfo
    changefeed: Changefeed
    source: BinlogSettings
    folder: Path  # of staged files
    epoch: int  # of the task

    @classmethod
    def of(
        cls, job_id: JobID, task_id: TaskID, epoch: int, config: Mapping[str, Any], staging: Staging
    ) -> TaskPlace:
        """``config``: ``source-uri``, ``sink-uri`` and the changefeed file as ``document``. Raises
        ConfigError."""
        document = dict(config.get("document") or {})
        info = ChangefeedInfo(
            id=changefeed_id(job_id, task_id),
            sink_uri=str(config["source-uri"]),
            config={
                **document,
                "sink": {**document.get("sink", {}), DELTA_URI: config.get("sink-uri")},
            },
        )
        changefeed = changefeed_settings(info)
        source = changefeed.source
        if not isinstance(source, BinlogSettings):
            raise ConfigError(f"{info.id}: a task reads a database, not {source.uri}")
        return cls(
            info=info,
            changefeed=changefeed,
            source=source,
            epoch=epoch,
            folder=Path(source.dump_dir)
            if source.dump_dir
            else staging(changefeed) / f"epoch-{epoch}",
        )


def changefeed_id(job_id: JobID, task_id: TaskID) -> ChangefeedID:
    return ChangefeedID(f"{job_id}-{task_id}")


class TaskCheckpoints:
    """`coordination.jobmaster.ports.CheckpointAgent`: reads what the units have left, on threads of
    its own."""

    def __init__(
        self,
        client: EtcdClient,
        cluster_id: str,
        staging: Staging,
        wake: Callable[[], None],
        *,
        check: Callable[[], None],
    ) -> None:
        """``check`` is called before anything is removed; it raises without trust."""
        self._client = client
        self._cluster_id = cluster_id
        self._staging = staging
        self._wake = wake
        self._check = check
        self._asked: dict[object, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="checkpoints")

    def checkpoints(self, job_id: JobID, task_id: TaskID, epoch: int) -> Checkpoints | None:
        found: Checkpoints | None = self._ask(
            (job_id, task_id, epoch), partial(self._read, job_id, task_id, epoch)
        )
        return found

    def remove(self, job_id: JobID) -> bool:
        return self._ask(job_id, partial(self._removed, job_id)) is not None

    def _ask(self, key: object, work: Callable[[], Any]) -> Any:
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = self._pool.submit(work)
            found.add_done_callback(lambda _: self._wake())
            return None
        if not found.done():
            return None
        del self._asked[key]
        return found.result()

    def _places(self, job_id: JobID) -> dict[TaskID, TaskPlace]:
        found = read_jobs(self._client, self._cluster_id).get(job_id)
        job = found.job if found is not None else None
        tasks = job.tasks if isinstance(job, Job) else {}
        return {
            task_id: TaskPlace.of(job_id, task_id, task.epoch, task.cfg.config, self._staging)
            for task_id, task in tasks.items()
        }

    def _read(self, job_id: JobID, task_id: TaskID, epoch: int) -> Checkpoints:
        place = self._places(job_id).get(task_id)
        if place is None or place.epoch != epoch:
            return {}
        found = {}
        row = ControlTables.of(place.changefeed.sink).changefeeds.read(place.info.id)
        synced = find_changefeed(self._client, self._cluster_id, place.info.name)
        if row is not None and row.source_positions:
            state = known_state(synced.known_info) if synced is not None else None
            is_exact = place.source.task_mode != "full" or state is FeedState.FINISHED
            load = CheckpointStatus.FINISHED if is_exact else CheckpointStatus.RUNNING
            found = {Unit.DUMP: CheckpointStatus.FINISHED, Unit.LOAD: load}
        elif place.folder.is_dir() and SettledCopy.load(place.folder) is not None:
            found = {Unit.DUMP: CheckpointStatus.FINISHED}
        elif place.folder.is_dir() and any(place.folder.iterdir()):
            found = {Unit.DUMP: CheckpointStatus.RUNNING}
        if synced is not None:
            found[Unit.SYNC] = CheckpointStatus.RUNNING
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _removed(self, job_id: JobID) -> bool:
        """The changefeeds go from etcd, and staged files. What is in the lake stays, and a dump."""
        operator = ChangefeedOperator(self._client, self._cluster_id)
        for place in self._places(job_id).values():
            self._check()
            with suppress(ChangefeedNotFound):
                operator.remove(place.info.name)
            if not place.source.dump_dir:
                self._check()
                end_copy(place.folder)
        return True
