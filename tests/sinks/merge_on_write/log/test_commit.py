"""The put is a compare-and-set, whatever storage and other writers do to it."""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.actions import AppTransaction
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.commit import (
    LostRace,
    TooLate,
    commit,
    create_table,
    prove_no_other_lock,
)
from sinks.merge_on_write.log.paths import LOG, checkpoint_path, commit_path
from sinks.merge_on_write.log.reader import follow, read_log
from sinks.merge_on_write.log.state import LogState, nonce_of, parse_commit
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import open_storage
from sinks.storage.table_storage import TableStorage
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, failing, once
from tests.sinks.merge_on_write.log_tables import (
    CLOCK,
    add_files,
    assert_as_read,
    assert_same,
    data_file,
    make,
    metadata,
    now_ms,
    protocol,
    put,
)

UNKNOWN = OSError("the storage did not answer")


def info_of(storage: TableStorage, version: int) -> dict[str, object]:
    """The commitInfo, which is the first action."""
    found: dict[str, object] = parse_commit(storage.read(commit_path(version)))[0]["commitInfo"]
    return found


def test_a_commit_says_what_it_is(storage: TableStorage):
    state = make(storage)
    txn = AppTransaction(app_id="app", version=5, last_updated_ms=3).to_json()
    version = commit(
        storage,
        state,
        [txn, data_file("a b.parquet").add(data_change=True)],
        operation="MERGE",
        user_metadata="{}",
        now_ms=1234,
        followed_at=CLOCK.monotonic(),
    )
    assert (version, state.version) == (1, 1)
    info = info_of(storage, 1)
    assert info.pop("tidelakeNonce")
    assert info == {
        "timestamp": 1234,
        "operation": "MERGE",
        "operationParameters": {},
        "engineInfo": "tidelake",
        "isBlindAppend": False,
        "userMetadata": "{}",
    }
    assert_as_read(storage, state)


def test_delta_rs_reads_and_continues_it(local: LocalStorage):
    state = make(local)
    add_files(local, state, "a.parquet")
    table = DeltaTable(local.uri)
    assert (table.version(), table.transaction_version("app")) == (1, 0)
    assert [uri.rpartition("/")[2] for uri in table.file_uris()] == ["a.parquet"]
    table.alter.set_table_properties({"some": "thing"}, raise_if_not_exists=False)
    follow(local, state)
    assert state.metadata is not None
    assert state.metadata.configuration["some"] == "thing"
    add_files(local, state, "b.parquet")
    assert DeltaTable(local.uri).version() == 3
    assert_as_read(local, state)


def test_names_of_files_last_before_the_commit_does(local: LocalStorage):
    """A power cut must not leave a commit whose files are not in their folder."""
    steps: list[str] = []

    class Told(FaultyStorage):
        def sync_folder(self, path: str) -> None:
            steps.append(path)
            super().sync_folder(path)

    told = Told(local)
    state = make(told)
    local.write("x=a b/part.parquet", b"")
    told.before = lambda _path: steps.append("put")
    files = [data_file("x=a%20b/part.parquet"), data_file("part.parquet", vector=1)]
    put(told, state, [each.add(data_change=True) for each in files])
    assert sorted(steps[:-1]) == ["", "x=a b"]
    assert steps[-1] == "put"


def test_a_lost_race_is_told_and_changes_nothing(storage: TableStorage):
    state = make(storage)
    other = state.copy()
    add_files(storage, other, "theirs.parquet")
    before = state.copy()
    with pytest.raises(LostRace, match="another commit came first"):
        add_files(storage, state, "ours.parquet")
    assert_same(state, before)
    follow(storage, state)
    add_files(storage, state, "ours.parquet")
    assert set(state.files) == {"theirs.parquet", "ours.parquet"}
    assert_as_read(storage, state)


def test_of_many_writers_each_has_its_versions(local: LocalStorage):
    make(local)

    def write(name: int) -> list[int]:
        state, own = read_log(local), []
        assert state is not None
        while len(own) < 5:
            try:
                own.append(add_files(local, state, f"{name}-{len(own)}.parquet"))
            except LostRace:
                follow(local, state)
        return own

    with ThreadPoolExecutor(8) as threads:
        found = [version for each in threads.map(write, range(8)) for version in each]
    assert sorted(found) == list(range(1, 41))
    nonces = {nonce_of(local.read(commit_path(version))) for version in range(41)}
    assert len(nonces - {None}) == 41
    state = read_log(local)
    assert state is not None
    assert len(state.files) == 40


def write_commits(storage: TableStorage, name: str, count: int) -> None:
    state = read_log(storage)
    assert state is not None
    done = 0
    while done < count:
        try:
            add_files(storage, state, f"{name}-{done}.parquet")
        except LostRace:
            follow(storage, state)
        else:
            done += 1


def write_in_process(uri: str, name: str) -> None:
    write_commits(open_storage(uri, {}), name, 30)


def test_of_two_processes_each_has_its_versions(local: LocalStorage):
    make(local)
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=write_in_process, args=(local.uri, n)) for n in ("a", "b")]
    for each in both:
        each.start()
    for each in both:
        each.join(120)
        assert each.exitcode == 0
    state = read_log(local)
    assert state is not None
    assert (state.version, len(state.files)) == (60, 60)


def test_after_too_long_a_time_nothing_is_put(local: LocalStorage):
    faulty = FaultyStorage(local)
    state = make(faulty, delta_logRetentionDuration="interval 1 hour")
    faulty.creates.clear()
    with pytest.raises(TooLate):
        commit(
            faulty, state, [], operation="T", now_ms=0, followed_at=0.0, monotonic=lambda: 1801.0
        )
    assert faulty.creates == []
    commit(faulty, state, [], operation="T", now_ms=0, followed_at=0.0, monotonic=lambda: 1799.0)


def test_a_table_of_short_retention_can_be_written(local: LocalStorage):
    state = make(
        local,
        delta_logRetentionDuration="interval 0 seconds",
        delta_deletedFileRetentionDuration="interval 0 seconds",
    )
    assert add_files(local, state, "a.parquet") == 1


def test_upon_a_checkpoint_alone_nothing_is_put(local: LocalStorage):
    state = make(local)
    write_checkpoint(local, state, now_ms=0)
    local.delete([commit_path(0)])
    found = read_log(local)
    assert found is not None
    with pytest.raises(TidelakeError, match="only its checkpoint is left"):
        add_files(local, found, "a.parquet")


class TestInCommitTimestamps:
    def make(self, storage: TableStorage) -> LogState:
        return make(storage, "inCommitTimestamp", delta_enableInCommitTimestamps="true")

    def test_they_come_first_and_only_rise(self, local: LocalStorage):
        state = self.make(local)
        begun = state.in_commit_timestamp_ms
        assert begun is not None
        for clock_ms, expected in ((begun - 5000, begun + 1), (begun + 10, begun + 10)):
            put(local, state, [], at_ms=clock_ms)
            text = local.read(commit_path(state.version)).decode().splitlines()[0]
            assert text.startswith(f'{{"commitInfo":{{"inCommitTimestamp":{expected},')
            assert state.in_commit_timestamp_ms == expected
        assert_as_read(local, state)

    def test_after_a_lost_race_they_are_computed_anew(self, local: LocalStorage):
        state = self.make(local)
        other = state.copy()
        put(local, other, [], at_ms=now_ms() + 60_000)
        with pytest.raises(LostRace):
            put(local, state, [])
        follow(local, state)
        put(local, state, [])
        assert state.in_commit_timestamp_ms == (other.in_commit_timestamp_ms or 0) + 1

    def test_without_the_property_there_are_none(self, local: LocalStorage):
        state = make(local, "inCommitTimestamp")
        assert "inCommitTimestamp" not in info_of(local, 0)
        change = metadata(**{"delta.enableInCommitTimestamps": "true"})
        put(local, state, [change.to_json()])
        assert "inCommitTimestamp" in info_of(local, 1)

    def test_delta_rs_reads_them(self, local: LocalStorage):
        state = self.make(local)
        add_files(local, state, "a.parquet")
        assert DeltaTable(local.uri).version() == 1


class TestCreation:
    def test_what_a_table_begins_with(self, storage: TableStorage):
        state = create_table(
            storage,
            protocol("domainMetadata"),
            metadata(),
            [AppTransaction(app_id="a", version=3).to_json()],
            now_ms=7,
        )
        assert (state.version, state.transactions["a"].version) == (0, 3)
        assert_as_read(storage, state)

    def test_of_two_one_is_first(self, storage: TableStorage):
        make(storage)
        with pytest.raises(LostRace, match="already"):
            make(storage)

    def test_of_two_at_once_one_is_first(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        faulty.before = once(lambda _path: make(local) and None)
        with pytest.raises(LostRace):
            make(faulty)

    def test_a_folder_that_holds_something_else_is_left_alone(self, storage: TableStorage):
        storage.write("notes.txt", b"important")
        with pytest.raises(TidelakeError, match=r"holds notes\.txt"):
            make(storage)
        assert [each.path for each in storage.list("")] == ["notes.txt"]

    def test_what_a_killed_try_left_is_no_hindrance(self, local: LocalStorage):
        local.write(f"{LOG}.00000000000000000000.json.8f.tidelake.tmp", b"{")
        make(local)

    def test_a_checkpoint_alone_is_a_table_too(self, local: LocalStorage):
        local.write(checkpoint_path(7), b"x")
        with pytest.raises(LostRace):
            make(local)

    def test_a_retried_creation_knows_itself(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        faulty.after = once(failing(UNKNOWN))
        assert_as_read(local, make(faulty))


def test_beside_delta_rs_on_s3_each_has_its_versions(s3: S3Server):
    uri = f"s3://{s3.bucket}/beside {time.time_ns()}"
    write_deltalake(uri, pa.table({"id": [0]}), storage_options=s3.options)
    storage = open_storage(uri, s3.options)

    def theirs() -> None:
        for number in range(5):
            row = pa.table({"id": [number]})
            write_deltalake(uri, row, mode="append", storage_options=s3.options)

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(theirs), threads.submit(write_commits, storage, "ours", 5)]
        for each in both:
            each.result(60)
    state = read_log(storage)
    assert state is not None
    assert (state.version, len(state.files)) == (10, 11)
    assert DeltaTable(uri, storage_options=s3.options).version() == 10


def test_a_table_under_another_lock_is_refused(storage: TableStorage):
    make(storage)
    prove_no_other_lock(storage)
    storage.write(f"{LOG}.tmp/00000000000000000001.json.8f", b"{}")
    with pytest.raises(TidelakeError, match="DynamoDB"):
        prove_no_other_lock(storage)


def test_text_of_any_kind_survives(local: LocalStorage):
    state = make(local)
    name = 'a%20b "quoted" \\ \u2028 \U0001f600.parquet'
    add_files(local, state, name)
    assert list(state.files) == [name]
    assert_as_read(local, state)
    lines = local.read(commit_path(1)).split(b"\n")
    assert [bool(line) and json.loads(line) is not None for line in lines] == [True, True, False]
