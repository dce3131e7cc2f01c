"""A table's folder of each kind: local, in memory, and on an S3 server with conditional puts. And
the table of orders, with two engines that write it.

By hand also on other stores, with their options in the environment: the URIs of folders in
``TIDELAKE_TEST_STORAGES``, such as ``abfss://lake@devstoreaccount1.dfs.core.windows.net/tests``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log import commit as commits
from sinks.storage.local_storage import LocalStorage
from sinks.storage.object_storage import ObjectStorage
from sinks.storage.open_storage import open_storage
from sinks.storage.table_storage import TableStorage
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.orders import made


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "a table~41 é")


OTHERS = os.environ.get("TIDELAKE_TEST_STORAGES", "").split()


@pytest.fixture(params=["local", "memory", "s3", *OTHERS])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> TableStorage:
    if request.param == "local":
        return LocalStorage(tmp_path / "a table~41 é")
    if request.param == "memory":
        return ObjectStorage(MemoryStore(), "lake/a table~41 é", "memory:///lake/a table~41 é")
    if request.param in OTHERS:
        return open_storage(f"{request.param}/{uuid.uuid4()}/a table~41 é", {})
    s3: S3Server = request.getfixturevalue("s3")
    return open_storage(f"s3://{s3.bucket}/{uuid.uuid4()}/a table~41 é", s3.options)


@pytest.fixture(autouse=True)
def disk_that_never_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here cuts the power; that everything is synced in order has a test of its own."""
    if request.path.name != "test_local_storage.py":
        monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries to commit."""
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of orders, to copy."""
    return made(tmp_path_factory.mktemp("orders") / "table")


@pytest.fixture
def uri(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "a table~41 é"))


def new_engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


engine = pytest.fixture(new_engine, name="engine")
other = pytest.fixture(new_engine, name="other")
