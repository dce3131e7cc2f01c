"""One cluster's jobs, on the fake etcd and on a real one."""

from __future__ import annotations

import uuid

import pytest

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.jobs_state import JobReactorState
from coordination.jobmaster.records import Job, UnitState
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup
from tests.coordination.jobmaster.jobs import COPY
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

    def commit(self, *groups: PatchGroup) -> None:
        commit_once(self.client, groups, keys.delete_counter_key(self.id))


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "real":
        return Store(request.getfixturevalue("real_client"))
    return Store(FakeEtcd(FakeClock()))
