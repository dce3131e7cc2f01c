"""The workers of one capture: begun, operated and stopped as the masters of their jobs order.

    inbox ─► CreateWorker: an ID that was never seen? ─► a unit is opened
          └► any other order on the present worker ─► pause, resume, close
    units that have changed ─► reports ─► outbox

A worker ID that was seen begins nothing again, also if its order to stop came first: so a late or
doubled message starts no second worker. Pure, but for the units behind their port.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from coordination.errors import TidelakeError
from coordination.jobmaster.messages import (
    CreateWorker,
    OperateTask,
    Order,
    QueryStatus,
    StopWorker,
    WorkerMessage,
    WorkerReport,
)
from coordination.jobmaster.ports import UnitHolder, Units
from coordination.jobmaster.stages import OperateType, TaskStage, WorkerStage
from coordination.model import CaptureID, JobID, TaskID, WorkerID

logger = logging.getLogger(__name__)

TaskKey = tuple[JobID, TaskID]


@dataclass(slots=True)
class _Worker:
    """The worker of a task on this capture, from its creation to its end."""

    id: WorkerID
    unit: UnitHolder
    stage_number: int
    last: WorkerReport  # what was reported last
    is_told_to_stop: bool = False


@dataclass(slots=True)
class _Seen:
    """The newest worker of a task that was ever named here, and the report of its end."""

    id: WorkerID
    ended: WorkerReport | None = None


@dataclass(slots=True)
class _Mail:
    """The masters, and what is to be sent to them."""

    capture_id: CaptureID
    masters: dict[JobID, CaptureID] = field(default_factory=dict)  # who gave the last order
    outbox: list[WorkerMessage] = field(default_factory=list)

    def post(self, job_id: JobID, report: WorkerReport) -> None:
        self.outbox.append(
            WorkerMessage(
                sender=self.capture_id, to=self.masters[job_id], job_id=job_id, body=report
            )
        )


class Executor:
    """One thread; one session of its capture. ``wake`` is given to the units."""

    def __init__(self, capture_id: CaptureID, units: Units, wake: Callable[[], None]) -> None:
        self.is_stopping = False  # it takes no new workers
        self._units = units
        self._wake = wake
        self._mail = _Mail(capture_id)
        self._workers: dict[TaskKey, _Worker] = {}
        self._seen: dict[TaskKey, _Seen] = {}  # kept when workers end, for messages that are late

    @property
    def is_closed(self) -> bool:
        """Whether nothing runs here. After `close` it stays so."""
        return all(each.unit.is_closed for each in self._workers.values())

    @property
    def closing(self) -> dict[WorkerID, str]:
        """The workers that were told to stop and have not ended yet, each in words."""
        return {
            each.id: f"the unit of task {task_id} of job {job_id}"
            for (job_id, task_id), each in self._workers.items()
            if each.is_told_to_stop and not each.unit.is_closed
        }

    def close(self) -> None:
        """Stop all workers, and take no new ones."""
        self.is_stopping = True
        for worker in self._workers.values():
            self._stop(worker)

    def tick(self, inbox: Sequence[WorkerMessage]) -> list[WorkerMessage]:
        """Take the messages in their order; returns the messages to send."""
        for message in inbox:
            if not isinstance(message.body, WorkerReport):
                self._mail.masters[message.job_id] = message.sender
                self._receive(message.job_id, message.body)
        for key, worker in list(self._workers.items()):
            for report in self._news(key, worker):
                self._mail.post(key[0], report)
        taken, self._mail.outbox = self._mail.outbox, []
        return taken

    def _receive(self, job_id: JobID, order: Order) -> None:
        key = (job_id, order.task_id)
        seen = self._seen.setdefault(key, _Seen(WorkerID(0)))
        is_new = order.worker_id > seen.id
        worker = self._workers.get(key)
        if is_new:
            if worker is not None:  # its master takes it for ended: it must end before another
                self._stop(worker)
                return
            self._seen[key] = seen = _Seen(order.worker_id)
            if isinstance(order, CreateWorker):
                worker = self._create(job_id, order, seen)
        if worker is None or worker.id != order.worker_id:
            self._mail.post(job_id, self._ended(order, seen))
            return
        match order:
            case StopWorker():
                is_online = worker.unit.report().stage is not TaskStage.INITING
                if not (order.unless_online and is_online):
                    self._stop(worker)
            case OperateTask() if order.stage_number >= worker.stage_number:
                self._operate(worker, order)
            case CreateWorker() | QueryStatus() | OperateTask():
                pass
        worker.last = self._report(key, worker)
        self._mail.post(job_id, worker.last)

    def _create(self, job_id: JobID, order: CreateWorker, seen: _Seen) -> _Worker | None:
        """Open the unit; None, with the reason as the worker's end, if that cannot be."""
        error = "this capture takes no workers any more: it is being drained"
        if not self.is_stopping:
            try:
                unit = self._units.open_unit(job_id, order, self._wake)
            except TidelakeError as refused:
                error = str(refused)
            except Exception as failed:
                logger.exception(
                    "could not begin a unit job_id=%s task_id=%s worker_id=%s",
                    *(job_id, order.task_id, order.worker_id),
                )
                error = f"the unit {order.unit} could not begin: {failed!r}"
            else:
                first = _offline(order.task_id, order.worker_id, order.stage_number)
                worker = _Worker(order.worker_id, unit, order.stage_number, first)
                self._workers[job_id, order.task_id] = worker
                return worker
        seen.ended = replace(_offline(order.task_id, order.worker_id), error=error, sequence=1)
        return None

    @staticmethod
    def _ended(order: Order, seen: _Seen) -> WorkerReport:
        """The report on a worker that does not run here."""
        if seen.id == order.worker_id and seen.ended is not None:
            return seen.ended
        return _offline(order.task_id, order.worker_id)

    @staticmethod
    def _stop(worker: _Worker) -> None:
        if not worker.is_told_to_stop:
            worker.is_told_to_stop = True
            worker.unit.close()

    @staticmethod
    def _operate(worker: _Worker, order: OperateTask) -> None:
        worker.stage_number = order.stage_number
        if order.op is OperateType.PAUSE:
            worker.unit.pause()
        else:
            worker.unit.resume()

    def _news(self, key: TaskKey, worker: _Worker) -> Iterator[WorkerReport]:
        """A report if the worker has changed, or has ended."""
        report = self._report(key, worker)
        if report.task_stage is TaskStage.FINISHED:
            self._stop(worker)
        if worker.unit.is_closed:
            report = self._report(key, worker)
            has_finished = report.task_stage is TaskStage.FINISHED
            stage = WorkerStage.FINISHED if has_finished else WorkerStage.OFFLINE
            task_stage = TaskStage.FINISHED if has_finished else TaskStage.UNSCHEDULED
            report = replace(report, worker_stage=stage, task_stage=task_stage)
            del self._workers[key]
            self._seen[key].ended = report
            yield report
        elif _what_counts(report) != _what_counts(worker.last):
            worker.last = report
            yield report

    def _report(self, key: TaskKey, worker: _Worker) -> WorkerReport:
        found = worker.unit.report()
        is_initing = found.stage is TaskStage.INITING
        return WorkerReport(
            task_id=key[1],
            worker_id=worker.id,
            worker_stage=WorkerStage.CREATING if is_initing else WorkerStage.ONLINE,
            task_stage=found.stage,
            stage_number=worker.stage_number,
            sequence=worker.last.sequence + 1,
            error=found.error,
            status=found.status,
        )


def _offline(task_id: TaskID, worker_id: WorkerID, stage_number: int = 0) -> WorkerReport:
    return WorkerReport(
        task_id=task_id,
        worker_id=worker_id,
        worker_stage=WorkerStage.OFFLINE,
        stage_number=stage_number,
    )


def _what_counts(report: WorkerReport) -> tuple[object, ...]:
    """What a master is told at once; the rest waits for its next question."""
    return (report.worker_stage, report.task_stage, report.stage_number, report.error)
