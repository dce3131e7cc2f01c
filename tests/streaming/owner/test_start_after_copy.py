"""A start after a copy goes on at the copy: at its TSO, or in the log of a server that has it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import Changefeed
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from streaming.changefeed.earlier_filters import refuse_left_out_tables
from streaming.owner.start_point import first_row, gone_on, settled_row
from streaming.source.contract import SourceLost
from tests.streaming.owner.test_start_point import (
    CHANGEFEED,
    LOG,
    SHAPE,
    certain_ts,
    filtered,
    log_of,
    settled,
)


def copied_at(ts: int, changefeed: Changefeed = CHANGEFEED) -> ChangefeedRow:
    """The row that the copy of a TiDB leaves."""
    row = replace(first_row(changefeed), start_ts=ts, checkpoint_ts=ts, resolved_ts=ts)
    return replace(row, loaded_ts=ts, state="stopped")


@pytest.mark.parametrize("start_ts", [0, 60, 100, 170])
@pytest.mark.parametrize("start_id", [None, "etcd/7/60"])
def test_tables_that_were_copied_go_on_at_the_copy(start_ts: int, start_id: str | None) -> None:
    started = replace(CHANGEFEED, start_ts=start_ts, on_unknown_column="drop")
    row = settled_row(copied_at(100), started, SHAPE, LOG, start_id)
    assert (row.incarnation, row.checkpoint_ts, row.state) == (1, 100, "running")
    assert row.start_ts == 100
    assert row.source_positions == {"shop/0": 0, "shop/1": 0}
    assert settled_row(row, started, SHAPE, LOG, row.start_id) == row


def test_where_kafka_has_deleted_what_the_copy_has_not_a_start_is_refused() -> None:
    with pytest.raises(SourceLost):
        settled_row(copied_at(certain_ts(70) - 1), CHANGEFEED, SHAPE, log_of(5, 70))
    assert settled_row(copied_at(certain_ts(70)), CHANGEFEED, SHAPE, log_of(5, 70)).term == 0


def test_a_table_that_the_copy_left_out_is_refused() -> None:
    narrow, wide = filtered("shop.a"), filtered("shop.*")
    row = settled(copied_at(100, narrow), wide)
    with pytest.raises(TidelakeError, match=r"table shop.b is wanted now.*up to 100"):
        refuse_left_out_tables(row, [TableName("shop", "b")])


@pytest.mark.parametrize(("tables_ts", "wanted"), [(70, 100), (120, 120)])
def test_another_server_must_have_all_that_copied_tables_show(tables_ts: int, wanted: int) -> None:
    """Their chunks show changes that the stream has not come to yet."""
    asked = list[int]()

    def goes_on(place: Any, _shape: object, reached_ts: int) -> Any:
        asked.append(reached_ts)
        return place

    source: Any = SimpleNamespace(goes_on=goes_on, shape=lambda: SHAPE)
    gone_on(replace(copied_at(100), checkpoint_ts=60), source, tables_ts)
    gone_on(replace(copied_at(100), loaded_ts=None), source, tables_ts)
    assert asked == [wanted, tables_ts]
