"""The ground for workers: each test runs on the fake etcd and on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordination.orchestrator.ground import FaultyClient, Ground, real_ground
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "real":
        made = real_ground(request.getfixturevalue("own_client"))
    else:
        clock = FakeClock()
        etcd = FakeEtcd(clock)
        made = Ground(client=etcd, clock=clock, compact=etcd.compact)
    yield made
    made.close()


@pytest.fixture
def faulty(ground: Ground) -> FaultyClient:
    return FaultyClient(ground.client)
