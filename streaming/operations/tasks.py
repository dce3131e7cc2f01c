"""An operator's tasks: a task file of DM is a job in etcd, and its one source a task of that job.

For an operator both are *the task*, as in DM. What a task copies and follows is a changefeed, whose
settings are checked before the job is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from conf.files.reading import Document
from conf.load import load_changefeed
from conf.masking import masked_uri
from conf.problems import SettingError
from conf.task.changefeed import check_mode, settings_of_task
from conf.task.file import TaskDescription
from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.job_writes import JobExists, JobNotFound
from coordination.jobmaster.jobs_state import JobReactorState, read_jobs
from coordination.jobmaster.records import Job, Task, TaskCfg, UnitState
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import unit_sequence
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import OwnerNotFound
from coordination.metadata.lookup import find_changefeed, read_changefeeds
from coordination.metadata.records import ChangefeedInfo
from coordination.model import ChangefeedID, JobID, TaskID, Ts, tso_time
from coordination.transport.grpc_calls import CallRefused
from streaming.changefeed.settings_in_etcd import described
from streaming.operations.before_start.findings import findings, refuse
from streaming.operations.captures import ShownRow
from streaming.operations.changed import CHANGED, between
from streaming.operations.owner_calls import OwnerCalls

ANSWER_S: Final = 3.0  # for the leader, who tells how units are; without it etcd's rows are shown
PROGRESS: Final = ("tables", "whole_tables", "rows", "of_about_rows", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A task as a file and a command's options describe it."""

    name: JobID
    source_id: TaskID
    cfg: TaskCfg
    info: ChangefeedInfo  # of its changefeed

    @property
    def row(self) -> ShownRow:
        return {
            "task": self.name,
            "source": self.source_id,
            "mode": self.cfg.task_mode,
            "units": ", ".join(unit_sequence(self.cfg.task_mode)),
            **_shown(self.cfg.config),
        }

    def findings(self, *, is_new: bool, is_checked: bool) -> Sequence[TidelakeError]:
        """The errors that its start would raise; see ``findings.py``. Blocks."""
        return findings(self.info, is_new=is_new, is_checked=is_checked)


def planned(
    task: TaskDescription,
    document: Document,
    *,
    source_uri: str | None,
    sink_uri: str | None,
) -> PlannedTask:
    """The task. ``document`` is a changefeed file, for what a task file does not have. Raises
    SettingError."""
    given = {"source-uri": source_uri, "sink-uri": sink_uri}
    document, values = settings_of_task(task, document, {**document, **given})
    changefeed = load_changefeed(document, {key: each for key, each in values.items() if each})
    check_mode(task, changefeed)
    uris = {**given, "source-uri": values["source-uri"]}
    warehouse = sink_uri or f"delta://{changefeed.sink.warehouse}"  # a dump has none
    info = described(changefeed, {**uris, "sink-uri": warehouse}, document)
    config = {**uris, "document": document}
    cfg = TaskCfg(task_mode=task.task_mode, config=config)
    return PlannedTask(name=JobID(task.name), source_id=TaskID(task.source_id), cfg=cfg, info=info)


class TaskOperations:
    """All block, and raise TidelakeErrors."""

    def __init__(self, client: EtcdClient, cluster_id: str, calls: OwnerCalls) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self._calls = calls
        self._jobs = JobOperator(client, cluster_id)

    def start(self, task: PlannedTask, *, is_checked: bool) -> ShownRow:
        """Create the task, which the captures then run. With ``is_checked`` also raises the errors
        that its start would raise."""
        if task.name in read_jobs(self._client, self._cluster_id):
            raise _exists(task.name)
        if find_changefeed(self._client, self._cluster_id, task.info.name) is not None:
            raise ConfigError(
                f"there is a changefeed {task.info.name}, which is what this task's would be "
                "called: give the task another name, or remove that one"
            )
        refuse(task.findings(is_new=True, is_checked=is_checked))
        with _in_our_words(task.name):
            self._jobs.create(task.name, {task.source_id: task.cfg})
        made = self._only(task.name, task.source_id)
        return {**made, CHANGED: between({}, made, "state")}

    def list_tasks(self) -> list[ShownRow]:
        rows = [
            row
            for each in read_jobs(self._client, self._cluster_id).values()
            for row in _rows(each)
        ]
        told = self._told(None) if rows else _Told()
        feeds = {each.name: each for each in read_changefeeds(self._client, self._cluster_id)}
        found = [{**row, **told.of(row)} for row in rows]
        return [{**row, "error": row["error"] or _error_of(feeds.get(_feed(row)))} for row in found]

    def query(self, name: str) -> list[ShownRow] | ShownRow:
        """A task in full, with what its unit reports: how far it is, and what holds it."""
        with _in_our_words(name):
            found = self._jobs.read(JobID(name))
        told = self._told(name)
        rows: list[ShownRow] = [self._in_full(found, row, told) for row in _rows(found)]
        return rows[0] if len(rows) == 1 else rows

    def _told(self, name: str | None) -> _Told:
        params = {"job-id": name} if name is not None else {}
        try:
            rows = self._calls.ask("list-tasks", params, wait_s=ANSWER_S)["rows"]
        except (OwnerNotFound, CallRefused, TryAgain) as error:
            return _Told(why_unknown=f"how its unit is, is not known: {error}")
        return _Told({(row["job"], row["task"]): row for row in rows})

    def pause(self, name: str) -> list[ShownRow]:
        return self._with_changes(name, self._jobs.pause)

    def resume(self, name: str) -> list[ShownRow]:
        return self._with_changes(name, self._jobs.resume)

    def stop(self, name: str) -> list[ShownRow]:
        return self._with_changes(name, self._jobs.stop)

    def stored_uris(self, name: str) -> Mapping[str, str]:
        """The URIs that the task has now, for an update that gives none."""
        with _in_our_words(name):
            job = self._jobs.read(JobID(name)).job
        tasks = list(job.tasks.values()) if isinstance(job, Job) else []
        config = tasks[0].cfg.config if len(tasks) == 1 else {}
        return {key: config[key] for key in ("source-uri", "sink-uri") if config.get(key)}

    def update(self, task: PlannedTask, *, is_checked: bool) -> ShownRow:
        """Replace the configuration of the task; it goes on where it was."""
        before = self._only(task.name, task.source_id)
        refuse(task.findings(is_new=False, is_checked=is_checked))
        with _in_our_words(task.name):
            self._jobs.update(task.name, {task.source_id: task.cfg})
        after = self._only(task.name, task.source_id)
        return {**after, CHANGED: between(before, after, "mode", "revision")}

    def _with_changes(self, name: str, change: Callable[[JobID], None]) -> list[ShownRow]:
        with _in_our_words(name):
            before = {row["source"]: row for row in _rows(self._jobs.read(JobID(name)))}
            change(JobID(name))
            found = read_jobs(self._client, self._cluster_id).get(JobID(name))
        after = _rows(found) if found is not None else []
        return [
            {**row, CHANGED: between(before.get(row["source"], row), row, "state")} for row in after
        ]

    def _only(self, name: JobID, source_id: TaskID) -> ShownRow:
        with _in_our_words(name):
            rows = _rows(self._jobs.read(name))
        found = next((row for row in rows if row["source"] == source_id), None)
        if found is None:
            raise ConfigError(
                f"task {name} has no source {source_id}, but {', '.join(r['source'] for r in rows)}"
                ": give that source-id, or stop the task and start it anew"
            )
        return found

    def _in_full(self, found: JobReactorState, row: ShownRow, told: _Told) -> ShownRow:
        job = found.job
        task = job.tasks.get(row["source"]) if isinstance(job, Job) else None
        now = {**row, **told.of(row)}
        if task is None:
            return now
        name = _feed(row)
        synced = find_changefeed(self._client, self._cluster_id, name)
        info = synced.known_info if synced is not None else None
        checkpoint = synced.status.checkpoint_ts if synced and synced.status else None
        return {
            **now,
            "error": now["error"] or _error_of(synced),
            **told.progress_of(row),
            "changefeed": name.id if synced is not None else None,
            "changefeed_state": info.state.value if info is not None else None,
            "checkpoint_ts": checkpoint,
            "checkpoint_time": tso_time(checkpoint) if checkpoint else None,
            "lag_s": _lag_s(checkpoint) if checkpoint else None,
            **_shown(task.cfg.config),
        }


def _feed(row: ShownRow) -> ChangefeedName:
    """The name of the changefeed that follows what a task has copied."""
    return ChangefeedName(ChangefeedID(f"{row['task']}-{row['source']}"))


def _error_of(feed: ChangefeedReactorState | None) -> str | None:
    info = feed.known_info if feed is not None else None
    error = (info.error or info.warning) if info is not None else None
    return f"{error.code}: {error.message}" if error else None


@dataclass(frozen=True, slots=True)
class _Told:
    """What the leader tells of the workers, by job and task."""

    rows: Mapping[tuple[str, str | None], Mapping[str, Any]] = field(default_factory=dict)
    why_unknown: str = ""

    def of(self, row: ShownRow) -> ShownRow:
        """``error``: what holds the unit, or what keeps the task from having one."""
        whole_job = self.rows.get((row["task"], ""), {})
        found = self.rows.get((row["task"], row["source"]), {})
        error = found.get("error") or found.get("problem") or whole_job.get("problem")
        return {"stage": found.get("stage"), "error": error or self.why_unknown or None}

    def progress_of(self, row: ShownRow) -> ShownRow:
        """How far a unit that copies or loads is."""
        status = self.rows.get((row["task"], row["source"]), {}).get("status", {})
        return dict.fromkeys(PROGRESS) | {key: status[key] for key in PROGRESS if key in status}


def _lag_s(checkpoint: Ts) -> float:
    return round((datetime.now(UTC) - tso_time(checkpoint)).total_seconds(), 1)


def _rows(found: JobReactorState) -> list[ShownRow]:
    """A row for each task of the job; one for a job that cannot be read."""
    job, units = found.job, found.unit_state
    state = units if isinstance(units, UnitState) else UnitState()
    if isinstance(job, Job):
        rows = [_row(found.id, each, task, job, state) for each, task in job.tasks.items()]
        return sorted(rows, key=lambda row: str(row["source"]))
    return [{**dict.fromkeys(_COLUMNS), "task": found.id, "state": "unreadable"}]


_COLUMNS = ("task", "source", "mode", "state", "unit", "finished", "capture", "revision")


def _row(name: JobID, source_id: TaskID, task: Task, job: Job, units: UnitState) -> ShownRow:
    current = units.current.get(source_id)
    finished = [each.unit for each in units.finished.get(source_id, ()) if each.epoch == task.epoch]
    has_ended = current is not None and units.has_finished(current)
    unit, capture = (
        (None, None) if current is None or has_ended else (current.unit.value, current.capture)
    )
    return {
        "task": name,
        "source": source_id,
        "mode": task.cfg.task_mode,
        "state": _state(task, job, finished),
        "unit": unit,
        "finished": ", ".join(finished) or None,
        "capture": capture,
        "revision": task.cfg.mod_revision,
    }


def _state(task: Task, job: Job, finished: Sequence[str]) -> str:
    """What the operator wants of it, or that it has done all."""
    if job.deleting:
        return "stopping"
    if set(unit_sequence(task.cfg.task_mode)) <= set(finished):
        return "finished"
    return "paused" if task.stage is TaskStage.PAUSED else "running"


def _shown(config: Mapping[str, Any]) -> ShownRow:
    uri = config.get("source-uri")
    document = config.get("document") or {}
    taken = document.get("filter") or {}
    return {
        "source_uri": masked_uri(uri) if uri else None,
        "sink_uri": config.get("sink-uri"),
        "rules": ", ".join(taken.get("rules") or ("*.*",)),
        "event_filters": len(taken.get("event-filters") or ()),
    }


@contextmanager
def _in_our_words(name: str) -> Iterator[None]:
    """A job is the operator's task."""
    try:
        yield
    except JobNotFound as error:
        raise ConfigError(f"there is no task {name}: `tidelake task list` shows them") from error
    except JobExists as error:
        raise _exists(name) from error
    except SettingError as error:
        raise ConfigError(str(error)) from error


def _exists(name: str) -> ConfigError:
    return ConfigError(
        f"there is a task {name}, or it has not wholly stopped: `tidelake task query` shows it, "
        "`update` changes it, `stop` ends it"
    )
