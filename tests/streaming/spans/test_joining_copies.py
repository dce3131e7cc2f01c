"""Tables that an earlier filter has left out are copied into a changefeed that has begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from conf.route_rules import RouteRule
from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError, TryAgain
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.warehouse import ControlTables
from streaming.source.binlog.source import PART
from streaming.spans.copies import first_copy
from streaming.spans.copies.first_copy import FirstCopy
from tests.acceptance.binlog_stage import end_of_log
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.streaming.spans.test_first_copy import NAME, changefeed_of, copied, tables_of

pytestmark = pytest.mark.mariadb

OTHER = TableName(NAME, "other")


@pytest.fixture
def narrow(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[Changefeed]:
    """Its tables are copied."""
    with tables_of(mariadb):
        changefeed = changefeed_of(mariadb, tmp_path)
        copied(changefeed, tmp_path)
        mariadb.execute(f"INSERT INTO {NAME}.other VALUES (1), (2), (3)")
        yield changefeed


@pytest.fixture
def wide(narrow: Changefeed) -> Changefeed:
    return replace(narrow, filter=replace(narrow.filter, rules=(f"{NAME}.*",)))


def row_of(changefeed: Changefeed) -> ChangefeedRow:
    row = ControlTables.of(changefeed.sink).changefeeds.read(changefeed.id)
    assert row is not None
    return row


def joined(changefeed: Changefeed, tmp_path: Path) -> None:
    with closing(FirstCopy(changefeed, tmp_path / "staging")) as copy:
        copy.join()


def begin_of_other(changefeed: Changefeed) -> int:
    progress = ControlTables.of(changefeed.sink).progress.read(changefeed.id)
    return int(progress[OTHER].source_positions[PART])


def test_the_stream_goes_on_from_where_it_was_and_the_table_from_its_copy(
    narrow: Changefeed, wide: Changefeed, tmp_path: Path
) -> None:
    before = row_of(narrow)
    joined(narrow, tmp_path)
    assert row_of(narrow) == before
    joined(wide, tmp_path)
    row = row_of(wide)
    assert row.source_positions == before.source_positions
    assert row.term == before.term + 1  # an owner of before writes no more
    assert row.loaded_ts == row.max_published_ts > before.checkpoint_ts
    assert begin_of_other(wide) > before.source_positions[PART]
    assert len(read_rows(tmp_path / "lake" / NAME / "other")) == 3
    assert not (tmp_path / "staging").exists()
    joined(wide, tmp_path)
    assert row_of(wide) == row


def test_where_the_changefeed_has_gone_on_meanwhile_the_copy_begins_anew(
    mariadb: DatabaseServer, wide: Changefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(first_copy, "load_all", broken)
        with pytest.raises(KeyboardInterrupt):
            joined(wide, tmp_path)
    mariadb.execute(f"INSERT INTO {NAME}.other VALUES (4)")
    row, end = row_of(wide), end_of_log(mariadb)  # with the earlier filter, say
    checkpoint_ts = row.max_published_ts + 7  # its pins need not have one for the position
    gone_on = replace(row, checkpoint_ts=checkpoint_ts, source_positions={PART: end})
    ControlTables.of(wide.sink).changefeeds.save(gone_on)
    joined(wide, tmp_path)
    assert begin_of_other(wide) >= end
    assert len(read_rows(tmp_path / "lake" / NAME / "other")) == 4


def test_a_table_that_has_joined_under_another_name_does_not_join_again(
    wide: Changefeed, tmp_path: Path
) -> None:
    route = RouteRule(matcher=(str(OTHER),), target_schema=NAME, target_table="renamed")
    routed = replace(wide, sink=replace(wide.sink, routes=(route,)))
    joined(routed, tmp_path)
    row = row_of(routed)
    assert len(read_rows(tmp_path / "lake" / NAME / "renamed")) == 3
    joined(routed, tmp_path)
    assert row_of(routed) == row


def test_nothing_joins_beside_an_owner_or_in_another_mode(wide: Changefeed, tmp_path: Path) -> None:
    assert isinstance(wide.source, BinlogSettings)
    full = replace(wide, source=replace(wide.source, task_mode="full"))
    with pytest.raises(ConfigError, match="task-mode=all copies them and lets them join"):
        joined(full, tmp_path)
    owned = replace(row_of(wide), state="running", fresh_for_s=100.0, capture_id="c1")
    ControlTables.of(wide.sink).changefeeds.save(owned)
    with pytest.raises(TryAgain, match=r"capture c1 .* still replicates it: stop that"):
        joined(wide, tmp_path)
