"""Files that TiCDC deletes by age while nothing reads. Numbers begin again with each date,
so they do not tell of it."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Final

import pytest

from conf.sources.storage_uri import StorageSettings
from coordination.model import TSO_LOGICAL_BITS
from sinks.control.changefeeds import RecordedWatermark
from streaming.source.contract import RecordedPlace, SourceLost
from streaming.source.storage.layout import SCHEMAS, schema_position
from streaming.source.storage.source import StorageSource
from streaming.source.storage.survey import Survey
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
        assert not caplog.messages, "what was deleted is older than that"
        source.refuse_a_hole(first, checkpoint_ts=0, reached_ts=None)
    (line,) = caplog.messages
    assert f"/unused/{PART} begins" in line
    assert "file-expiration-days" in line
    caplog.clear()
    source = source_of(tree_of(30))
    source.refuse_a_hole(source.beginnings(source.shape().parts), checkpoint_ts=0, reached_ts=None)
    assert not caplog.messages
