"""The contract suite over both clients."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from coordination.etcd.etcd3_client import Etcd3Client
from coordination.model import Revision
from tests.contracts.etcd_client_contract import EtcdClientContract
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd


@pytest.mark.etcd
class TestEtcd3Client(EtcdClientContract):
    @pytest.fixture
    def client(self, own_client: Etcd3Client) -> Etcd3Client:
        return own_client

    @pytest.fixture
    def compact(self, client: Etcd3Client) -> Callable[[Revision], None]:
        return client.compact

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return time.sleep


class TestFakeEtcd(EtcdClientContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def client(self, clock: FakeClock) -> FakeEtcd:
        return FakeEtcd(clock)

    @pytest.fixture
    def compact(self, client: FakeEtcd) -> Callable[[Revision], None]:
        return client.compact

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> Callable[[float], None]:
        return clock.advance
