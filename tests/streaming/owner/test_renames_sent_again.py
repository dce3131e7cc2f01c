"""Renames and exchanges that a sender sends a second time are told by their place at the sender."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings
from coordination.model import TableName, Ts
from sinks.ddl.text.logged import SentAt, Session, as_written, sent_at
from sinks.target.table_properties import DdlIdentity
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.due import is_wanted, statement_of
from streaming.owner.ddl.refusal import DdlNotSupported
from streaming.owner.ddl.sent_again import has_run
from streaming.owner.ddl.steps import DdlEvent
from tests.sinks.merge_on_write.orders import NAME
from tests.streaming.owner.test_ddl_run import Ground

OTHER = TableName(NAME.schema, "other")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    made.owner.make()
    made.put(NAME, 50, {1: "a", 2: "b"})
    return made


def sent(at: int, sql: str, file: str = "") -> str:
    return SentAt(file, at).with_place(sql)


def test_an_exchange_of_two_tables_that_comes_again_is_refused(ground: Ground) -> None:
    first = f"CREATE TABLE `{OTHER.table}` LIKE `{NAME.table}`"
    target = ground.owner.spans[NAME].target
    assert target is not None
    made = DdlIdentity(commit_ts=Ts(60), order=0, query=sent(60, first))
    ground.owner.spans.create(OTHER, target.schema, made, Ts(60))
    ground.owner.rows.add([(ground.owner.spans[OTHER], {})])
    a, b = NAME.table, OTHER.table
    swap = f"RENAME TABLE `{a}` TO `tmp`, `{b}` TO `{a}`, `tmp` TO `{b}`"
    assert ground.run(NAME, 100, sent(90, swap)).runs is not None
    for place in (90, 80):  # or an earlier one, which came again with it
        with pytest.raises(DdlNotSupported, match="the sender has sent it again"):
            ground.run(NAME, 200 + place, sent(place, swap))
    assert ground.run(NAME, 300, sent(91, swap)).runs is not None
    unplaced = f"{swap} -- the sender does not tell its place"
    assert ground.run(NAME, 400, unplaced).runs is not None


def test_an_exchange_of_two_columns_that_comes_again_is_refused(ground: Ground) -> None:
    target = ground.owner.spans[NAME].target
    assert target is not None
    columns = [each.name for each in target.schema.columns if each.name not in target.schema.key]
    if len(columns) < 2:
        ground.run(NAME, 60, sent(60, f"ALTER TABLE `{NAME.table}` ADD COLUMN `w` VARCHAR(9)"))
        columns = [*columns, "w"]
    one, other = columns[:2]
    swap = (
        f"ALTER TABLE `{NAME.table}` RENAME COLUMN `{one}` TO `{other}`, "
        f"RENAME COLUMN `{other}` TO `{one}`"
    )
    assert ground.run(NAME, 100, sent(90, swap, "log.000009")).runs is not None
    with pytest.raises(DdlNotSupported, match="the sender has sent it again"):
        ground.run(NAME, 200, sent(90, swap, "log.000009"))
    assert ground.run(NAME, 300, sent(4, swap, "log.000010")).runs is not None


def test_places_of_statements() -> None:
    assert sent_at(sent(7, "DROP TABLE t", "b-log.000001")) == SentAt("b-log.000001", 7)
    assert as_written(sent(7, "DROP TABLE t")) == "DROP TABLE t"
    assert sent(7, "DROP TABLE t", "a */ b") == "DROP TABLE t"
    assert [SentAt.of(each) for each in (None, 0, "x", -1, True, "7", 10**19)] == [
        *[None] * 5,
        SentAt("", 7),
        None,
    ]

    def run(before: tuple[str, int], now: tuple[str, int], now_sql: str = "A", ts: int = 2) -> bool:
        known = DdlIdentity(commit_ts=Ts(1), order=0, query=sent(before[1], "A", before[0]))
        ddl = DdlIdentity(commit_ts=Ts(ts), order=0, query=sent(now[1], now_sql, now[0]))
        return has_run(ddl, [None, known])

    assert run(("", 5), ("", 5))
    assert not run(("", 5), ("", 5), "B"), "of one second"
    assert run(("", 5), ("", 4), "B")
    assert not run(("", 5), ("", 6))
    assert not run(("", 5), ("", 5), ts=1), "it is the one that has run"
    assert run(("b.000002", 5), ("b.000001", 9))
    assert not run(("b.999999", 5), ("b.1000000", 4))
    assert not run(("b.000002", 5), ("c.000001", 9)), "of another server"


def test_a_pattern_of_the_filter_is_for_the_statement_alone() -> None:
    pattern = EventFilter(matcher=("*.*",), ignore_sql=("^alter",))
    chosen = Routes((), FilterSettings(event_filters=(pattern,))).filter
    sql = f"ALTER TABLE `{NAME.table}` ADD COLUMN `c` INT"
    for query in (sql, sent(7, sql), Session(schema=NAME.schema).logged(sql)):
        event = DdlEvent(commit_ts=Ts(9), place=0, name=NAME, ddl_type="ALTER", query=query)
        assert not is_wanted(event, statement_of(event), chosen)
