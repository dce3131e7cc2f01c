"""What a busy table's log costs: two commits a second, each of which touches all of 30 files.

    python -m tests.benchmarks.log_day --share 0.02

A share of a day is written, as the engine's upserts write it (a new vector per file, one new file
every so often, nothing but the log), with the tombstones kept and forgotten. What grows with the
day is told for a whole one. Seconds are of the processor: other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from sinks.merge_on_write.log.actions import (
    AppTransaction,
    DataFile,
    DeletionVectorDescriptor,
    Json,
)
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.log.commit import commit
from sinks.merge_on_write.log.deletion_vector import z85_encode
from sinks.merge_on_write.log.paths import LOG, checkpoint_path
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.log.tombstones import WITHIN_MS
from sinks.storage.local_storage import LocalStorage
from tests.sinks.merge_on_write.log_tables import CLOCK, STATS, data_file, make, now_ms

COMMITS_A_DAY = 2 * 24 * 3600
FILES = 30
EACH_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Of the share that was run."""

    commits: int
    commit_ms: float
    log_bytes: int
    tombstones: int
    state_bytes: int
    checkpoint_s: float
    checkpoint_bytes: int
    read_s: float


def run(share: float, *, forget: bool) -> Day:
    folder = tempfile.mkdtemp(prefix="tidelake-log-day-")
    try:
        return _run(LocalStorage(folder), int(COMMITS_A_DAY * share), forget=forget)
    finally:
        shutil.rmtree(folder)


def _run(storage: LocalStorage, commits: int, *, forget: bool) -> Day:
    begun_ms = now_ms()
    state = make(storage)
    _put(storage, state, [_file(n).add(data_change=True) for n in range(FILES)], begun_ms)
    state.forget_vectors_within_ms = WITHIN_MS if forget else None

    def day() -> None:
        for number in range(1, commits):
            at_ms = begun_ms + EACH_MS * number
            _put(storage, state, _upsert(state, number, at_ms), at_ms)

    commit_s = _seconds(day)
    checkpoint_s = _seconds(lambda: write_checkpoint(storage, state, now_ms=begun_ms))
    sizes = {each.path: each.size for each in storage.list(LOG)}
    read_s = _seconds(lambda: read_log(storage))
    tracemalloc.start()
    copied = read_log(storage)
    state_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert copied is not None
    return Day(
        commits=commits,
        commit_ms=1000 * commit_s / commits,
        log_bytes=sum(size for path, size in sizes.items() if path.endswith(".json")),
        tombstones=len(state.tombstones),
        state_bytes=state_bytes,
        checkpoint_s=checkpoint_s,
        checkpoint_bytes=sizes[checkpoint_path(state.version)],
        read_s=read_s,
    )


def _file(number: int) -> DataFile:
    return data_file(f"tidelake-{number:032x}.parquet", stats=STATS)


def _upsert(state: LogState, number: int, at_ms: int) -> list[Json]:
    actions = [AppTransaction(app_id="app", version=number, last_updated_ms=at_ms).to_json()]
    name = z85_encode(number.to_bytes(16, "big"))
    for index, file in enumerate(list(state.files.values())):
        vector = DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline=name,
            offset=1 + 42 * index,
            size_in_bytes=34,
            cardinality=number,
        )
        actions.append(file.remove(at_ms, data_change=True))
        actions.append(file.changed(deletionVector=vector.to_json()).add(data_change=True))
    return actions


def _put(storage: LocalStorage, state: LogState, actions: list[Json], at_ms: int) -> None:
    now = CLOCK.monotonic()
    commit(storage, state, actions, operation="MERGE", now_ms=at_ms, followed_at=now)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.02, help="of a day")
    share = parser.parse_args().share
    for forget in (False, True):
        found = run(share, forget=forget)
        sys.stdout.write(f"{'forgotten' if forget else 'kept'}: {found}\n")
        times = 1.0 if forget else 1 / share  # what is forgotten does not grow
        sys.stdout.write(
            f"  a whole day: log {found.log_bytes / share / 1e9:.1f} GB, "
            f"{found.tombstones * times:,.0f} tombstones, "
            f"state {found.state_bytes * times / 1e6:,.1f} MB, "
            f"checkpoint {found.checkpoint_s * times:.2f} s\n"
        )


if __name__ == "__main__":
    main()
