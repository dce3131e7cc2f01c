"""What `Units` and `CheckpointAgent` of a data plane do together: a fake passes it, and the real
units must. A dump of one task is opened, paused, closed and opened again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import (
    CheckpointAgent,
    Checkpoints,
    CheckpointStatus,
    UnitHolder,
    Units,
    current_unit,
)
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.model import JobID, TaskID, WorkerID

JOB, TASK, EPOCH = JobID("copy"), TaskID("mysql-1"), 7
Step = Callable[[], None]
TURNS = 2000


def order(worker_id: int = 1, **fields: object) -> CreateWorker:
    made = CreateWorker(
        task_id=TASK,
        worker_id=WorkerID(worker_id),
        epoch=EPOCH,
        unit=Unit.DUMP,
        task_mode="full",
        cfg_mod_revision=0,
        stage=TaskStage.RUNNING,
        stage_number=0,
        is_fresh=True,
        needs_ext_storage=True,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


class UnitsContract:
    """A subclass has fixtures: `units` and `checkpoints`, of one data plane; `step`, which lets its
    work go on for a moment. The dump that `order` asks for has several chunks, and `step` does
    less than one of them, or one."""

    def test_a_dump_runs_to_its_end_and_stays_finished(self, units: Units, step: Step) -> None:
        woken: list[int] = []
        unit = units.open_unit(JOB, order(), lambda: woken.append(1))
        assert unit.report().stage is TaskStage.INITING
        self._until(step, lambda: unit.report().stage is TaskStage.RUNNING)
        self._until(step, lambda: unit.report().stage is TaskStage.FINISHED)
        assert woken
        self._close(unit, step)
        assert unit.report().stage is TaskStage.FINISHED
        assert not unit.report().error

    def test_a_paused_task_begins_paused(
        self, units: Units, checkpoints: CheckpointAgent, step: Step
    ) -> None:
        unit = units.open_unit(JOB, order(stage=TaskStage.PAUSED), lambda: None)
        self._until(step, lambda: unit.report().stage is TaskStage.PAUSED)
        self._stays(step, lambda: unit.report().stage is TaskStage.PAUSED)
        assert current_unit("full", self._read(checkpoints, step)) == (Unit.DUMP, True)
        unit.resume()
        self._until(step, lambda: unit.report().stage is TaskStage.FINISHED)

    def test_a_pause_ends_with_a_resume(self, units: Units, step: Step) -> None:
        unit = units.open_unit(JOB, order(), lambda: None)
        self._until(step, lambda: unit.report().stage is TaskStage.RUNNING)
        unit.pause()
        unit.pause()
        self._until(step, lambda: unit.report().stage is TaskStage.PAUSED)
        self._stays(step, lambda: unit.report().stage is TaskStage.PAUSED)
        unit.resume()
        unit.resume()
        self._until(step, lambda: unit.report().stage is TaskStage.FINISHED)

    def test_a_unit_that_was_closed_goes_on_from_its_checkpoint(
        self, units: Units, checkpoints: CheckpointAgent, step: Step
    ) -> None:
        unit = units.open_unit(JOB, order(), lambda: None)
        self._until(step, lambda: bool(self._read(checkpoints, step)))
        self._close(unit, step)
        found = self._read(checkpoints, step)
        assert found[Unit.DUMP] is CheckpointStatus.RUNNING
        assert current_unit("full", found) == (Unit.DUMP, False)
        again = units.open_unit(JOB, order(2, is_fresh=False), lambda: None)
        self._until(step, lambda: again.report().stage is TaskStage.FINISHED)
        self._close(again, step)
        assert current_unit("full", self._read(checkpoints, step)) == (Unit.LOAD, True)

    def test_a_closed_unit_can_be_asked_and_told_anything(self, units: Units, step: Step) -> None:
        unit = units.open_unit(JOB, order(), lambda: None)
        self._close(unit, step)
        for call in (unit.pause, unit.resume, unit.close):
            call()
        assert unit.is_closed
        assert unit.report().stage is not TaskStage.FINISHED

    def test_an_epoch_has_checkpoints_of_its_own(
        self, units: Units, checkpoints: CheckpointAgent, step: Step
    ) -> None:
        unit = units.open_unit(JOB, order(), lambda: None)
        self._until(step, lambda: unit.report().stage is TaskStage.FINISHED)
        self._close(unit, step)
        assert current_unit("full", self._read(checkpoints, step, EPOCH + 1)) == (Unit.DUMP, True)

    def test_what_is_removed_is_absent(
        self, units: Units, checkpoints: CheckpointAgent, step: Step
    ) -> None:
        unit = units.open_unit(JOB, order(), lambda: None)
        self._until(step, lambda: unit.report().stage is TaskStage.FINISHED)
        self._close(unit, step)
        self._until(step, lambda: checkpoints.remove(JOB))
        assert current_unit("full", self._read(checkpoints, step)) == (Unit.DUMP, True)

    # how

    @staticmethod
    def _until(step: Step, is_so: Callable[[], bool]) -> None:
        for _ in range(TURNS):
            if is_so():
                return
            step()
        raise AssertionError(f"not within {TURNS} turns")

    @staticmethod
    def _stays(step: Step, is_so: Callable[[], bool]) -> None:
        for _ in range(5):
            step()
            assert is_so()

    def _close(self, unit: UnitHolder, step: Step) -> None:
        unit.close()
        self._until(step, lambda: unit.is_closed)

    def _read(self, agent: CheckpointAgent, step: Step, epoch: int = EPOCH) -> Checkpoints:
        """A read that begins now."""
        found = agent.checkpoints(JOB, TASK, epoch)
        for _ in range(TURNS):
            if found is not None:
                return found
            step()
            found = agent.checkpoints(JOB, TASK, epoch)
        raise AssertionError("the checkpoints are not read")
