"""The contract suite over etcd: real and fake at once, and through an EtcdWorker."""

from __future__ import annotations

import pytest

from coordination.etcd.client import EtcdClient
from tests.contracts.controller_contract import ControllerContract
from tests.contracts.metadata_contract import MetadataContract
from tests.contracts.owner_contract import OwnerContract
from tests.coordination.metadata.etcd_cluster import EtcdCluster
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


class TestOnFakeEtcd(OwnerContract, ControllerContract, MetadataContract):
    @pytest.fixture
    def cluster(self) -> EtcdCluster:
        return EtcdCluster(FakeEtcd(FakeClock()))


@pytest.mark.etcd
class TestOnRealEtcd(OwnerContract, ControllerContract, MetadataContract):
    @pytest.fixture
    def cluster(self, real_client: EtcdClient) -> EtcdCluster:
        return EtcdCluster(real_client)
