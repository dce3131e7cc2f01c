"""What goes and what stays, at every age."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.actions import DeletionVectorDescriptor
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.deletion_vector import file_of, vector_files
from sinks.merge_on_write.log.paths import LOG, checkpoint_path, commit_path
from sinks.merge_on_write.log.reader import LogMoved, read_log
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.log.tombstones import WITHIN_MS
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.storage.local_storage import LocalStorage
from sinks.storage.table_storage import TableStorage
from sinks.target.retention_properties import file_retention_ms, interval_ms, log_retention_ms
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage
from tests.sinks.merge_on_write.log_tables import (
    DAY_MS,
    add_files,
    assert_as_read,
    descriptor,
    make,
    metadata,
    now_ms,
    put,
    touch,
)

NOW_MS = now_ms()
WEEK_MS = 7 * DAY_MS


def aged(storage: LocalStorage, path: str, days: float) -> None:
    at = NOW_MS / 1000 - days * 24 * 3600
    os.utime(f"{storage.uri}/{path}", (at, at))


def log_of(storage: TableStorage) -> list[str]:
    return [each.path.removeprefix(LOG) for each in storage.list(LOG)]


class TestLog:
    """40 commits, one a day, the newest of today; checkpoints at 4, 8, 12 …"""

    def table(self, local: LocalStorage, *features: str, **configuration: str) -> LogState:
        state = make(local, *features, **configuration)
        for version in range(1, 40):
            add_files(local, state, f"{version}.parquet")
            if version % 4 == 0:
                write_checkpoint(local, state, now_ms=NOW_MS)
                aged(local, checkpoint_path(version), 39 - version)
        for version in range(40):
            aged(local, commit_path(version), 39 - version)
        return state

    def test_it_is_cut_at_a_checkpoint_older_than_the_retention(self, local: LocalStorage):
        state = self.table(local, delta_logRetentionDuration="interval 10 days")
        cleaned = clean_log(local, state.bare(), now_ms=NOW_MS)
        assert log_of(local)[:2] == [  # the commit of 29 is ten days old
            "00000000000000000028.checkpoint.parquet",
            "00000000000000000028.json",
        ]
        assert cleaned == 28 + 6
        assert_as_read(local, state)
        assert DeltaTable(local.uri).version() == 39
        assert DeltaTable(local.uri, version=30).version() == 30
        assert clean_log(local, state, now_ms=NOW_MS) == 0

    def test_by_default_a_month_is_kept(self, local: LocalStorage):
        state = self.table(local)
        clean_log(local, state, now_ms=NOW_MS)
        assert log_of(local)[0] == "00000000000000000008.checkpoint.parquet"
        assert log_retention_ms(state.properties) == 30 * DAY_MS

    def test_commits_go_one_by_one_the_oldest_first(self, local: LocalStorage):
        state = self.table(local)
        faulty = FaultyStorage(local)
        clean_log(faulty, state, now_ms=NOW_MS, retention_ms=0, most_files=10)
        assert faulty.deleted == [
            *(commit_path(version) for version in range(4)),
            checkpoint_path(4),
            *(commit_path(version) for version in range(4, 8)),
            checkpoint_path(8),
        ]
        clean_log(faulty, state, now_ms=NOW_MS, retention_ms=0)
        assert log_of(local)[0] == "00000000000000000036.checkpoint.parquet"
        assert_as_read(local, state)

    @pytest.mark.parametrize(
        ("features", "configuration"),
        [((), {"delta_enableExpiredLogCleanup": "false"}), (("checkpointProtection",), {})],
    )
    def test_some_tables_are_not_cleaned(
        self, local: LocalStorage, features: tuple[str, ...], configuration: dict[str, str]
    ):
        state = self.table(local, *features, **configuration)
        before = log_of(local)
        assert clean_log(local, state, now_ms=NOW_MS, retention_ms=0) == 0
        assert log_of(local) == before

    def test_without_an_old_checkpoint_nothing_goes(self, local: LocalStorage):
        state = self.table(local)
        local.delete(checkpoint_path(version) for version in range(0, 40, 4))
        assert clean_log(local, state, now_ms=NOW_MS) == 0
        write_checkpoint(local, state, now_ms=NOW_MS)  # new, as all that would stand on it
        assert clean_log(local, state, now_ms=NOW_MS) == 0

    def test_a_checkpoint_whose_commit_is_gone_is_no_place_to_cut(self, local: LocalStorage):
        state = self.table(local)
        local.delete([commit_path(8)])
        clean_log(local, state, now_ms=NOW_MS)
        assert log_of(local)[0] == "00000000000000000004.checkpoint.parquet"

    def test_a_copied_log_is_young(self, local: LocalStorage):
        """Copying gives every file today's time, or those at random."""
        state = self.table(local)
        aged(local, commit_path(2), 0)
        assert clean_log(local, state, now_ms=NOW_MS) == 0

    def test_what_belongs_to_old_versions_goes_with_them(self, local: LocalStorage):
        state = self.table(local)
        old = [f"{3:020}.crc", f"{2:020}.{5:020}.compacted.json", f"{8:020}.{9:020}.compacted.json"]
        kept = [f"{8:020}.crc", f"{9:020}.{12:020}.compacted.json", "_last_checkpoint", "notes"]
        for name in (*old, *kept):
            local.replace(f"{LOG}{name}", b"{}")
        clean_log(local, state, now_ms=NOW_MS)
        assert not set(old) & set(log_of(local))
        assert set(kept) <= set(log_of(local))

    def test_what_killed_writers_left_goes_after_a_day(self, local: LocalStorage):
        state = self.table(local)
        for name, days in (("old", 2), ("young", 0.5)):
            local.write(f"{LOG}.{name}.json.8f.tidelake.tmp", b"{")
            aged(local, f"{LOG}.{name}.json.8f.tidelake.tmp", days)
        local.write(f"{LOG}.foreign.tmp", b"{")
        aged(local, f"{LOG}.foreign.tmp", 50)
        clean_log(local, state, now_ms=NOW_MS)
        assert [name for name in log_of(local) if name.startswith(".")] == [
            ".foreign.tmp",
            ".young.json.8f.tidelake.tmp",
        ]

    def test_of_a_table_made_again_nothing_goes(self, local: LocalStorage):
        state = self.table(local)
        local.delete([each.path for each in local.list("")])
        self.table(local)
        before = log_of(local)
        with pytest.raises(LogMoved):
            clean_log(local, state, now_ms=NOW_MS)
        assert log_of(local) == before


class TestFiles:
    def table(self, local: LocalStorage, **configuration: str) -> LogState:
        state = make(local, **configuration)
        self.add(local, state, "a.parquet", "b%20b.parquet", "c.parquet")
        return state

    def add(self, local: LocalStorage, state: LogState, *paths: str) -> None:
        add_files(local, state, *paths)
        for path in paths:
            local.write(path.replace("%20", " "), b"data")

    def vectors(self, local: LocalStorage, count: int) -> list[DeletionVectorDescriptor]:
        """In one file."""
        ((path, content, found),) = vector_files([BitMap64([n]) for n in range(count)])
        local.write(path, content)
        return found

    def remove(self, local: LocalStorage, state: LogState, path: str, days: float) -> None:
        at_ms = int(NOW_MS - days * DAY_MS)
        put(local, state, [state.files[path].remove(at_ms, data_change=True)], at_ms=at_ms)

    def touch(
        self,
        local: LocalStorage,
        state: LogState,
        vectors: Iterable[tuple[str, DeletionVectorDescriptor]],
        days: float,
    ) -> None:
        at_ms = int(NOW_MS - days * DAY_MS)
        actions = [each for path, v in vectors for each in touch(state, path, v, at_ms)]
        put(local, state, actions, at_ms=at_ms)

    def files_of(self, local: LocalStorage) -> list[str]:
        return [e.path for e in local.list("") if not e.path.startswith(LOG)]

    def test_files_go_when_their_retention_is_over(self, local: LocalStorage):
        state = self.table(local)
        self.remove(local, state, "a.parquet", days=6.9)
        self.remove(local, state, "b%20b.parquet", days=7.1)
        assert clean_files(local, state, now_ms=NOW_MS) == 1
        assert self.files_of(local) == ["a.parquet", "c.parquet"]
        assert list(state.tombstones) == [("a.parquet", None)]
        assert clean_files(local, state, now_ms=NOW_MS, retention_ms=0) == 1
        assert self.files_of(local) == ["c.parquet"]

    def test_the_tables_own_retention_counts(self, local: LocalStorage):
        state = self.table(local, delta_deletedFileRetentionDuration="interval 4 weeks")
        self.remove(local, state, "a.parquet", days=8)
        assert clean_files(local, state, now_ms=NOW_MS) == 0

    def test_a_data_file_stays_while_it_is_live_under_another_vector(self, local: LocalStorage):
        state = self.table(local)
        (vector,) = self.vectors(local, 1)
        self.touch(local, state, [("a.parquet", vector)], days=30)
        assert clean_files(local, state, now_ms=NOW_MS) == 0
        assert "a.parquet" in self.files_of(local)

    def test_a_vector_file_stays_while_one_of_its_vectors_is_needed(self, local: LocalStorage):
        state = self.table(local)
        first, second = self.vectors(local, 2)
        shared = file_of(first)
        assert shared is not None
        self.touch(local, state, [("a.parquet", first), ("c.parquet", second)], days=30)
        (third,) = self.vectors(local, 1)
        self.touch(local, state, [("a.parquet", third)], days=20)
        assert clean_files(local, state, now_ms=NOW_MS) == 0
        (fourth,) = self.vectors(local, 1)
        self.touch(local, state, [("c.parquet", fourth)], days=5)
        assert clean_files(local, state, now_ms=NOW_MS) == 0
        assert clean_files(local, state, now_ms=NOW_MS, retention_ms=4 * DAY_MS) == 1
        assert shared not in self.files_of(local)
        assert_as_read(local, read_log(local) or state)

    def test_a_file_that_came_back_stays(self, local: LocalStorage):
        """RESTORE adds old files again."""
        state = self.table(local)
        old = state.files["a.parquet"]
        self.remove(local, state, "a.parquet", days=30)
        put(local, state, [old.add(data_change=True)])
        assert clean_files(local, state, now_ms=NOW_MS) == 0

    def test_absolute_paths_and_detours_are_never_deleted(self, local: LocalStorage):
        state = self.table(local)
        elsewhere = LocalStorage(f"{local.uri}.other")
        elsewhere.write("x.parquet", b"")
        elsewhere.write("y.parquet", b"")
        paths = [f"{elsewhere.uri}/x.parquet", f"file://{elsewhere.uri}/x.parquet"]
        paths += [f"../{elsewhere.uri.rpartition('/')[2]}/y.parquet".replace(" ", "%20")]
        add_files(local, state, *paths)
        for path in paths:
            self.remove(local, state, path, days=30)
        absolute = DeletionVectorDescriptor(
            storage_type="p",
            path_or_inline=f"{elsewhere.uri}/y.parquet",
            offset=1,
            size_in_bytes=3,
            cardinality=1,
        )
        self.touch(local, state, [("c.parquet", absolute)], days=40)
        self.touch(local, state, [("c.parquet", descriptor(1))], days=30)
        assert clean_files(local, state, now_ms=NOW_MS, orphans=True) == 0
        assert [each.path for each in elsewhere.list("")] == ["x.parquet", "y.parquet"]

    def test_orphans_go_after_a_week(self, local: LocalStorage):
        state = self.table(local)
        for days, name in ((6, "young"), (8, "old")):
            (vector,) = self.vectors(local, 1)
            for path in (f"{name}.parquet", f"x=_1/{name}.parquet", file_of(vector)):
                assert path is not None
                if not path.endswith(".bin"):
                    local.write(path, b"")
                aged(local, path, days)
        for path in ("notes.txt", "_change_data/old.parquet", ".hidden/old.parquet"):
            local.write(path, b"")
            aged(local, path, 100)
        for path in state.files:
            aged(local, path.replace("%20", " "), 100)
        before = set(self.files_of(local))
        assert clean_files(local, state, now_ms=NOW_MS) == 0
        assert clean_files(local, state, now_ms=NOW_MS, orphans=True) == 3
        assert {path for path in before - set(self.files_of(local)) if path[-1] == "t"} == {
            "old.parquet",
            "x=_1/old.parquet",
        }

    def test_orphans_of_a_longer_retention_stay_as_long(self, local: LocalStorage):
        state = self.table(local, delta_deletedFileRetentionDuration="interval 20 days")
        local.write("old.parquet", b"")
        aged(local, "old.parquet", 15)
        assert clean_files(local, state, now_ms=NOW_MS, orphans=True) == 0

    def test_what_an_absolute_name_means_is_no_orphan(self, local: LocalStorage):
        state = self.table(local)
        add_files(local, state, f"{local.uri}/here.parquet".replace(" ", "%20"))
        local.write("here.parquet", b"")
        aged(local, "here.parquet", 30)
        assert clean_files(local, state, now_ms=NOW_MS, orphans=True) == 0

    def test_forgotten_vectors_go_when_their_retention_is_over(self, local: LocalStorage):
        state = self.table(local)
        state.forget_vectors_within_ms = WITHIN_MS
        begun = NOW_MS - 8 * DAY_MS
        for second in range(5):
            (vector,) = self.vectors(local, 1)
            self.touch(local, state, [("a.parquet", vector)], 8 - second / 86_400)
        assert state.tombstones == {}
        assert clean_files(local, state, now_ms=begun + WEEK_MS) == 0
        assert clean_files(local, state, now_ms=NOW_MS) == 4
        assert file_of(vector) in self.files_of(local)

    def test_of_a_table_made_again_nothing_goes(self, local: LocalStorage):
        state = self.table(local)
        self.remove(local, state, "a.parquet", days=30)
        for each in list(local.list(LOG)):
            local.delete([each.path])
        with pytest.raises(LogMoved):
            clean_files(local, state, now_ms=NOW_MS)
        assert "a.parquet" in self.files_of(local)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", WEEK_MS),
        ("interval 1 day 2 hours", DAY_MS + 2 * 3_600_000),
        ("INTERVAL 1 Week", WEEK_MS),
        ("30 minutes", 1_800_000),
        ("interval 0 seconds", 0),
        ("interval 1.5 seconds", 1500),
        ("interval 3 milliseconds 2000 microseconds", 5),
        ("  interval   2   weeks  ", 2 * WEEK_MS),
    ],
)
def test_intervals_are_read(text: str, expected: int):
    assert interval_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "interval", "interval 1 month", "interval days", "7", "interval -1 days", "1 dayz"]
)
def test_what_is_no_interval_is_named(text: str):
    wrong = metadata(**{"delta.logRetentionDuration": text})
    with pytest.raises(TidelakeError, match=r"delta\.logRetentionDuration is"):
        log_retention_ms(wrong.configuration)


def test_defaults_are_deltas():
    assert log_retention_ms({}) == 30 * DAY_MS
    assert file_retention_ms(metadata().configuration) == WEEK_MS
