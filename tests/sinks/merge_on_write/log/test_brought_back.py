"""Which commits of others bring an older state of a table back, and up to where it is whole."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.actions import DataFile, Json
from sinks.merge_on_write.log.brought_back import ACCEPTED, BroughtBack, LogNow, brought_back, look
from sinks.merge_on_write.log.paths import commit_path
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import LastSeen, TableBroughtBack
from sinks.target.table_properties import CHANGEFEED
from tests.contracts.engine_contract import origin
from tests.sinks.merge_on_write.orders import NAME, made, target, write

LAST = 12  # version and limit of the last of our writes; each one has its limit as its version


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("orders") / "owned", origin(commit_ts=1))


class Others:
    """Commits of other writers, by hand."""

    def __init__(self, uri: str) -> None:
        self.storage = LocalStorage(Path(uri))

    def at(self, version: int | None = None) -> LogState:
        state = read_log(self.storage, version=version)
        assert state is not None
        return state

    def commit(self, operation: str, actions: list[Json], **parameters: str) -> int:
        version = self.at().version + 1
        info = {"operation": operation, "operationParameters": parameters, "engineInfo": "theirs"}
        lines = "\n".join(map(json.dumps, [{"commitInfo": info}, *actions]))
        self.storage.write(commit_path(version), lines.encode())
        return version

    def replaced_by(self, files: dict[str, DataFile], *, changes: bool = True) -> list[Json]:
        there = self.at().files
        gone = [f for path, f in there.items() if files.get(path) != f]
        come = [f for path, f in files.items() if there.get(path) != f]
        return [
            *(each.remove(0, data_change=changes) for each in gone),
            *(each.add(data_change=changes) for each in come),
        ]

    def back_to(self, source: int, operation: str = "RESTORE", **named: str) -> int:
        return self.commit(operation, self.replaced_by(self.at(source).files), **named)

    def restore(self, version: int) -> int:
        return self.back_to(version, version=str(version))

    def one_file(self) -> dict[str, DataFile]:
        """Whatever is in it."""
        file = next(iter(self.at().files.values())).changed(path=f"{uuid.uuid4()}.parquet")
        return {file.path: file}

    def found(self, above: int = LAST) -> BroughtBack | None:
        return brought_back(self.storage, above=above, upto=self.at().version)

    def whole_ts(self, above: int = LAST) -> int | None:
        found = self.found(above)
        assert found is not None
        return found.whole_ts


@pytest.fixture
def engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


@pytest.fixture
def uri(orders: str, tmp_path: Path) -> str:
    return str(shutil.copytree(orders, tmp_path / "table"))


@pytest.fixture
def others(uri: str) -> Others:
    return Others(uri)


@pytest.mark.parametrize("version", [1, 5, 11])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_restore_by_version_or_by_time(others: Others, version: int, is_named: bool) -> None:
    named = {"version": str(version)} if is_named else {"timestamp": "2026-01-01"}
    others.back_to(version, **named)
    found = others.found()
    assert found is not None
    assert (found.version, found.source, found.whole_ts) == (13, version, version)


def test_to_before_its_first_row(others: Others) -> None:
    others.restore(0)
    assert others.whole_ts() == 0  # below its CREATE TABLE


def test_by_an_operation_that_says_nothing_of_it(others: Others) -> None:
    others.back_to(7, "WRITE", mode="Overwrite")
    assert others.whole_ts() == 7


@pytest.mark.parametrize("operation", ["WRITE", "CREATE OR REPLACE TABLE AS SELECT", "CLONE", ""])
def test_rows_that_nobody_knows(others: Others, operation: str) -> None:
    others.commit(operation, others.replaced_by(others.one_file()))
    found = others.found()
    assert found is not None
    assert (found.source, found.whole_ts, found.begin_ts) == (None, None, 0)
    assert "--overwrite-checkpoint-ts 0, which is before" in found.sentence(NAME)


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE", "TRUNCATE"])
def test_what_operators_do_with_rows_is_theirs(others: Others, operation: str) -> None:
    others.commit(operation, others.replaced_by(others.one_file()))
    assert others.found() is None


@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG", "REWRITE", "anything"])
def test_the_same_rows_in_other_files(others: Others, operation: str) -> None:
    others.commit(operation, others.replaced_by(others.one_file(), changes=False))
    assert others.found() is None


def test_commits_that_take_nothing_away(others: Others) -> None:
    for operation in ("SET TBLPROPERTIES", "ADD CONSTRAINT", "VACUUM START", "VACUUM END", "WRITE"):
        others.commit(operation, [])
    assert others.found() is None


def test_a_restore_that_takes_back_what_others_did(others: Others) -> None:
    others.commit("DELETE", others.replaced_by(others.one_file()))
    others.restore(LAST)
    assert others.found() is None


def test_a_restore_that_is_undone(others: Others) -> None:
    others.restore(5)
    others.restore(LAST)
    assert others.found() is None


def test_several_of_them(others: Others, engine: MergeOnWriteEngine, uri: str) -> None:
    others.restore(8)
    others.restore(5)
    assert others.whole_ts() == 5
    others.restore(8)
    assert others.whole_ts() == 8
    engine.apply(write(uri, 20, {1: "ours"}))  # by who did not look
    assert others.whole_ts() == 8
    others.restore(16)
    assert others.whole_ts() == 8, "it is as it was then"
    others.commit("WRITE", others.replaced_by(others.one_file()))
    others.restore(16)
    assert others.whole_ts() == 8


def test_above_what_was_seen_only(others: Others) -> None:
    others.restore(5)
    assert others.found(above=13) is None


def test_the_commits_of_before_may_be_gone(others: Others) -> None:
    DeltaTable(others.storage.uri, version=10).create_checkpoint()
    for version in range(11):
        (Path(others.storage.uri) / commit_path(version)).unlink()
    others.restore(10)
    assert others.whole_ts() == 10
    others.commit("WRITE", others.replaced_by(others.one_file()))
    found = others.found()
    assert found is not None
    assert "with --overwrite-checkpoint-ts TS, or to any ts" in found.sentence(NAME)


def now(others: Others, app_id: str) -> LogNow:
    state = others.at()
    assert state.metadata is not None
    identity = Ts(state.transactions[app_id].version) if app_id in state.transactions else None
    return LogNow(version=state.version, identity=identity, properties=state.metadata.configuration)


@pytest.mark.parametrize(
    "last", [LastSeen(15, Ts(15)), LastSeen(LAST, Ts(15)), LastSeen(9, Ts(13))]
)
def test_a_log_that_went_back(others: Others, uri: str, last: LastSeen) -> None:
    """Shorter than it was, or with an older identity at the same length or beyond."""
    found = look(others.storage, last, now(others, target(uri).app_id))
    assert found is not None
    assert found.whole_ts == LAST
    assert f"rewind with --overwrite-checkpoint-ts {LAST}" in found.sentence(NAME)


def test_an_operator_may_take_it_as_it_is(others: Others, uri: str) -> None:
    version, last = others.restore(5), LastSeen(LAST, Ts(LAST))
    found = look(others.storage, last, at := now(others, target(uri).app_id))
    assert found is not None
    assert f"'{ACCEPTED}' = '{version}'" in found.sentence(NAME)
    for accepted, holds in ((version - 1, True), (version, False), (version + 1, False)):
        properties = {**at.properties, ACCEPTED: str(accepted)}
        told = LogNow(version=at.version, identity=at.identity, properties=properties)
        assert (look(others.storage, last, told) is not None) == holds


def test_a_table_that_was_replaced_is_not_rewound(others: Others, uri: str) -> None:
    others.commit("CREATE OR REPLACE TABLE", others.replaced_by(others.one_file()))
    at = now(others, target(uri).app_id)
    properties = {k: v for k, v in at.properties.items() if k != CHANGEFEED}
    told = LogNow(version=at.version, identity=at.identity, properties=properties)
    found = look(others.storage, LastSeen(LAST, Ts(LAST)), told)
    assert found is not None
    assert "--overwrite-checkpoint-ts" not in found.sentence(NAME)
    assert f"TO VERSION AS OF {LAST}" in found.sentence(NAME)


def test_the_engine_follows_the_log_and_refuses(
    others: Others, engine: MergeOnWriteEngine, uri: str
) -> None:
    first = replace(write(uri, 20, {1: "ours"}), last=LastSeen(LAST, Ts(LAST)))
    version = engine.apply(first).version
    others.commit("DELETE", others.replaced_by(others.one_file()))
    others.restore(version - 2)
    second = replace(write(uri, 21, {1: "ours"}), last=LastSeen(version, Ts(20)))
    with pytest.raises(TableBroughtBack, match=f"rewind with --overwrite-checkpoint-ts {LAST - 1}"):
        engine.apply(second)
    others.restore(version)
    engine.apply(second)
