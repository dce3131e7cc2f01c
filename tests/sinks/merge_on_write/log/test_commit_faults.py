"""Storage that answers late, twice or wrongly, and writers that sleep or die at their put."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.commit import LostRace
from sinks.merge_on_write.log.paths import commit_path
from sinks.merge_on_write.log.reader import LogMoved, follow, read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import open_storage
from sinks.storage.table_storage import TableStorage
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, failing, once
from tests.sinks.merge_on_write.log_tables import (
    add_files,
    assert_as_read,
    assert_same,
    make,
    now_ms,
)

UNKNOWN = OSError("the storage did not answer")


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
        with pytest.raises(LogMoved):
            add_files(faulty, state, "ours.parquet")
        assert_as_read(storage, last[0])
        assert len(last[0].files) == 6

    def test_the_table_was_made_again(self, storage: TableStorage):
        def meanwhile(_other: LogState) -> None:
            storage.delete([each.path for each in storage.list("")])
            make(storage)

        faulty, state = self.frozen(storage, meanwhile)
        with pytest.raises(LogMoved):
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
        with pytest.raises(LogMoved):
            add_files(faulty, state, "ours.parquet")
        assert_as_read(storage, again[0])

    def test_it_slept_before_it_looked(self, storage: TableStorage):
        """Then nothing is put at all."""
        faulty = FaultyStorage(storage)
        state = make(faulty)
        storage.delete([each.path for each in storage.list("")])
        make(storage)
        faulty.creates.clear()
        with pytest.raises(LogMoved):
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
        with pytest.raises(LogMoved):
            add_files(faulty, state, "ours.parquet")
        found = read_log(storage)
        assert found is not None
        assert set(found.files) == {"ours.parquet", "theirs.parquet"}


DIES = """
import json, os, sys
from sinks.merge_on_write.log.reader import read_log
from sinks.storage.open_storage import open_storage
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
    done = subprocess.run(command, check=False, timeout=300)
    assert done.returncode == 9
    state = read_log(storage)
    assert state is not None
    assert (state.version, len(state.files)) == (version, version)
    assert add_files(storage, state, "next.parquet") == version + 1
