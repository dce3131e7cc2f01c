"""The put is a compare-and-set, whatever storage and other writers do to it."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordination.errors import TidelakeError
from sinks.merge_on_write import commit as commits
from sinks.merge_on_write.actions import Transaction
from sinks.merge_on_write.checkpoint import write_checkpoint
from sinks.merge_on_write.commit import LostRace, TooLate, commit, create_table
from sinks.merge_on_write.log_paths import LOG, checkpoint_path, commit_path
from sinks.merge_on_write.log_reader import LogCleaned, LogReplaced, follow, read_log
from sinks.merge_on_write.log_state import LogState, nonce_of, parse_commit
from sinks.merge_on_write.storage import LocalStorage, TableStorage, open_storage
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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)


def info_of(storage: TableStorage, version: int) -> dict[str, object]:
    """The commitInfo, which is the first action."""
    found: dict[str, object] = parse_commit(storage.read(commit_path(version)))[0]["commitInfo"]
    return found


def test_a_commit_says_what_it_is(storage: TableStorage):
    state = make(storage)
    txn = Transaction(app_id="app", version=5, last_updated_ms=3).to_json()
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
    assert info.pop("tidelakeNonce") == state.nonce
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
    changes = follow(local, state)
    assert [each.metadata_changed for each in changes] == [True]
    assert state.nonce is None
    add_files(local, state, "b.parquet")
    assert DeltaTable(local.uri).version() == 3
    assert_as_read(local, state)


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


class TestAnswers:
    """The put is made or not, and storage says something else."""

    def test_made_and_answered_with_an_error(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        state = make(faulty)
        faulty.after = once(failing(UNKNOWN))
        assert add_files(faulty, state, "a.parquet") == 1
        assert_as_read(local, state)
        assert faulty.creates.count(commit_path(1)) == 1

    def test_not_made_and_answered_with_an_error(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        state = make(faulty)
        faulty.before = once(failing(UNKNOWN))
        assert add_files(faulty, state, "a.parquet") == 1
        assert_as_read(local, state)

    def test_made_and_answered_that_it_was_there(self, local: LocalStorage):
        """An HTTP client tries again by itself, and meets its own first try."""

        class Twice(LocalStorage):
            def create(self, path: str, data: bytes) -> bool:
                super().create(path, data)
                return super().create(path, data)

        twice = Twice(local.uri)
        state = make(twice)
        assert add_files(twice, state, "a.parquet") == 1
        assert_as_read(local, state)

    def test_made_late_after_the_answer(self, local: LocalStorage):
        """The first try arrives between the look for it and the second."""
        faulty = FaultyStorage(local)
        state = make(faulty)
        late: list[bytes] = []

        class Late(FaultyStorage):
            def create(self, path: str, data: bytes) -> bool:
                if path == commit_path(1) and not late:
                    late.append(data)
                    raise UNKNOWN
                if late:
                    self.inner.create(path, late[0])
                return super().create(path, data)

        assert add_files(Late(local), state, "a.parquet") == 1
        assert_as_read(local, state)

    def test_never_answered(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        state = make(faulty)
        before = state.copy()
        faulty.before = failing(UNKNOWN)
        with pytest.raises(OSError, match="did not answer"):
            add_files(faulty, state, "a.parquet")
        assert_same(state, before)
        assert faulty.creates.count(commit_path(1)) == commits.PUT_TRIES

    def test_made_after_all_by_another_when_it_failed(self, local: LocalStorage):
        faulty = FaultyStorage(local)
        state = make(faulty)
        other = state.copy()

        def theirs(_path: str) -> None:
            add_files(local, other, "theirs.parquet")
            raise UNKNOWN

        faulty.before = once(theirs)
        with pytest.raises(LostRace):
            add_files(faulty, state, "ours.parquet")
        follow(local, state)
        assert list(state.files) == ["theirs.parquet"]


class TestFrozenWriter:
    """It sleeps right before its put; meanwhile the others go on."""

    def frozen(self, storage: TableStorage, meanwhile: object) -> tuple[FaultyStorage, LogState]:
        faulty = FaultyStorage(storage)
        state = make(faulty)
        add_files(faulty, state, "first.parquet")
        assert callable(meanwhile)
        faulty.before = once(lambda _path: meanwhile(state.copy()))
        return faulty, state

    def test_its_successor_went_further(self, storage: TableStorage):
        def meanwhile(other: LogState) -> None:
            for number in range(3):
                add_files(storage, other, f"theirs-{number}.parquet")

        faulty, state = self.frozen(storage, meanwhile)
        with pytest.raises(LostRace):
            add_files(faulty, state, "ours.parquet")
        follow(storage, state)
        assert "ours.parquet" not in state.files

    def test_the_log_was_cleaned(self, storage: TableStorage):
        last: list[LogState] = []

        def meanwhile(other: LogState) -> None:
            for number in range(5):
                add_files(storage, other, f"theirs-{number}.parquet")
            write_checkpoint(storage, other, now_ms=now_ms())
            storage.delete(commit_path(version) for version in range(other.version))
            last.append(other)

        faulty, state = self.frozen(storage, meanwhile)
        with pytest.raises(LogCleaned):
            add_files(faulty, state, "ours.parquet")
        assert_as_read(storage, last[0])
        assert len(last[0].files) == 6

    def test_the_table_was_made_again(self, storage: TableStorage):
        def meanwhile(_other: LogState) -> None:
            storage.delete([each.path for each in storage.list("")])
            make(storage)

        faulty, state = self.frozen(storage, meanwhile)
        with pytest.raises(LogCleaned):
            add_files(faulty, state, "ours.parquet")
        found = read_log(storage)  # a commit left there would be a hole in the new table's log
        assert found is not None
        assert (found.version, found.files) == (0, {})

    def test_the_table_was_made_again_and_is_as_far(self, storage: TableStorage):
        again: list[LogState] = []

        def meanwhile(_other: LogState) -> None:
            storage.delete([each.path for each in storage.list("")])
            again.append(make(storage))
            add_files(storage, again[0], "new.parquet")

        faulty, state = self.frozen(storage, meanwhile)
        with pytest.raises(LogReplaced):
            add_files(faulty, state, "ours.parquet")
        assert_as_read(storage, again[0])

    def test_it_slept_before_it_looked(self, storage: TableStorage):
        """Then nothing is put at all."""
        faulty = FaultyStorage(storage)
        state = make(faulty)
        storage.delete([each.path for each in storage.list("")])
        make(storage)
        faulty.creates.clear()
        with pytest.raises(LogReplaced):
            add_files(faulty, state, "ours.parquet")
        assert faulty.creates == []

    def test_its_commit_counted_before_the_log_was_cleaned(self, storage: TableStorage):
        """It wakes after its put, and others have built upon it: the commit stays."""
        faulty = FaultyStorage(storage)
        state = make(faulty)

        def meanwhile(_path: str) -> None:
            other = read_log(storage)
            assert other is not None
            assert "ours.parquet" in other.files
            add_files(storage, other, "theirs.parquet")
            write_checkpoint(storage, other, now_ms=now_ms())
            storage.delete([commit_path(0)])

        faulty.after = once(meanwhile)
        with pytest.raises(LogCleaned):
            add_files(faulty, state, "ours.parquet")
        found = read_log(storage)
        assert found is not None
        assert set(found.files) == {"ours.parquet", "theirs.parquet"}


def test_after_too_long_a_time_nothing_is_put(local: LocalStorage):
    faulty = FaultyStorage(local)
    state = make(faulty, delta_logRetentionDuration="interval 1 hour")
    faulty.creates.clear()
    for late_s, deadline in ((1801.0, None), (1.0, 0.5)):
        with pytest.raises(TooLate):
            commit(
                faulty,
                state,
                [],
                operation="TEST",
                now_ms=0,
                followed_at=0.0,
                deadline=deadline,
                monotonic=lambda late_s=late_s: late_s,
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
            [Transaction(app_id="a", version=3)],
            now_ms=7,
            user_metadata="made",
            domains={"d": "{}"},
        )
        assert (state.version, state.transactions["a"].version) == (0, 3)
        assert state.domains["d"]["configuration"] == "{}"
        assert info_of(storage, 0)["userMetadata"] == "made"
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


DIES = """
import json, os, sys
from sinks.merge_on_write.log_reader import read_log
from sinks.merge_on_write.storage import open_storage
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage
from tests.sinks.merge_on_write.log_tables import add_files
storage = FaultyStorage(open_storage(sys.argv[1], json.loads(sys.argv[2])))
setattr(storage, sys.argv[3], lambda path: os._exit(9))
add_files(storage, read_log(storage), "ours.parquet")
"""


@pytest.mark.parametrize(("when", "version"), [("before", 0), ("after", 1)])
def test_a_writer_that_is_killed_on_s3_has_committed_or_not(s3: S3Server, when: str, version: int):
    storage = open_storage(f"s3://{s3.bucket}/killed {when}", s3.options)
    make(storage)
    options = json.dumps(s3.options)
    command = [sys.executable, "-c", DIES, storage.uri, options, when]
    done = subprocess.run(command, check=False, timeout=60)
    assert done.returncode == 9
    state = read_log(storage)
    assert state is not None
    assert (state.version, len(state.files)) == (version, version)
    assert add_files(storage, state, "next.parquet") == version + 1


def test_text_of_any_kind_survives(local: LocalStorage):
    state = make(local)
    name = 'a%20b/"quoted" \\ \u2028 \U0001f600.parquet'
    add_files(local, state, name)
    assert list(state.files) == [name]
    assert_as_read(local, state)
    lines = local.read(commit_path(1)).split(b"\n")
    assert [bool(line) and json.loads(line) is not None for line in lines] == [True, True, False]
