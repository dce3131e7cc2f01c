"""Clients of the one real etcd of all tests, and an etcd of its own for a test that breaks it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from conf.settings import EtcdSettings
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect


@pytest.fixture(scope="module")
def _breakable() -> Iterator[EmbeddedEtcd]:
    with EmbeddedEtcd() as running:
        yield running


@pytest.fixture
def own_etcd(_breakable: EmbeddedEtcd) -> Iterator[EmbeddedEtcd]:
    """For tests that freeze, kill or compact it; what they put in it stays for the module."""
    _breakable.start()
    yield _breakable
    os.kill(_breakable.pid, signal.SIGCONT)


@pytest.fixture
def real_client(etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    yield client
    client.close()
