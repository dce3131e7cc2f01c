"""A published cut reads as it was for as long as it is promised, whatever upkeep and DDLs do; later
it reads as it was, or says that it is gone."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from coordination.errors import TidelakeError
from sinks.control import snapshots as ledger
from sinks.control.upkeep import Upkeep
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.upkeep import fold_choice
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold
from streaming.operations.snapshots import LedgerSnapshot
from tests.seeds import chosen_seeds
from tests.sinks.merge_on_write.altering import AlteredHistory
from tests.sinks.merge_on_write.histories import Row
from tests.streaming.lake import Lake

HOUR_S = 3600.0
RETENTION_S = 24 * HOUR_S
STEPS = 60
Shown = dict[str, tuple[list[str], list[Row]]]  # by table: columns in their order, rows


class OurTable(AlteredHistory):
    """Without other writers: they do not know the simulated time."""

    def step(self) -> None:
        ddls = [self.add, self.add_filled, self.drop, self.rename, self.reorder, self.retype]
        ddls += [self.rekey, self.several, self.truncate, self.drop_and_create]
        chosen = self.dice.choice([*(12 * [self.write]), *ddls, self.reopen])
        self.log.append(chosen.__name__)
        chosen()


class Life:
    """Two tables and their ledger; storage and engines know the simulated time alone."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 1_800_000_000.0
        self.lake = Lake(folder, upkeep=Upkeep(every_commits=10))
        self.tables: list[OurTable] = []
        self.cuts: dict[int, tuple[float, Shown]] = {}  # by primary-ts: when, and what it shows
        self._known: set[str] = set()

    def begin(self, seed: int) -> None:
        for number in (0, 1):
            self.tables.append(OurTable(seed=2 * seed + number, folder=self.lake.tables))
        self.noted()

    def step(self, ts: int) -> None:
        self.now += self.dice.choice((1, 5, 600, HOUR_S, 5 * HOUR_S))
        table = self.dice.choice(self.tables)
        table.step()
        self.noted()
        self.publish(ts)
        self.now += self.dice.choice((0, 1, 30))
        if self.dice.random() < 0.5:
            self.look_after(self.dice.choice(self.tables))
        if self.dice.random() < 0.25:
            self.check()

    def publish(self, ts: int) -> None:
        shown: Shown = {}
        versions = {}
        for table in self.tables:
            name = table.target.name
            names = [column.name for column in table.target.schema.columns]
            shown[str(name)] = (names, list(table.rows.values()))
            versions[name.table] = table.version()
        self.cuts[ts] = self.now, shown
        self.lake.publish(ts, datetime.fromtimestamp(self.now, UTC), **versions)

    def noted(self) -> None:
        """Files that are new were made now."""
        for path in self.lake.tables.rglob("*"):
            if path.is_file() and str(path) not in self._known:
                self._known.add(str(path))
                os.utime(path, (self.now, self.now))

    def look_after(self, history: OurTable) -> None:
        table = history.engines[0].table(history.target.uri)
        if self.dice.random() < 0.6:
            with patch.multiple(fold_choice, FAN_OUT=2, MIN_DEAD_BYTES=1):
                fold(table, history.key)
        now_ms = int(self.now * 1000)
        with table.lock:
            table.refresh()
            if self.dice.random() < 0.8:
                write_checkpoint(table.storage, table.state, now_ms=now_ms)
            self.noted()
            clean_files(table.storage, table.state, now_ms=now_ms, orphans=self.dice.random() < 0.3)
            clean_log(table.storage, table.state.bare(), now_ms=now_ms)

    def check(self) -> None:
        """Some cuts of those that are promised."""
        promised = [ts for ts, (at, _) in self.cuts.items() if at > self.now - RETENTION_S]
        for ts in self.dice.sample(promised, min(4, len(promised))):
            snapshot = self.lake.find(ts)
            is_before_s = self.cuts[ts][0] - self.cuts[snapshot.primary_ts][0]
            assert is_before_s < (60 if self.now - self.cuts[ts][0] > HOUR_S else 1)
            self.assert_shows(snapshot)

    def assert_shows(self, snapshot: LedgerSnapshot) -> None:
        _, shown = self.cuts[snapshot.primary_ts]
        assert [str(table.name) for table in snapshot.tables] == sorted(shown)
        for history in self.tables:
            names, rows = shown[str(history.target.name)]
            found = snapshot.open(str(history.target.name))
            assert list(found.types) == names
            problem = history.difference(found.to_table().to_pylist(), rows)
            assert problem is None, f"cut {snapshot.primary_ts}: {problem} after {history.log}"

    def gone(self) -> list[str]:
        """Of all that the ledger has: right, or gone, and nothing else. What was said of these."""
        said = []
        for ts in self.cuts:
            try:
                self.assert_shows(self.lake.find(ts))
            except TidelakeError as error:
                said.append(str(error))
        return said

    def close(self) -> None:
        for table in self.tables:
            table.close()


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: object) -> Iterator[Life]:
    seed = request.param  # type: ignore[attr-defined]
    life = Life(tmp_path, seed)
    monkeypatch.setattr(time, "time", lambda: life.now)
    monkeypatch.setattr(ledger, "LEAST_ROWS", 30)
    life.begin(seed)
    yield life
    life.close()


def live(life: Life) -> None:
    for number in range(1, STEPS):
        life.step(100 * number)
    life.check()
    life.now += RETENTION_S + HOUR_S
    for table in life.tables:
        table.truncate()
        life.noted()
        life.look_after(table)
    said = life.gone()
    assert any("is gone: its" in each for each in said)
    assert all("is gone: its" in each or "the earliest that is kept" in each for each in said)


@pytest.mark.parametrize("life", range(2), indirect=True)
def test_a_promised_cut_reads_as_it_was(life: Life) -> None:
    live(life)


@pytest.mark.soak
@pytest.mark.parametrize("life", chosen_seeds(100), indirect=True)
def test_promised_cuts_of_many_read_as_they_were(life: Life) -> None:
    live(life)
