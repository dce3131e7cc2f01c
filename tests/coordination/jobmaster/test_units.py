"""Task modes and their units: where a task begins, goes on and ends."""

from __future__ import annotations

import pytest

from coordination.jobmaster.ports import Checkpoints, CheckpointStatus, current_unit, is_fresh
from coordination.jobmaster.units import (
    TaskMode,
    Unit,
    UnitOutsideMode,
    UnknownTaskMode,
    extends,
    local_resources,
    needs_ext_storage,
    next_unit,
    unit_sequence,
)
from coordination.model import JobID, TaskID

DUMP, LOAD, SYNC = Unit.DUMP, Unit.LOAD, Unit.SYNC
ABSENT, INIT = CheckpointStatus.ABSENT, CheckpointStatus.INIT
RUNNING, FINISHED = CheckpointStatus.RUNNING, CheckpointStatus.FINISHED


@pytest.mark.parametrize(
    ("mode", "units"),
    [
        ("all", (DUMP, LOAD, SYNC)),
        ("full", (DUMP, LOAD)),
        ("incremental", (SYNC,)),
        ("dump", (DUMP,)),
        ("load&sync", (LOAD, SYNC)),
    ],
)
def test_the_units_of_a_mode(mode: str, units: tuple[Unit, ...]) -> None:
    assert unit_sequence(mode) == units
    assert [next_unit(mode, unit) for unit in units] == [*units[1:], None]


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(
        UnknownTaskMode, match="task-mode 'everything' is not known: use one of all"
    ):
        current_unit("everything", {})


def test_a_unit_outside_its_mode_is_an_error_and_begins_nothing() -> None:
    with pytest.raises(UnitOutsideMode, match=r"last unit was sync, which task-mode 'full'"):
        next_unit("full", SYNC)


@pytest.mark.parametrize(
    ("mode", "checkpoints", "expected"),
    [
        ("full", {}, (DUMP, True)),
        ("full", {LOAD: RUNNING}, (LOAD, False)),
        ("full", {DUMP: FINISHED, LOAD: INIT}, (LOAD, True)),  # DM: the dump again
        ("full", {DUMP: FINISHED, LOAD: FINISHED}, (LOAD, False)),
        ("all", {DUMP: FINISHED, LOAD: FINISHED}, (SYNC, True)),
        ("dump", {DUMP: FINISHED}, (DUMP, False)),
        ("full", {DUMP: RUNNING}, (DUMP, False)),
        ("all", {}, (DUMP, True)),
        ("all", {DUMP: FINISHED, LOAD: RUNNING}, (LOAD, False)),
        ("all", {DUMP: FINISHED, LOAD: FINISHED, SYNC: RUNNING}, (SYNC, False)),
        ("all", {SYNC: RUNNING}, (SYNC, False)),
        ("incremental", {}, (SYNC, True)),
        ("incremental", {SYNC: RUNNING}, (SYNC, False)),
        ("incremental", {DUMP: FINISHED}, (SYNC, True)),
        ("load&sync", {DUMP: FINISHED}, (LOAD, True)),
    ],
)
def test_a_task_goes_on_after_the_last_checkpoint_that_it_has(
    mode: str, checkpoints: Checkpoints, expected: tuple[Unit, bool]
) -> None:
    assert current_unit(mode, checkpoints) == expected


@pytest.mark.parametrize(
    ("unit", "status", "fresh"),
    [
        (DUMP, ABSENT, True),
        (DUMP, RUNNING, False),  # DM's dump is always fresh; ours goes on with its next chunk
        (LOAD, ABSENT, True),
        (LOAD, INIT, True),
        (LOAD, RUNNING, False),
        (LOAD, FINISHED, False),
        (SYNC, ABSENT, True),
        (SYNC, RUNNING, False),
    ],
)
def test_a_unit_is_fresh_by_its_checkpoint(
    unit: Unit, status: CheckpointStatus, fresh: bool
) -> None:
    assert is_fresh({unit: status}, unit) is fresh


def test_what_a_unit_needs() -> None:
    job, task = JobID("copy"), TaskID("m1")
    staged = ("/local/copy-m1",)

    def resources(mode: str, unit: Unit, fresh: bool) -> tuple[str, ...]:
        return local_resources(job, task, mode, unit, is_fresh=fresh)

    assert resources("all", DUMP, True) == ()
    assert resources("all", LOAD, True) == resources("all", LOAD, False) == staged
    assert resources("all", SYNC, True) == staged
    assert resources("all", SYNC, False) == resources("incremental", SYNC, True) == ()
    assert resources("load&sync", LOAD, True) == ()
    assert [needs_ext_storage(unit, is_fresh=False) for unit in Unit] == [True, True, False]
    assert all(needs_ext_storage(unit, is_fresh=True) for unit in Unit)


def test_a_mode_goes_on_in_another_that_begins_with_its_units() -> None:
    pairs = {(a, b) for a in TaskMode for b in TaskMode if a is not b and extends(b, a)}
    assert pairs == {("dump", "full"), ("dump", "all"), ("full", "all")}
