"""One cluster's jobs, on the fake etcd and on a real one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, get
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.jobs_state import JobReactorState
from coordination.jobmaster.records import Job, UnitState
from coordination.model import TaskID, WorkerID
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup
from tests.coordination.jobmaster.jobs import COPY, T1, T2, cfg
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


class Store:
    """The jobs of a cluster in etcd."""

    def __init__(self, client: EtcdClient) -> None:
        self.client = client
        self.id = f"c{uuid.uuid4().hex}"
        self.operator = JobOperator(client, self.id)

    @property
    def found(self) -> JobReactorState:
        return self.operator.read(COPY)

    @property
    def job(self) -> Job:
        job = self.found.job
        assert isinstance(job, Job)
        return job

    @property
    def unit_state(self) -> UnitState:
        state = self.found.unit_state
        assert isinstance(state, UnitState)
        return state

    def worker(self, task_id: TaskID = T1) -> WorkerID:
        """The task's present worker."""
        return self.unit_state.current[task_id].worker_id

    def raw(self, kind: str) -> dict[str, Any]:
        """The JSON of the job (``job``) or of its unit state (``unit-state``)."""
        found = get(self.client, f"/tidelake/{self.id}/data-flow/dm/{kind}/copy")
        assert found is not None
        return dict(json.loads(found.value))

    def commit(self, *groups: PatchGroup) -> None:
        commit_once(self.client, groups, keys.delete_counter_key(self.id))


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "real":
        return Store(request.getfixturevalue("real_client"))
    return Store(FakeEtcd(FakeClock()))


@pytest.fixture
def copy(store: Store) -> Store:
    store.operator.create(COPY, {T1: cfg(), T2: cfg(filters=["x"])})
    return store
