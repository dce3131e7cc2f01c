"""A folder whose files are half-written, gone, or not as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conf.sources.storage_uri import StorageSettings
from streaming.jobs.on_spark import SparkJobs
from streaming.protocols.contract import Block, Kind
from streaming.source.block_job import ReadFailed
from streaming.source.contract import (
    Reader,
    ReadOrder,
    RecordedPlace,
    Source,
    SourceAway,
    SourceChanged,
    SourceLost,
)
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Stored
from streaming.source.sources import open_source
from streaming.source.storage.layout import SCHEMAS
from streaming.source.storage.survey import survey_of
from tests.services import wire_storage

VERSION = 470_000_000_000_000_001
PART = f"shop/a/{VERSION}"
TS = 470_000_000_000_000_100
pytestmark = pytest.mark.spark


class Folder:
    """A folder, and a stream that reads it."""

    def __init__(self, path: Path, spark: SparkSession) -> None:
        self.path, self.spark = path, spark
        self.settings = StorageSettings(
            folder=str(path), protocol="canal-json", date_separator="none"
        )
        self.readers: list[Reader] = []
        self.restart()

    def restart(self) -> None:
        """All that a process knows of the folder is forgotten."""
        survey_of.cache_clear()
        self.source: Source = open_source(self.settings)
        self.reader = self.source.reader(
            SparkJobs(self.spark.sparkContext), start_ts=0, name="tests"
        )
        self.readers.append(self.reader)

    def put(self, index: int, text: str, *, version: int = VERSION) -> Path:
        file = self.path / "shop" / "a" / str(version) / f"CDC{index:06}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def checkpoint(self, ts: int) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / "metadata").write_text(f'{{"checkpoint-ts":{ts}}}')

    def begin(self, low_water: Positions | None = None) -> None:
        self.shape = self.source.shape()
        self.position = dict(self.source.begin_at(self.shape, low_water or {}))
        self.limits: Limits = self.source.limits(self.shape, {}).advance({}, self.position)

    def read(self) -> list[str]:
        """The bytes of all rows that come, each of which is a bad one; then the limits are new."""
        found: list[Block] = []
        while True:
            ends = self.source.ends(self.shape.parts)
            blocks = self.reader.read(
                ReadOrder(
                    begin=self.position,
                    ends=ends,
                    wanted={},
                    identities=self.shape.identities,
                    limits=self.limits,
                    messages=1_000,
                )
            )
            if not blocks:
                break
            found += blocks
            self.position |= {b.part: b.last for b in blocks if b.kind is Kind.DONE}
        self.limits = self.source.settled(self.shape, self.limits, self.position, Stored({}, True))
        bad = [block for block in found if block.kind is Kind.BAD]
        return [each.decode() for block in bad for each in block.table()["value"].to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> Iterator[Folder]:
    made = Folder(tmp_path / "cdc", spark)
    yield made
    for each in made.readers:
        each.close()


def test_a_row_without_an_end_waits_and_holds_nothing_back(folder: Folder) -> None:
    folder.put(1, "one\r\ntwo\r\nthr")
    folder.checkpoint(TS)
    folder.begin()
    assert folder.read() == ["one", "two"]
    assert folder.limits.global_ts == TS, "what TiCDC has finished is whole"
    folder.put(1, "one\r\ntwo\r\nthree\r\n")
    folder.checkpoint(TS + 1)
    assert folder.read() == ["three"]
    assert folder.limits.global_ts == TS + 1


def test_a_row_that_was_cut_off_for_good_is_a_dead_letter(folder: Folder) -> None:
    """TiCDC was killed, and goes on with the next file."""
    folder.put(1, "one\r\ntw")
    folder.checkpoint(TS)
    folder.begin()
    assert folder.read() == ["one"]
    folder.put(2, "two\r\n")
    folder.checkpoint(TS + 1)
    assert folder.read() == ["tw", "two"]
    assert folder.limits.global_ts == TS + 1


def test_an_index_that_is_ahead_of_its_file_is_nothing(folder: Folder) -> None:
    folder.put(1, "one\r\n")
    index = folder.path / PART / "meta" / "CDC.index"
    index.parent.mkdir()
    index.write_text("CDC000002.json\n")
    folder.checkpoint(TS)
    folder.begin()
    assert folder.read() == ["one"]
    assert folder.limits.global_ts == TS


def test_files_may_go_once_they_were_applied_and_not_before(folder: Folder) -> None:
    files = [folder.put(index, f"{index}\r\n") for index in (1, 2, 3)]
    folder.checkpoint(TS)
    folder.begin()
    first = dict(folder.position)
    folder.read()
    files[0].unlink()
    files[1].unlink()
    folder.restart()
    with pytest.raises(SourceLost, match="file 1 is gone before it was applied"):
        folder.source.begin_at(folder.source.shape(), first)
    known = folder.shape.identities
    assert folder.source.shape().identities != known
    folder.source.keep_to(known)
    folder.source.check_identities(known, folder.source.shape())
    folder.put(4, "4\r\n")
    folder.checkpoint(TS + 1)
    folder.begin(folder.position)
    assert folder.read() == ["4"]


def test_a_hole_between_files_is_refused(folder: Folder) -> None:
    folder.put(1, "1\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.put(3, "3\r\n")
    folder.checkpoint(TS + 1)
    with pytest.raises(SourceLost, match="file 2 is gone before it was read"):
        folder.read()
    with pytest.raises(SourceLost, match="file 2 is gone before it was applied"):
        folder.begin(folder.position)


def test_a_start_above_deleted_files_is_refused_unless_they_are_older(folder: Folder) -> None:
    folder.put(5, "5\r\n")
    folder.checkpoint(TS)
    shape = folder.source.shape()
    first = folder.source.beginnings(shape.parts)
    with pytest.raises(SourceLost, match="load the tables anew, and begin at"):
        folder.source.refuse_a_hole(first, checkpoint_ts=TS, reached_ts=None)
    folder.source.refuse_a_hole(first, checkpoint_ts=(1 << 62), reached_ts=None)
    with pytest.raises(SourceLost, match="begins with file 5 already"):
        folder.source.begin_at(shape, {})


def test_a_file_that_is_shorter_now_is_refused(folder: Folder) -> None:
    folder.put(1, "one\r\ntwo\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.read()
    folder.put(1, "one\r\n")
    folder.checkpoint(TS + 1)
    with pytest.raises(SourceAway, match="had 10 bytes and has 5 now"):
        folder.read()
    assert folder.limits.global_ts == TS
    position = folder.position
    folder.restart()
    with pytest.raises(SourceLost, match="was read, and is not there any more"):
        folder.source.check(position)


def test_a_file_that_is_written_again_is_awaited(folder: Folder) -> None:
    file = folder.put(1, "one\r\ntwo\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.source.ends(folder.shape.parts)
    file.write_text("one\r\n")
    with pytest.raises(ReadFailed, match="had 10 bytes and has 5 now"):
        folder.read()
    folder.put(1, "one\r\ntwo\r\nthree\r\n")
    assert folder.read() == ["one", "two"], "what was listed"
    folder.checkpoint(TS + 1)
    assert folder.read() == ["three"]


def test_what_another_capture_has_listed_later_was_read(folder: Folder) -> None:
    """It has read beyond the checkpoint-ts, and this one takes over."""
    folder.put(1, "one\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.read()
    position = {**folder.position, PART: folder.position[PART] + len("two\r\n")}
    folder.put(1, "one\r\ntwo\r\n")
    folder.source.check(position)
    assert folder.source.begin_at(folder.source.shape(), position) == position


def test_a_part_that_is_gone_must_have_been_applied(folder: Folder) -> None:
    file = folder.put(1, "one\r\n")
    folder.put(1, "x\r\n", version=VERSION + 1)
    folder.checkpoint(TS)
    folder.begin()
    folder.read()
    place = RecordedPlace(
        positions=folder.position,
        identities=folder.shape.identities,
        marks=folder.limits.to_record(),
    )
    file.unlink()
    folder.restart()
    now = folder.source.shape()
    assert PART not in now.parts
    assert folder.source.goes_on(place, now, 0) is place
    behind = RecordedPlace(
        positions={**place.positions, PART: 0}, identities=place.identities, marks=place.marks
    )
    with pytest.raises(SourceLost, match="rows in it were not applied yet"):
        folder.source.goes_on(behind, now, 0)


def test_a_new_version_is_a_part_more_before_its_checkpoint_counts(folder: Folder) -> None:
    folder.put(1, "one\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.read()
    folder.put(1, "new\r\n", version=VERSION + 1)
    folder.checkpoint(TS + 1)
    with pytest.raises(SourceChanged, match=f"new folder shop/a/{VERSION + 1}"):
        folder.read()
    assert folder.limits.global_ts == TS
    folder.begin(folder.position)
    assert folder.read() == ["new"]
    assert folder.limits.global_ts == TS + 1


def test_a_checkpoint_of_the_far_future_does_not_count(folder: Folder) -> None:
    folder.put(1, "one\r\n")
    folder.checkpoint(1 << 62)
    folder.begin()
    assert folder.read() == ["one"]
    assert folder.limits.global_ts == 0


def test_a_storage_that_is_away_is_tried_again(folder: Folder) -> None:
    folder.put(1, "one\r\n")
    folder.checkpoint(TS)
    folder.begin()
    metadata = folder.path / "metadata"
    metadata.unlink()
    metadata.mkdir()
    with pytest.raises(SourceAway):
        folder.source.ends(folder.shape.parts)


def test_schema_files_are_compared_with_their_checksum(folder: Folder) -> None:
    wire_storage.folder(wire_storage.CSV, folder.path, lambda step: step.what == "flush")
    folder.checkpoint(TS * 2)
    folder.begin()
    file = next((folder.path / "shop" / "coupon" / "meta").iterdir())
    text = file.read_text()
    file.write_text(text[:100])
    with pytest.raises(ReadFailed, match="it is no schema file of TiCDC"):
        folder.read()
    file.write_text(text.replace("VARCHAR", "CHAR"))
    with pytest.raises(SourceLost, match="does not say what its name does"):
        folder.read()
    file.write_text(text)
    begin = folder.position[SCHEMAS]
    folder.read()
    assert folder.position[SCHEMAS] > begin


def test_nothing_lies_before_a_part_s_first_file(folder: Folder) -> None:
    """A role that has no place in a new part begins at 0."""
    folder.put(1, "one\r\n")
    folder.checkpoint(TS)
    folder.begin()
    folder.position = dict.fromkeys(folder.position, 0)
    first = folder.source.beginnings([PART])
    (done,) = folder.reader.read(
        ReadOrder(
            begin={PART: 0},
            ends=first,
            wanted={},
            identities=folder.shape.identities,
            limits=folder.limits,
            messages=9,
        )
    )
    assert (done.kind, done.last, done.rows) == (Kind.DONE, first[PART], 0)
    assert folder.read() == ["one"]
