"""Replay: a commit's actions have no order, a logical file is a path and a vector."""

from __future__ import annotations

import random

import pytest

from sinks.merge_on_write.log.actions import DataFile, Json
from sinks.merge_on_write.log.state import LogState, fingerprint, nonce_of
from sinks.merge_on_write.log.tombstones import WITHIN_MS
from tests.sinks.merge_on_write.log_tables import (
    assert_same,
    data_file,
    descriptor,
    differences,
    history,
    metadata,
    protocol,
    touch,
)

START_MS = 1_700_000_000_000


def replay(commits: list[list[Json]], seed: int | None = None) -> LogState:
    state = LogState()
    for version, actions in enumerate(commits):
        shuffled = actions if seed is None else random.Random(seed).sample(actions, len(actions))
        state.advance(version, shuffled, str(version).encode())
    return state


def begin() -> LogState:
    state = LogState()
    state.advance(0, [protocol().to_json(), metadata().to_json()], b"0")
    return state


@pytest.mark.seeds(20)
def test_the_order_of_actions_means_nothing(seed: int):
    commits = list(history(seed, 40))
    assert_same(replay(commits, seed=seed), replay(commits))


@pytest.mark.seeds(20)
def test_a_logical_file_is_live_or_gone(seed: int):
    state = LogState()
    for version, actions in enumerate(history(seed, 40)):
        state.advance(version, actions, b"")
        added = [DataFile.from_add(each["add"]) for each in actions if "add" in each]
        assert all(state.files[each.path] == each for each in added)
        assert not {(path, file.vector_id) for path, file in state.files.items()} & set(
            state.tombstones
        )


def test_only_the_named_vector_is_taken_out():
    state = begin()
    old, new = data_file("a"), data_file("a", vector=1)
    state.advance(1, [old.add(data_change=True)], b"1")
    state.advance(2, [new.add(data_change=True), old.remove(5, data_change=True)], b"2")
    state.advance(3, [old.remove(6, data_change=True)], b"3")
    assert state.files["a"].vector_id == new.vector_id


def test_the_newest_word_on_an_identity_a_domain_and_the_schema_counts():
    state = begin()
    state.advance(
        1,
        [
            {"txn": {"appId": "a", "version": 7, "lastUpdated": 3}},
            {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}},
            metadata(changed="yes").to_json(),
        ],
        b"1",
    )
    assert state.metadata is not None
    assert state.metadata.configuration["changed"] == "yes"
    assert state.transactions["a"].version == 7
    assert state.domains["d"]["configuration"] == "1"
    removed = {"domainMetadata": {"domain": "d", "configuration": "1", "removed": True}}
    state.advance(2, [removed, {"txn": {"appId": "a", "version": 5}}], b"2")
    assert state.domains == {}
    assert state.transactions["a"].version == 5


def test_only_the_next_version_is_taken_in():
    state = begin()
    for version in (0, 2):
        with pytest.raises(ValueError, match="does not follow"):
            state.advance(version, [], b"")
    assert state.version == 0


def test_the_head_is_known_again_by_its_bytes():
    state = begin()
    info = {"commitInfo": {"timestamp": 5, "tidelakeNonce": "n", "inCommitTimestamp": 9}}
    state.advance(1, [info], b"bytes")
    assert (state.in_commit_timestamp_ms, state.commit_time_ms) == (9, 9)
    assert state.head_fingerprint == fingerprint(b"bytes") != fingerprint(b"Bytes")
    state.advance(2, [{"commitInfo": {"timestamp": 7}}], b"foreign")
    assert (state.in_commit_timestamp_ms, state.commit_time_ms) == (None, 7)


@pytest.mark.parametrize("raw", [b"", b"{torn", b"[1]\n", b'{"add":{}}\n', b"\xff"])
def test_bytes_of_others_have_no_nonce(raw: bytes):
    assert nonce_of(raw) is None


def test_a_copy_goes_its_own_way():
    state = begin()
    twin = state.copy()
    assert_same(twin, state)
    twin.advance(1, [data_file("a").add(data_change=True)], b"1")
    assert "files" in differences(twin, state)
    assert (state.version, state.files) == (0, {})


def test_what_foreign_writers_say_of_a_file_is_kept():
    state = begin()
    add = {**data_file("a").add(data_change=True)["add"], "baseRowId": 5, "tags": {"k": "v"}}
    state.advance(1, [{"add": add}], b"1")
    assert state.files["a"].add(data_change=True) == {"add": add}


class TestForgetting:
    """Which tombstones say nothing new."""

    def state(self) -> LogState:
        state = begin()
        state.forget_vectors_within_ms = WITHIN_MS
        self.commit(state, [data_file("a").add(data_change=True)], START_MS)
        return state

    def commit(self, state: LogState, actions: list[Json], at_ms: int) -> None:
        info = {"commitInfo": {"timestamp": at_ms}}
        state.advance(state.version + 1, [info, *actions], b"")

    def touch(self, state: LogState, number: int, at_ms: int) -> None:
        self.commit(state, touch(state, "a", descriptor(number), at_ms), at_ms)

    def test_vectors_of_seconds_are_forgotten_and_their_files_are_not(self):
        state = self.state()
        for second in range(1, 100):
            self.touch(state, second, START_MS + 1000 * second)
        assert state.tombstones == {}
        assert len(state.forgotten.left) == 98
        assert len(list(state.forgotten.left_before(START_MS + 10_000))) == 8
        assert len(state.forgotten.left) == 90

    def test_a_vector_that_readers_knew_for_long_is_not(self):
        state = self.state()
        self.touch(state, 1, START_MS)
        self.touch(state, 2, START_MS + WITHIN_MS + 1)
        assert list(state.tombstones) == [("a", descriptor(1).unique_id)]

    def test_nor_is_one_of_unknown_age(self):
        state = self.state()
        self.touch(state, 1, START_MS)
        state.forgotten.since_ms.clear()
        self.touch(state, 2, START_MS + 1)
        assert list(state.tombstones) == [("a", descriptor(1).unique_id)]

    def test_nor_is_a_file_that_is_no_longer_live(self):
        state = self.state()
        self.touch(state, 1, START_MS)
        self.commit(state, [state.files["a"].remove(START_MS, data_change=True)], START_MS)
        assert list(state.tombstones) == [("a", descriptor(1).unique_id)]

    def test_files_and_identities_are_the_same_either_way(self):
        commits = list(history(3, 60))
        plain, short = LogState(), LogState(forget_vectors_within_ms=WITHIN_MS)
        for version, actions in enumerate(commits):
            plain.advance(version, actions, b"")
            short.advance(version, actions, b"")
        assert differences(short, plain, tombstones=False) == []
        assert short.tombstones.keys() < plain.tombstones.keys()
        named = {path for path, _ in plain.tombstones}
        kept = {path for path, _ in short.tombstones}
        assert named - kept <= set(plain.files)
