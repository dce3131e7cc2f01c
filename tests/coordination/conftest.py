"""Clients of the one real etcd of all tests, and an etcd for those that break or compact it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def client_of(etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
    yield client
    client.close()


@pytest.fixture
def real_client(etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    with client_of(etcd) as client:
        yield client


@pytest.fixture
def own_client(own_etcd: EmbeddedEtcd) -> Iterator[EtcdClient]:
    """May compact."""
    with client_of(own_etcd) as client:
        yield client
