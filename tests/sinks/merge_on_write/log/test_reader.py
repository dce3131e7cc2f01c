"""Every way in which a log can lie there: checkpoints of all forms, wrong hints, holes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.log.actions import Json
from sinks.merge_on_write.log.checkpoint_writer import checkpoint_table, write_checkpoint
from sinks.merge_on_write.log.paths import LAST_CHECKPOINT, LOG, checkpoint_path, commit_path
from sinks.merge_on_write.log.reader import LogMoved, follow, read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.local_storage import LocalStorage
from sinks.storage.table_storage import TableStorage
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.log_tables import (
    add_files,
    assert_as_read,
    assert_same,
    differences,
    make,
    write_history,
)

AT = 20  # the version of the checkpoints in the histories below
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
Layout = Callable[[TableStorage, LogState], None]


def parquet(storage: TableStorage, path: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    storage.replace(path, sink.getvalue())


def table_of(state: LogState) -> pa.Table:
    return checkpoint_table(state, now_ms=0)


def rows_of(table: pa.Table, *kinds: str) -> pa.Table:
    """The rows of these actions."""
    kept = [n for n, row in enumerate(table.to_pylist()) if any(row[k] for k in kinds)]
    return table.take(kept)


def sidecars(storage: TableStorage, state: LogState) -> list[Json]:
    """Adds in one, removes in another; the actions that lead there."""
    found: list[Json] = [{"checkpointMetadata": {"version": state.version}}]
    for kind in ("add", "remove"):
        name = f"{uuid.uuid4()}.parquet"
        parquet(storage, f"{LOG}_sidecars/{name}", rows_of(table_of(state), kind).select([kind]))
        prefix = "s3://somewhere/_delta_log/_sidecars/" if kind == "add" else ""
        found.append({"sidecar": {"path": prefix + name, "sizeInBytes": 1, "modificationTime": 1}})
    return found


def others(state: LogState) -> list[Json]:
    found: list[Json] = [each.to_json() for each in state.transactions.values()]
    found += [{"domainMetadata": each} for each in state.domains.values()]
    assert state.protocol is not None
    assert state.metadata is not None
    return [*found, state.protocol.to_json(), state.metadata.to_json()]


def classic(storage: TableStorage, state: LogState) -> None:
    parquet(storage, checkpoint_path(state.version), table_of(state))


def multi_part(storage: TableStorage, state: LogState) -> None:
    table = table_of(state)
    for number in (1, 2, 3):
        part = table.slice((number - 1) * 9, 9 if number < 3 else None)
        path = f"{LOG}{state.version:020}.checkpoint.{number:010}.0000000003.parquet"
        parquet(storage, path, part)


def named_json(storage: TableStorage, state: LogState) -> None:
    actions = [*others(state), {"checkpointMetadata": {"version": state.version}}]
    actions += [each.add(data_change=False) for each in state.files.values()]
    actions += [{"remove": dict(each.fields)} for each in state.tombstones.values()]
    text = "".join(f"{json.dumps(each)}\n" for each in actions)
    storage.replace(f"{LOG}{state.version:020}.checkpoint.{UUID}.json", text.encode())


def named_json_with_sidecars(storage: TableStorage, state: LogState) -> None:
    text = "".join(f"{json.dumps(each)}\n" for each in [*others(state), *sidecars(storage, state)])
    storage.replace(f"{LOG}{state.version:020}.checkpoint.{UUID}.json", text.encode())


def named_parquet_with_sidecars(storage: TableStorage, state: LogState) -> None:
    kind = pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
    )
    table = rows_of(table_of(state), "protocol", "metaData", "txn", "domainMetadata")
    rows = [each["sidecar"] for each in sidecars(storage, state)[1:]]
    more = pa.table({"sidecar": pa.array(rows, kind)})
    whole = pa.concat_tables([table, more], promote_options="default")
    parquet(storage, f"{LOG}{state.version:020}.checkpoint.{UUID}.parquet", whole)


LAYOUTS = [classic, multi_part, named_json, named_json_with_sidecars, named_parquet_with_sidecars]


def history_with(local: LocalStorage, layout: Layout, *, cut: bool = True) -> LogState:
    """30 commits and a checkpoint in between; the state that a reader must arrive at."""
    layout(local, write_history(local, seed=1, commits=AT + 1))
    if cut:
        local.delete(commit_path(version) for version in range(AT))
    return write_history_after(local)


def write_history_after(local: LocalStorage) -> LogState:
    whole = LocalStorage(f"{local.uri}.whole")
    state = write_history(whole, seed=1, commits=31)
    for version in range(AT + 1, 31):
        local.write(commit_path(version), whole.read(commit_path(version)))
    return state


@pytest.mark.parametrize("layout", LAYOUTS)
def test_checkpoint_and_tail_equal_a_replay_from_the_start(local: LocalStorage, layout: Layout):
    assert_as_read(local, history_with(local, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_of_the_newest_version_needs_its_commit_for_the_head(
    local: LocalStorage, layout: Layout
):
    state = write_history(local, seed=1, commits=AT + 1)
    layout(local, state)
    local.delete(commit_path(version) for version in range(AT))
    assert_as_read(local, state)
    local.delete([commit_path(AT)])
    found = read_log(local)
    assert found is not None
    assert found.head_fingerprint is None
    assert set(differences(found, state)) <= {"head_fingerprint"}
    follow(local, found)
    assert found.version == AT


def test_there_is_no_table(local: LocalStorage):
    assert read_log(local) is None
    local.write("part.parquet", b"x")
    local.write(f"{LOG}_commits/x", b"x")
    local.write(f"{LOG}.s3-optimization-0", b"")
    assert read_log(local) is None


def test_only_twenty_digits_are_a_commit(local: LocalStorage):
    state = write_history(local, seed=2, commits=10)
    for name in (
        "00000000000000000010.json.tmp",
        "0000000000000000010.json",
        ".00000000000000000010.json.8d.tmp",
        "00000000000000000010.8f4dd1ff-2c0e-4ac2-a9f4-0ea9ee1c1a7c.json",
        "_staged_commits/00000000000000000010.json",
        "00000000000000000003.00000000000000000010.compacted.json",
        "00000000000000000009.crc",
        "x00000000000000000010.json",
    ):
        local.write(f"{LOG}{name}", b"not a commit")
    assert_as_read(local, state)


HINTS = {
    "none": None,
    "torn": b'{"versi',
    "no JSON object": b"[20]",
    "no version": b"{}",
    "text": b'{"version":"20"}',
    "dangling": b'{"version":25}',
    "beyond the log": b'{"version":4000}',
    "old": b'{"version":3}',
    "right": b'{"version":20,"size":5}',
    "wrong parts": b'{"version":20,"size":5,"parts":7}',
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_the_hint_is_only_a_hint(local: LocalStorage, hint: bytes | None):
    state = history_with(local, classic)
    if hint is not None:
        local.replace(LAST_CHECKPOINT, hint)
    assert_as_read(local, state)


def test_of_an_incomplete_checkpoint_nothing_is_read(local: LocalStorage):
    state = history_with(local, multi_part, cut=False)
    local.delete([f"{LOG}{AT:020}.checkpoint.{2:010}.{3:010}.parquet"])
    local.replace(LAST_CHECKPOINT, b'{"version":20,"size":5,"parts":3}')
    assert_as_read(local, state)


def test_of_a_torn_checkpoint_nothing_is_read(local: LocalStorage):
    state = history_with(local, classic, cut=False)
    whole = local.read(checkpoint_path(AT))
    for torn in (b"", b"PAR1", whole[:-9], whole[:4] + bytes(len(whole) - 12) + whole[-8:]):
        local.replace(checkpoint_path(AT), torn)
        assert_as_read(local, state)


def test_before_a_torn_checkpoint_in_the_hint_there_is_an_older_one(local: LocalStorage):
    state = history_with(local, classic)
    parquet(local, checkpoint_path(25), pa.table({"torn": [1]}))
    local.replace(LAST_CHECKPOINT, b'{"version":25}')
    assert_as_read(local, state)


def test_a_checkpoint_that_nothing_can_be_read_from_is_named(local: LocalStorage):
    history_with(local, classic)
    local.replace(checkpoint_path(AT), b"PAR1")
    with pytest.raises(TidelakeError, match="cannot be read") as caught:
        read_log(local)
    assert checkpoint_path(AT) in str(caught.value)


def test_a_storage_that_fails_is_no_damaged_checkpoint(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
):
    history_with(local, classic)

    def fail(path: str) -> None:
        raise OSError(f"no answer: {path}")

    monkeypatch.setattr(local, "open_input", fail)
    with pytest.raises(OSError, match="no answer"):
        read_log(local)


@pytest.mark.parametrize("missing", [0, 12, 25])
def test_a_hole_is_one_clear_line(local: LocalStorage, missing: int):
    history_with(local, classic, cut=False)
    local.delete([commit_path(missing), checkpoint_path(AT)])
    with pytest.raises(TidelakeError, match=f"version {missing} is missing"):
        read_log(local)


def test_a_hole_below_the_checkpoint_is_none(local: LocalStorage):
    state = history_with(local, classic, cut=False)
    local.delete([commit_path(12)])
    assert_as_read(local, state)


@pytest.mark.parametrize("bad", [b"{torn\n", b'{"add":{"size":3}}\n', b'{"add":7}\n', b"7\n"])
def test_a_damaged_commit_is_named(local: LocalStorage, bad: bytes):
    write_history(local, seed=2, commits=10)
    local.write(commit_path(10), bad)
    with pytest.raises(TidelakeError, match=r"00010\.json is no commit"):
        read_log(local)


def test_statistics_kept_as_a_struct_become_text(local: LocalStorage):
    state = history_with(local, classic)
    table = pq.read_table(pa.BufferReader(local.read(checkpoint_path(AT))))
    wanted = {each.path: json.loads(each.stats) for each in state.files.values() if each.stats}
    add = table["add"].combine_chunks()
    parsed = [None if row is None else json.loads(row["stats"]) for row in add.to_pylist()]
    names = [field.name for field in add.type if field.name != "stats"]
    columns = [*(add.field(name) for name in names), pa.array(parsed)]
    struct = pa.StructArray.from_arrays(columns, names=[*names, "stats_parsed"], mask=add.is_null())
    parquet(
        local,
        checkpoint_path(AT),
        table.set_column(table.schema.get_field_index("add"), "add", struct),
    )
    found = read_log(local)
    assert found is not None
    assert {each.path: json.loads(each.stats or "") for each in found.files.values()} == wanted


def test_a_log_that_is_cleaned_meanwhile_is_read_again(local: LocalStorage):
    state = history_with(local, classic, cut=False)
    faulty = FaultyStorage(local)
    local.replace(LAST_CHECKPOINT, b'{"version":5}')
    saved = local.read(checkpoint_path(AT))
    local.delete([checkpoint_path(AT)])

    def clean(_path: str) -> None:
        local.replace(checkpoint_path(AT), saved)
        local.delete(commit_path(version) for version in range(AT))

    def at_commit(path: str) -> None:
        if path == commit_path(7):
            cleaning(path)

    cleaning = once(clean)
    faulty.before_read = at_commit
    assert_same(read_log(faulty), state)


def test_a_log_that_never_stands_still_is_given_up(local: LocalStorage):
    write_history(local, seed=1, commits=5)
    faulty = FaultyStorage(local)

    def gone(path: str) -> None:
        raise FileNotFoundError(path)

    faulty.before_read = gone
    with pytest.raises(TryAgain, match="changes faster"):
        read_log(faulty)


def test_following_takes_in_what_came(storage: TableStorage):
    state = make(storage)
    follower = read_log(storage)
    assert follower is not None
    follow(storage, follower)
    for number in range(3):
        add_files(storage, state, f"part-{number}.parquet")
    follow(storage, follower)
    assert_same(follower, state)
    assert_as_read(storage, state)


def test_a_cleaned_log_has_no_news(local: LocalStorage):
    """The version after ours is not there either, and that means nothing."""
    state = make(local)
    follower = state.copy()
    for number in range(5):
        add_files(local, state, f"part-{number}.parquet")
    write_checkpoint(local, state, now_ms=0)
    local.delete(commit_path(version) for version in range(5))
    before = follower.copy()
    with pytest.raises(LogMoved):
        follow(local, follower)
    assert_same(follower, before)
    assert_as_read(local, state)


@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_table_made_again_in_the_same_place_is_noticed(local: LocalStorage, more: int):
    state = make(local)
    add_files(local, state, "old.parquet")
    local.delete([each.path for each in local.list("")])
    again = make(local)
    for number in range(more):
        add_files(local, again, f"new-{number}.parquet")
    with pytest.raises(LogMoved):
        follow(local, state)
    assert_as_read(local, again)


def test_a_head_that_was_overwritten_is_noticed(local: LocalStorage):
    """Spark's log store on a local disk checks, then renames: between the two we may commit."""
    state = make(local)
    add_files(local, state, "ours.parquet")
    theirs: dict[str, Any] = {"commitInfo": {"timestamp": 1}}
    local.replace(commit_path(1), json.dumps(theirs).encode())
    with pytest.raises(LogMoved):
        follow(local, state)
