"""A reader of any version within retention, while all is looked after: weeks in simulated time."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold
from tests.sinks.merge_on_write.orders import Rows, changed, rows_of, target, write

HOUR_S = 3600.0
RETENTION_S = 24 * HOUR_S  # as the table's properties say
STEPS = 120


class Life:
    """A table whose storage and engine know the simulated time alone."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.uri = str(folder / "table")
        self.now = 1_800_000_000.0
        self.engine = MergeOnWriteEngine({}, keeps_up=False)
        self.rows: Rows = {}
        self.current: dict[int, tuple[Rows, float]] = {}  # by version: since when it is the newest
        self.readers: deque[tuple[DeltaTable, Rows, float]] = deque()
        self._known: set[str] = set()

    def begin(self) -> None:
        create(target(self.uri), properties={})
        self.noted()

    def step(self, number: int) -> None:
        self.now += self.dice.choice((1, 5, 600, 2 * HOUR_S, 6 * HOUR_S))
        self.write(number)
        if self.dice.random() < 0.3:
            with patch.multiple(fold_choice, FAN_OUT=3, MIN_DEAD_BYTES=1):
                fold(self.engine.table(self.uri), ("id",))
            self.noted()
        if self.dice.random() < 0.2:
            self.readers.append((DeltaTable(self.uri), self.rows, self.now))
        if self.dice.random() < 0.3:
            self.look_after()
            self.check()

    def write(self, number: int) -> None:
        changes: dict[int, str | None] = {
            self.dice.randrange(60): self.dice.choice((None, f"at {number}", f"at {number}"))
            for _ in range(self.dice.randint(1, 8))
        }
        self.engine.apply(write(self.uri, number, changes))
        self.rows = changed(self.rows, changes)
        self.noted()

    def noted(self) -> None:
        """The newest version, and the time at which its files were made."""
        version = DeltaTable(self.uri).version()
        self.current.setdefault(version, (self.rows, self.now))
        for path in Path(self.uri).rglob("*"):
            if path.is_file() and str(path) not in self._known:
                self._known.add(str(path))
                os.utime(path, (self.now, self.now))

    def look_after(self) -> None:
        table = self.engine.table(self.uri)
        now_ms = int(self.now * 1000)
        with table.lock:
            table.refresh()
            if self.dice.random() < 0.8:
                write_checkpoint(table.storage, table.state, now_ms=now_ms)
                self.noted()
            clean_files(table.storage, table.state, now_ms=now_ms, orphans=self.dice.random() < 0.3)
            clean_log(table.storage, table.state.bare(), now_ms=now_ms)

    def check(self) -> None:
        """Each version that was the newest within retention, and what was opened since."""
        versions = sorted(self.current)
        followed = dict(pairwise(versions))
        oldest = self.now - RETENTION_S
        within = [
            version
            for version in versions
            if version not in followed or self.current[followed[version]][1] > oldest
        ]
        for version in {within[0], within[-1], *self.dice.sample(within, min(2, len(within)))}:
            assert rows_of(self.uri, version) == self.current[version][0], f"version {version}"
        while self.readers and self.readers[0][2] <= oldest:
            self.readers.popleft()
        for reader, rows, _ in list(self.readers)[:2]:
            found = QueryBuilder().register("t", reader).execute("SELECT * FROM t").read_all()
            assert {row["id"]: row["v"] for row in pa.table(found).to_pylist()} == rows


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: object) -> Iterator[Life]:
    life = Life(tmp_path, request.param)  # type: ignore[attr-defined]
    monkeypatch.setattr(time, "time", lambda: life.now)
    life.begin()
    yield life
    life.engine.close()


@pytest.mark.parametrize("life", range(2), indirect=True)
def test_what_a_reader_may_ask_for_is_there(life: Life) -> None:
    for number in range(1, STEPS):
        life.step(number)
    data = [path for path in Path(life.uri).rglob("*") if path.suffix in (".parquet", ".bin")]
    commits = list(Path(life.uri, "_delta_log").glob("*.json"))
    assert len(data) < STEPS  # and it is cleaned up
    assert len(commits) < STEPS
