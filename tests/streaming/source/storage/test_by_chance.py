"""A writer that crashes and a reader that is cut off, step by step by chance: no row is lost, and
none is applied twice or too early."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import pytest

from conf.sources.csv_format import CsvFormat
from conf.sources.storage_uri import StorageSettings
from coordination.errors import TryAgain
from coordination.model import TableName, Ts
from sinks.storage.local_storage import LocalStorage
from sinks.storage.table_storage import Entry, Inside, ReadStorage
from streaming.protocols.contract import DATA, Block, Kind, WantedTable
from streaming.source.contract import ReadOrder, RecordedPlace, SourceChanged
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Stored
from streaming.source.storage import reader as reader_module
from streaming.source.storage.source import StorageSource
from streaming.source.storage.survey import Survey
from tests.services.storage_writer import SCHEMA, TABLES, Change, StorageWriter
from tests.streaming.source.jobs_here import JobsHere

WANTED = {TableName(SCHEMA, each): WantedTable(above_ts=Ts(0), key=("id",)) for each in TABLES}
STEPS = 150
RACES = 0.2
Row = tuple[str, int, str, int, int]


@dataclass(frozen=True, slots=True)
class Record:
    """As an owner stores it."""

    place: RecordedPlace
    checkpoint_ts: int


class Racing(LocalStorage):
    """Lists in pages of a few files, and the writer goes on between two of them."""

    def __init__(self, folder: Path, writer: StorageWriter, dice: random.Random) -> None:
        super().__init__(str(folder))
        self._writer, self._dice, self.is_over = writer, dice, False

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        while page := list(islice(super().list(prefix, start_after), self._dice.randint(1, 9))):
            yield from page
            start_after = page[-1].path
            self._write_on()

    def inside(self, folder: str) -> Inside:
        self._write_on()
        return super().inside(folder)

    def _write_on(self) -> None:
        if not self.is_over and self._dice.random() < RACES:
            for _ in range(self._dice.randint(1, 6)):
                self._writer.step()


class Process:
    """A life of a reader. ``carry``: what is read and above the checkpoint, with its place."""

    def __init__(
        self, settings: StorageSettings, stored: Record | None, storage: ReadStorage
    ) -> None:
        self.source = StorageSource(settings)
        self.source._opened = Survey(settings, storage)
        self.carry: dict[tuple[str, int, Row | str], int] = {}
        self.checkpoint_ts = stored.checkpoint_ts if stored else 0
        low_water: Positions = {}
        if stored is not None:
            self.source.keep_to(stored.place.identities)
        self.shape = self.source.shape()
        if stored is not None:
            self.source.goes_on(stored.place, self.shape, 0)
            low_water = {p: at for p, at in stored.place.positions.items() if p in self.shape.parts}
            new = self.source.beginnings(self.shape.parts - low_water.keys())
            self.source.refuse_a_hole(
                new, checkpoint_ts=self.checkpoint_ts, reached_ts=self.checkpoint_ts
            )
        self.position = self.source.begin_at(self.shape, low_water)
        self.source.check(self.position, self.checkpoint_ts)
        marks = stored.place.marks if stored else {}
        self.limits: Limits = self.source.limits(self.shape, marks).advance({}, self.position)
        jobs = JobsHere(2, are_within=False)
        self.reader = self.source.reader(jobs, start_ts=0, name="tests")

    def turn(self, dice: random.Random) -> None:
        """As `Reading.next` and `StreamRun` make one; a read may have few rows."""
        ends = self.source.ends(self.shape.parts)
        if any(self.position.get(part, at) < at for part, at in ends.items()):
            blocks = self.reader.read(
                ReadOrder(
                    begin=self.position,
                    ends=ends,
                    wanted=WANTED,
                    identities=self.shape.identities,
                    limits=self.limits,
                    messages=dice.choice((2, 7, 1_000)),
                )
            )
            position = self.position | {b.part: b.last for b in blocks if b.kind is Kind.DONE}
            self.source.check_unchanged(self.shape)
            self.limits = self.limits.advance({}, position)
            self.position = position
            self._take(blocks)
        self.limits = self.source.settled(
            self.shape, self.limits, self.position, Stored({}, is_ours=True)
        )

    def reshape(self) -> None:
        self.shape = self.source.shape()
        self.position = self.source.begin_at(self.shape, self.position)
        self.limits = self.limits.with_parts(self.shape.parts, Ts(1 << 62)).advance(
            {}, self.position
        )

    def due(self) -> set[Row | str]:
        """The rows and DDLs of (checkpoint, L]."""
        limit = max(self.limits.global_ts - 1, self.checkpoint_ts)
        found = {what for _, ts, what in self.carry if self.checkpoint_ts < ts <= limit}
        self.carry = {each: at for each, at in self.carry.items() if each[1] > limit}
        self.checkpoint_ts = limit
        return found

    def stored(self) -> Record:
        low_water = dict(self.position)
        for (part, _, _), at in self.carry.items():
            low_water[part] = min(low_water[part], at)
        place = RecordedPlace(
            positions=low_water, identities=self.shape.identities, marks=self.limits.to_record()
        )
        return Record(place=place, checkpoint_ts=self.checkpoint_ts)

    def _take(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if block.kind is Kind.DDL:
                for each in block.table().to_pylist():
                    key = (block.part, each["commit_ts"], str(each["query"]))
                    self.carry.setdefault(key, each["position"])
            elif block.kind is Kind.ROW:
                for each in block.table().to_pylist():
                    ts, values = each["commit_ts"], each[DATA]
                    row = (block.name.table, ts, "DIU"[each["op"]], *_cells(values))
                    self.carry[block.part, ts, row] = min(
                        each["position"], self.carry.get((block.part, ts, row), each["position"])
                    )
            elif block.kind is Kind.BAD:
                for each in block.table().to_pylist():
                    assert "TiCDC writes" in each["error_message"], each


def _cells(values: dict[str, str]) -> tuple[int, int]:
    assert {values[each] for each in values if each != "id"} == {values["n"]}
    return int(values["id"]), int(values["n"])


def what(change: Change) -> Row | str:
    if change.query:
        return change.query
    return change.table, change.ts, change.op, change.key, change.n


def live(folder: Path, seed: int) -> None:
    dice = random.Random(seed)
    is_classic, has_old = dice.random() < 0.5, dice.random() < 0.5
    clock_ms, step = int(time.time() * 1e3) - 60_000, 0
    writer = StorageWriter(
        folder,
        dice,
        lambda: clock_ms + step,
        is_classic=is_classic,
        has_old=has_old,
        dispatchers=dice.choice((0, 0, 2)),
    )
    settings = StorageSettings(folder=str(folder), protocol="csv", csv=CsvFormat(has_old=has_old))
    storage = Racing(folder, writer, dice)
    applied, stored, process = set[Row | str](), None, None
    reached_ts = 0
    while True:
        step += 1
        if step == STEPS:
            storage.is_over = True
            writer.finish()
        elif step < STEPS:
            for _ in range(dice.randint(0, 12)):
                writer.step()
        with suppress(TryAgain):
            if process is None:
                process = Process(settings, stored, storage)
            try:
                process.turn(dice)
            except SourceChanged:
                process.reshape()
        if process is not None:
            found = process.due()
            assert not found & applied, "twice"
            applied |= found
            reached_ts = max(reached_ts, process.checkpoint_ts)
            every = {what(c) for of in writer.changes.values() for c in of if c.ts <= reached_ts}
            missing = every - applied
            assert not missing, sorted(map(str, missing))[:3]
            surplus = applied - every - {"CREATE DATABASE `shop`"}
            assert not surplus, sorted(map(str, surplus))[:3]
            stored = process.stored()
            if dice.random() < 0.05:
                process = None
        if step >= STEPS and process is not None and reached_ts >= writer.checkpoint_ts - 1:
            return
        assert step < STEPS + 300, "it does not come to its end"


@pytest.mark.seeds(4, 4)
def test_no_row_is_lost_however_files_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # in the order of commit-ts
        monkeypatch.setattr(reader_module, "BACKLOG_BYTES", -1)
    live(tmp_path / "cdc", seed)
    shutil.rmtree(tmp_path / "cdc")


@pytest.mark.parametrize("is_classic", [True, False])
def test_a_large_backlog_is_applied_before_all_of_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_classic: bool
) -> None:
    """Rows come by their commit-ts, whatever files they are in, those that came again too."""
    most = {}
    for backlog in (1 << 30, -1):
        monkeypatch.setattr(reader_module, "BACKLOG_BYTES", backlog)
        dice, folder = random.Random(7), tmp_path / str(backlog)
        times = count(int(time.time() * 1e3) - 60_000)
        writer = StorageWriter(folder, dice, times.__next__, is_classic=is_classic)
        for _ in range(3_000):
            writer.step()
        writer.finish()
        settings = StorageSettings(folder=str(folder), protocol="csv", csv=CsvFormat())
        process = Process(settings, None, LocalStorage(folder))
        applied, waiting = set[Row | str](), []
        monkeypatch.setattr(dice, "choice", lambda _: 100)  # rows of a read
        for _ in range(500):
            process.turn(dice)
            waiting.append(len(process.carry))
            applied |= process.due()
        every = {what(each) for of in writer.changes.values() for each in of}
        assert writer.crashes > 3
        assert applied - {"CREATE DATABASE `shop`"} == every
        most[backlog] = max(waiting) / len(every)
    assert most[1 << 30] > 0.9
    assert most[-1] < 0.3
