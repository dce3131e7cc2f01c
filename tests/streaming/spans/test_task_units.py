"""The real units of a job's tasks: they pass the contract, and lead to a changefeed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import Fenced
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, Put
from coordination.jobmaster.messages import CreateWorker
from coordination.jobmaster.ports import CheckpointStatus, current_unit
from coordination.jobmaster.records import Job, Task, TaskCfg
from coordination.jobmaster.stages import TaskStage
from coordination.jobmaster.units import Unit
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.feed_state import Decision, FeedEvent, known_state
from coordination.metadata.lookup import find_changefeed
from coordination.metadata.records import FeedState, dump
from coordination.model import JobID
from coordination.orchestrator.commit_once import commit_once
from streaming.source.dump.silent_reads import WATCH
from streaming.spans import task_units
from streaming.spans.task_checkpoints import TaskCheckpoints, changefeed_id
from streaming.spans.task_units import TaskUnits
from tests.contracts.units_contract import EPOCH, JOB, TASK, UnitsContract, order
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.own_lines import own_lines
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

pytestmark = pytest.mark.mariadb

NAME = "task_units"
CLUSTER = "units"


@pytest.fixture
def config(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[dict[str, Any]]:
    with mariadb.database(NAME):
        mariadb.execute(f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY, v VARCHAR(20))")
        mariadb.insert(f"{NAME}.t", [(number, "v") for number in range(2_000)])
        yield {
            "source-uri": f"mysql://root@{mariadb.host}:{mariadb.port}/"
            "?task-mode=all&chunk-rows=20&connections=1",
            "sink-uri": f"delta://{tmp_path / 'lake'}",
            "document": {"filter": {"rules": [f"{NAME}.*"]}},
        }


@pytest.fixture
def client(config: dict[str, Any]) -> EtcdClient:
    """The job is there, in the contract's epoch."""
    client = FakeEtcd(FakeClock())
    task = Task(cfg=TaskCfg(task_mode="all", config=config), epoch=EPOCH)
    client.txn((), (Put(keys.job_key(CLUSTER, JOB), dump(Job(tasks={TASK: task}, epoch=EPOCH))),))
    return client


class _Configured:
    """Orders of the contract have no configuration."""

    def __init__(self, units: TaskUnits, config: dict[str, Any]) -> None:
        self._units = units
        self._config = config

    def open_unit(self, job_id: JobID, order: CreateWorker, wake: Any) -> Any:
        return self._units.open_unit(job_id, replace(order, config=self._config), wake)


@pytest.fixture
def units(client: EtcdClient, config: dict[str, Any], tmp_path: Path) -> Any:
    return _Configured(
        TaskUnits(client, CLUSTER, lambda _: tmp_path / "staging", check=lambda: None), config
    )


@pytest.fixture
def checkpoints(client: EtcdClient, tmp_path: Path) -> TaskCheckpoints:
    return TaskCheckpoints(
        client, CLUSTER, lambda _: tmp_path / "staging", lambda: None, check=lambda: None
    )


class TestTaskUnits(UnitsContract):
    @pytest.fixture
    def step(self) -> Any:
        return lambda: time.sleep(0.005)

    def test_the_units_of_a_task_lead_to_a_changefeed(
        self,
        units: Any,
        client: EtcdClient,
        step: Any,
        tmp_path: Path,
    ) -> None:
        for number, unit in enumerate((Unit.DUMP, Unit.LOAD), 1):
            opened = units.open_unit(JOB, order(number, unit=unit, task_mode="all"), lambda: None)
            self._until(step, lambda now=opened: now.report().stage is TaskStage.FINISHED)
            told = opened.report().status
            assert (told["tables"], told["whole_tables"], told["rows"]) == (1, 1, 2_000)
            self._close(opened, step)
        assert len(read_rows(tmp_path / "lake" / NAME / "t")) == 2_000
        sync = units.open_unit(JOB, order(3, unit=Unit.SYNC, task_mode="all"), lambda: None)
        self._until(step, lambda: "state" in sync.report().status)
        assert sync.report().stage is TaskStage.RUNNING
        name = keys.ChangefeedName(changefeed_id(JOB, TASK))
        found = find_changefeed(client, CLUSTER, name)
        assert found is not None
        assert found.known_info.start_ts > 0  # where the copy has left the tables
        sync.pause()
        self._until(step, lambda: sync.report().stage is TaskStage.PAUSED)
        stopped = find_changefeed(client, CLUSTER, name)
        assert stopped is not None
        assert known_state(stopped.known_info) is FeedState.STOPPED
        self._close(sync, step)
        units._config["document"] = {"filter": {"rules": [f"{NAME}.t"]}}  # the task is updated
        sync = units.open_unit(JOB, order(4, unit=Unit.SYNC, task_mode="all"), lambda: None)
        self._until(step, lambda: sync.report().status.get("state") == "normal")
        updated = find_changefeed(client, CLUSTER, name)
        assert updated is not None
        assert (updated.known_info.config or {})["filter"] == {"rules": [f"{NAME}.t"]}
        ChangefeedOperator(client, CLUSTER).pause(name)  # by somebody else
        self._until(step, lambda: sync.report().stage is TaskStage.ERROR)
        assert "paused beside its task" in sync.report().error
        self._close(sync, step)

    def test_a_changefeed_goes_on_while_its_unit_moves(
        self, units: Any, client: EtcdClient, config: dict[str, Any], step: Any
    ) -> None:
        name = keys.ChangefeedName(changefeed_id(JOB, TASK))

        def state() -> FeedState:
            found = find_changefeed(client, CLUSTER, name)
            assert found is not None
            epochs.add(found.known_info.epoch)
            return known_state(found.known_info)

        epochs: set[int] = set()
        for number in (1, 2):
            opened = units.open_unit(JOB, order(number, unit=Unit.SYNC), lambda: None)
            self._until(step, lambda now=opened: now.report().status.get("state") == "normal")
            self._close(opened, step)
            assert state() is FeedState.NORMAL
        assert len(epochs) == 1, "it was not begun again"
        config["document"] = {"filter": {"rules": [f"{NAME}.t"]}}  # the task is updated
        opened = units.open_unit(JOB, order(3, unit=Unit.SYNC), lambda: None)
        self._until(step, lambda: opened.report().status.get("state") == "normal")
        found = find_changefeed(client, CLUSTER, name)
        assert found is not None
        assert (found.known_info.config or {})["filter"] == {"rules": [f"{NAME}.t"]}
        opened.pause()
        opened.close()  # amid the pause
        self._until(step, lambda: opened.is_closed)
        assert state() is FeedState.STOPPED

    def test_a_copy_says_for_which_lock_it_waits(
        self,
        units: Any,
        step: Any,
        mariadb: DatabaseServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(WATCH, "_says_after_s", 0.3)
        with mariadb.connect(database=NAME) as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
            opened = units.open_unit(JOB, order(1, unit=Unit.DUMP, task_mode="all"), lambda: None)
            self._until(step, lambda: "waits_for" in opened.report().status)
            told = opened.report().status["waits_for"]
            assert f"{NAME}.t: Waiting for table metadata lock" in told
        self._until(step, lambda: opened.report().stage is TaskStage.FINISHED)
        assert "waits_for" not in opened.report().status
        self._close(opened, step)

    def test_a_reload_that_ends_between_two_looks_is_no_pause(
        self, units: Any, client: EtcdClient, step: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = keys.ChangefeedName(changefeed_id(JOB, TASK))
        operator, resumed = ChangefeedOperator(client, CLUSTER), []

        def is_reloading(_: object) -> bool:
            """The leader ends the order just before it is looked for."""
            found = find_changefeed(client, CLUSTER, name)
            if found is not None and known_state(found.known_info) is FeedState.STOPPED:
                operator.resume(name)
                resumed.append(name)
            return False

        monkeypatch.setattr(task_units, "is_reloading", is_reloading)
        opened = units.open_unit(JOB, order(1, unit=Unit.SYNC), lambda: None)
        self._until(step, lambda: opened.report().status.get("state") == "normal")
        operator.pause(name)
        self._until(step, lambda: resumed and opened.report().status.get("state") == "normal")
        assert opened.report().stage is TaskStage.RUNNING
        self._close(opened, step)

    def test_a_pause_amid_a_reload_says_for_what_it_waits(
        self,
        units: Any,
        step: Any,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        opened = units.open_unit(JOB, order(1, unit=Unit.SYNC), lambda: None)
        self._until(step, lambda: opened.report().status.get("state") == "normal")
        monkeypatch.setattr(task_units, "is_reloading", lambda _: True)
        caplog.set_level(logging.INFO)
        opened.pause()
        self._until(step, lambda: "waits_for" in opened.report().status)
        told = opened.report()
        assert told.stage is TaskStage.PAUSING
        assert "a table is loaded anew (`tidelake table reload`)" in told.status["waits_for"]
        monkeypatch.setattr(task_units, "is_reloading", lambda _: False)
        self._until(step, lambda: opened.report().stage is TaskStage.PAUSED)
        assert len([each for each in own_lines(caplog) if "the task waits" in each]) == 1
        assert "waits_for" not in opened.report().status
        self._close(opened, step)

    def test_tables_that_an_updated_task_takes_join_its_changefeed(
        self,
        mariadb: DatabaseServer,
        units: Any,
        config: dict[str, Any],
        step: Any,
        tmp_path: Path,
    ) -> None:
        for number, unit in enumerate((Unit.DUMP, Unit.LOAD), 1):
            opened = units.open_unit(JOB, order(number, unit=unit, task_mode="all"), lambda: None)
            self._until(step, lambda now=opened: now.report().stage is TaskStage.FINISHED)
            self._close(opened, step)
        opened = units.open_unit(JOB, order(3, unit=Unit.SYNC, task_mode="all"), lambda: None)
        self._until(step, lambda: opened.report().status.get("state") == "normal")
        self._close(opened, step)
        with mariadb.database(f"{NAME}_more"):
            mariadb.execute(
                f"CREATE TABLE {NAME}_more.t (id INT PRIMARY KEY)",
                f"INSERT INTO {NAME}_more.t VALUES (1), (2)",
            )
            config["document"] = {"filter": {"rules": [f"{NAME}*.t"]}}
            opened = units.open_unit(JOB, order(4, unit=Unit.SYNC, task_mode="all"), lambda: None)
            self._until(step, lambda: opened.report().status.get("state") == "normal")
            self._close(opened, step)
        assert len(read_rows(tmp_path / "lake" / f"{NAME}_more" / "t")) == 2

    def test_a_sync_without_trust_leaves_the_changefeed_to_the_next_worker(
        self, client: EtcdClient, config: dict[str, Any], step: Any, tmp_path: Path
    ) -> None:
        is_trusted = [True]

        def check() -> None:
            if not is_trusted[0]:
                raise Fenced("the session is lost")

        units = TaskUnits(client, CLUSTER, lambda _: tmp_path / "staging", check=check)
        opened = _Configured(units, config).open_unit(JOB, order(1, unit=Unit.SYNC), lambda: None)
        self._until(step, lambda: "state" in opened.report().status)
        is_trusted[0] = False
        opened.pause()
        self._until(step, lambda: opened.report().stage is TaskStage.ERROR)
        self._close(opened, step)
        found = find_changefeed(client, CLUSTER, keys.ChangefeedName(changefeed_id(JOB, TASK)))
        assert found is not None
        assert known_state(found.known_info) is FeedState.NORMAL

    def test_the_load_of_a_full_task_ends_where_its_changefeed_has_come_to(
        self,
        units: Any,
        client: EtcdClient,
        config: dict[str, Any],
        step: Any,
        tmp_path: Path,
    ) -> None:
        name = keys.ChangefeedName(changefeed_id(JOB, TASK))
        config["source-uri"] = config["source-uri"].replace("=all", "=full")
        task = Task(cfg=TaskCfg(task_mode="full", config=config), epoch=EPOCH)
        job = dump(Job(tasks={TASK: task}, epoch=EPOCH))
        client.txn((), (Put(keys.job_key(CLUSTER, JOB), job),))
        asked = TaskCheckpoints(
            client, CLUSTER, lambda _: tmp_path / "staging", lambda: None, check=lambda: None
        )

        def checkpoints() -> Any:
            while (found := asked.checkpoints(JOB, TASK, EPOCH)) is None:
                step()
            return found

        dumped = units.open_unit(JOB, order(1), lambda: None)
        self._until(step, lambda: dumped.report().stage is TaskStage.FINISHED)
        loaded = units.open_unit(JOB, order(2, unit=Unit.LOAD), lambda: None)
        self._until(step, lambda: loaded.report().status.get("state") == "normal")
        found = find_changefeed(client, CLUSTER, name)
        assert found is not None
        assert found.known_info.target_ts == found.known_info.start_ts + 1  # an idle log
        assert loaded.report().stage is TaskStage.RUNNING
        assert current_unit("full", checkpoints()) == (Unit.LOAD, False)
        writes = found.writes().feed_event(Decision(event=FeedEvent.FINISH))
        commit_once(client, (writes,), keys.delete_counter_key(CLUSTER))
        self._until(step, lambda: loaded.report().stage is TaskStage.FINISHED)
        assert current_unit("full", checkpoints()) == (Unit.LOAD, False)
        assert checkpoints()[Unit.LOAD] is CheckpointStatus.FINISHED

        config["source-uri"] = config["source-uri"].replace("=full", "=all")  # it is updated
        sync = units.open_unit(JOB, order(3, unit=Unit.SYNC, task_mode="all"), lambda: None)
        self._until(step, lambda: sync.report().status.get("state") == "normal")
        found = find_changefeed(client, CLUSTER, name)
        assert found is not None
        assert found.known_info.target_ts == 0
        self._close(sync, step)

    def test_a_removal_asks_the_trust_before_each_of_its_steps(
        self, client: EtcdClient, tmp_path: Path, step: Any
    ) -> None:
        asked: list[int] = []

        def check() -> None:
            asked.append(1)
            if len(asked) > 1:
                raise Fenced("the session is lost")

        staged = tmp_path / "staging" / f"epoch-{EPOCH}"
        staged.mkdir(parents=True)
        removal = TaskCheckpoints(
            client, CLUSTER, lambda _: tmp_path / "staging", lambda: None, check=check
        )
        with pytest.raises(Fenced):
            self._until(step, lambda: removal.remove(JOB))
        assert staged.exists()

    def test_a_load_without_staged_files_says_so(self, units: Any, step: Any) -> None:
        opened = units.open_unit(JOB, order(1, unit=Unit.LOAD, task_mode="all"), lambda: None)
        self._until(step, lambda: opened.report().stage is TaskStage.ERROR)
        assert "no whole copy is staged" in opened.report().error
        self._close(opened, step)
