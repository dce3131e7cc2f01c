"""One cluster's metadata, on the fake etcd and on a real one."""

from __future__ import annotations

import pytest

from tests.coordination.metadata.cluster import SHOP, Cluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.etcd)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "real":
        return Cluster(request.getfixturevalue("real_client"))
    return Cluster(FakeEtcd(FakeClock()))


@pytest.fixture
def shop(cluster: Cluster) -> Cluster:
    cluster.operator.create(SHOP)
    return cluster
