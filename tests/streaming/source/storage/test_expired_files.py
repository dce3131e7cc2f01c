"""Files that TiCDC deletes by age while nothing reads. Numbers begin again with each date,
so they do not tell of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pytest

from conf.sources.storage_uri import StorageSettings
from coordination.model import TSO_LOGICAL_BITS
from sinks.control.changefeeds import RecordedWatermark
from sinks.storage.table_storage import Entry
from streaming.source.contract import (
    RecordedPlace,
    SourceAway,
    SourceLost,
    SourceMoved,
    SourceShape,
)
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Stored
from streaming.source.storage.layout import SCHEMAS, schema_position
from streaming.source.storage.source import StorageSource
from streaming.source.storage.survey import Survey
from tests.own_lines import own_lines
from tests.streaming.source.storage.counted_tree import CountedTree

DAY_MS: Final = 86_400_000
NOW_MS: Final = int(time.time() * 1e3)
SETTINGS: Final = StorageSettings(folder="/unused", protocol="canal-json")


def ts(days: float) -> int:
    """So many days ago."""
    return int(NOW_MS - days * DAY_MS) << TSO_LOGICAL_BITS


VERSION, READ = ts(30), ts(9)
PART: Final = f"shop/a/{VERSION}"


def put(tree: CountedTree, days: int, table: str = f"a/{VERSION}", index: int = 1) -> None:
    """A file that was made so many days ago, an hour later at that."""
    modified_ms = NOW_MS - days * DAY_MS + 3_600_000
    date = datetime.fromtimestamp(modified_ms / 1e3, UTC).date()
    path = f"shop/{table}/{date}/CDC{index:020}.json"
    tree.put(path)
    tree.modified_ms[path] = modified_ms


def tree_of(*days: int) -> CountedTree:
    tree = CountedTree()
    for each in days:
        put(tree, each)
    tree.checkpoint(ts(0))
    return tree


def source_of(tree: CountedTree) -> StorageSource:
    source = StorageSource(SETTINGS)
    source._opened = Survey(SETTINGS, tree)
    return source


def place_of(tree: CountedTree, read_ts: int) -> RecordedPlace:
    """Where all that is there was read."""
    source = source_of(tree)
    shape = source.shape()
    ends = source.ends(shape.parts)
    marks = {part: RecordedWatermark(ts=read_ts, position=at - 1) for part, at in ends.items()}
    return RecordedPlace(
        positions={**ends, SCHEMAS: schema_position(read_ts)},
        identities=shape.identities,
        marks=marks,
    )


def start(tree: CountedTree, place: RecordedPlace, checkpoint_ts: int) -> None:
    """As an owner does."""
    source = source_of(tree)
    source.keep_to(place.identities)
    shape = source.shape()
    assert source.goes_on(place, shape, 0) is place
    kept = {part: at for part, at in place.positions.items() if part in shape.parts}
    source.check(kept, checkpoint_ts)
    source.begin_at(shape, kept)


def test_date_folders_that_may_have_expired_unread_are_refused() -> None:
    place = place_of(tree_of(10), READ)
    with pytest.raises(SourceLost, match="may have been deleted before they were applied"):
        start(tree_of(1), place, READ)


def test_a_part_that_may_have_expired_unread_is_refused() -> None:
    place, left = place_of(tree_of(10), READ), CountedTree()
    put(left, 1, f"b/{ts(5)}")
    left.checkpoint(ts(0))
    for tree in (left, CountedTree()):
        with pytest.raises(SourceLost, match="may have been deleted before they were applied"):
            start(tree, place, READ)


def test_nothing_has_expired_unread_where_the_checkpoint_is_of_today() -> None:
    place, left = place_of(tree_of(10), ts(0.5)), tree_of(0)
    start(left, place, ts(0.5))


def test_nothing_has_expired_unread_where_a_file_is_as_old_as_the_checkpoint() -> None:
    """Files are deleted by date, in the whole folder."""
    place, left = place_of(tree_of(10), READ), tree_of(1)
    put(left, 10, f"b/{VERSION}")
    start(left, place, READ)
    put(left, 3)
    start(left, place, READ)


def test_an_earlier_version_has_nothing_more_to_lose() -> None:
    place, left = place_of(tree_of(20), READ), CountedTree()
    left.put(f"shop/a/meta/schema_{ts(15)}_{7:010}.json")
    left.checkpoint(ts(0))
    start(left, place, READ)


def test_what_was_read_and_is_there_has_not_expired() -> None:
    start(tree_of(8, 1), place_of(tree_of(8), READ), READ)


def test_a_beginning_behind_the_version_s_date_is_told(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(tree_of(3))
    first = source.beginnings(source.shape().parts)
    with caplog.at_level(logging.WARNING):
        source.refuse_a_hole(first, checkpoint_ts=ts(2), reached_ts=None)
        assert not own_lines(caplog), "what was deleted is older than that"
        source.refuse_a_hole(first, checkpoint_ts=0, reached_ts=None)
    (line,) = own_lines(caplog)
    assert f"/unused/{PART} begins" in line
    assert "file-expiration-days" in line
    caplog.clear()
    source = source_of(tree_of(30))
    source.refuse_a_hole(source.beginnings(source.shape().parts), checkpoint_ts=0, reached_ts=None)
    assert not own_lines(caplog)


class Life:
    """A stream that reads, as far as its source is asked."""

    def __init__(self, tree: CountedTree, survey: Survey | None = None) -> None:
        self.source = StorageSource(SETTINGS)
        self.source._opened = self.survey = survey or Survey(SETTINGS, tree)
        self.source.keep_to({})
        self.shape: SourceShape = self.source.shape()
        self.position: Positions = self.source.begin_at(self.shape, {})
        self.limits: Limits = self.source.limits(self.shape, {}).advance({}, self.position)

    def read(self) -> None:
        """All that is there."""
        ends = self.source.ends(self.shape.parts)
        self.survey.refuse_gone(self.position)
        self.position = {**self.position, **ends}
        self.limits = self.source.settled(
            self.shape, self.limits, self.position, Stored({}, is_ours=True)
        )


def date(days: int) -> str:
    return (
        datetime.fromtimestamp((NOW_MS - days * DAY_MS + 3_600_000) / 1e3, UTC).date().isoformat()
    )


def test_files_that_expire_unread_under_a_running_stream_are_refused() -> None:
    """Those that were listed already, of a date that is gone with all its files."""
    tree = tree_of(10, 9)
    life = Life(tree)
    put(tree, 9, index=2)
    put(tree, 1)
    tree.checkpoint(ts(0) + 1)
    life.source.ends(life.shape.parts)
    for days in (10, 9):
        tree.remove(date(days))
    tree.checkpoint(ts(0) - 1)  # it goes back, so all is listed anew
    for _ in range(2):
        with pytest.raises(SourceLost, match="files up to number 2 of their date are gone"):
            life.read()


def test_a_part_that_expires_unread_under_a_running_stream_is_refused() -> None:
    tree = tree_of(10)
    life = Life(tree)
    tree.remove(PART)
    tree.checkpoint(ts(0) + 1)
    with pytest.raises(SourceLost, match=f"{PART}: files up to number 1 of their date are gone"):
        life.read()
    assert life.limits.global_ts == 0
    put(tree, 10)
    again = Life(tree, life.survey)
    again.read()
    assert again.limits.global_ts == ts(0) + 1, "they were brought back"


def test_files_that_expire_when_they_were_read_are_no_loss() -> None:
    tree = tree_of(10, 9)
    life = Life(tree)
    life.read()
    for days, more in ((10, 1), (9, 2)):
        tree.remove(date(days))
        put(tree, 1, index=more)
        tree.checkpoint(ts(0) + more)
        life.read()
        assert life.limits.global_ts == ts(0) + more
    tree.remove(PART)
    tree.checkpoint(ts(0) + 3)
    life.read()
    assert life.limits.global_ts == ts(0) + 3


def test_a_day_without_a_look_is_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may have come and gone in it."""
    tree = tree_of(10)
    life = Life(tree)
    life.read()
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 86_000)
    tree.checkpoint(ts(0) + 1)
    life.read()
    monkeypatch.setattr(time, "time", lambda: now_s + 86_000 + 86_401)
    with pytest.raises(SourceMoved, match="was not looked at for more than a day"):
        life.read()
    again = Life(tree, life.survey)
    again.read()


def test_a_listing_that_fails_halfway_changes_nothing() -> None:
    tree = tree_of(10, 9)
    life = Life(tree)
    listed, fails = tree.list, True

    def broken(prefix: str, start_after: str = "") -> Iterator[Entry]:
        for number, each in enumerate(listed(prefix, start_after)):
            if number and fails:
                raise OSError("timed out")
            yield each

    tree.list = broken  # type: ignore[method-assign]
    tree.checkpoint(ts(1))
    with pytest.raises(SourceAway):
        life.read()
    fails = False
    life.read()
    assert life.position[PART] == life.survey.logs[PART].end
    assert life.limits.global_ts == ts(1)
