"""What an owner makes of a DROP TABLE that it reads, and of what comes of the table again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError, TryAgain
from coordination.model import TableName, Ts
from coordination.scheduler.messages import stored_table_id
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.owner.control_rows import EndedSpan
from streaming.owner.ddl import behind_drops
from streaming.owner.ddl.behind_drops import LATE, BehindDrops
from streaming.protocols.contract import DDL_BODY, NO_TABLE, Block, Kind, ipc
from streaming.source.resolved.watermarks import Watermarks
from streaming.stream.read import Read
from tests.own_lines import own_text
from tests.streaming.apply.blocks import A
from tests.streaming.owner.test_ddl_reader import PARTITIONS, READS, STEP, Ground, read_of, row


@pytest.fixture
def ground() -> Ground:
    return Ground()


def ddl_read(at: int, ts: int, query: str) -> Read:
    """A read of the first partition with a DDL alone, which is at this offset of it."""
    first, second = PARTITIONS
    told = {
        "commit_ts": ts,
        "position": at,
        "index": 0,
        "schema_name": A.schema,
        "table_name": A.table,
        "ddl_type": "",
        "query": query,
    }
    body = ipc(pa.Table.from_pylist([told], schema=DDL_BODY))
    block = Block(
        kind=Kind.DDL,
        part="shop/0",
        name=NO_TABLE,
        rows=1,
        first=at,
        last=at,
        body=body,
    )
    return Read(
        begin={first: at},
        end={first: at + 1},
        position={first: at + 1, second: READS},
        watermarks=Watermarks(parts=frozenset(PARTITIONS)),
        blocks=(block,),
        messages=1,
        rows_wait=False,
        job_ms=0.0,
    )


def take_row(ground: Ground, at: int, ts: int, name: TableName = A) -> None:
    """Of the second partition."""
    first, second = PARTITIONS
    each = replace(row(at, part="shop/1"), ts=ts)
    ground.reader.take(read_of({second: at}, {first: 0, second: at + 1}, each, name=name))


def drop_and_create(ground: Ground) -> None:
    """A table is dropped at 200 and made again at 300; the row of 400 is read before that."""
    ground.spans[A] = ReplicatedTable(name=A, checkpoint=Ts(199))
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    take_row(ground, 0, 150)
    take_row(ground, 1, 400)
    ground.reader.take(ddl_read(0, 200, "DROP TABLE `shop`.`a`"))
    ground.reader.take(ddl_read(1, 300, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"))
    ground.position = dict.fromkeys(PARTITIONS, 2)


def test_a_span_ends_with_its_table_and_another_one_begins(ground: Ground) -> None:
    drop_and_create(ground)
    known = ground.resolve()
    assert (known.blocked_at, known.made, known.removed) == (199, (), ())
    assert known.plan.runs is not None
    ground.reader.ran(EndedSpan(table=ground.spans[A], at_ts=Ts(200)))
    ground.reader.apply_due()
    known = ground.known[-1]
    assert known.blocked_at is None
    assert known.removed == (stored_table_id(1, "shop", "a", 0),)
    (made,) = known.made
    assert (made.table.checkpoint, ground.marks) == (300, [(A, 200)])
    assert made.low_water[PARTITIONS[1]] == 1, "its row of 400 was read when the first one was here"


def test_rows_ahead_of_a_table_that_is_made_again_are_not_left_behind(ground: Ground) -> None:
    drop_and_create(ground)
    ground.resolved = Ts(250)
    ground.reader.apply_due()
    ground.reader.ran(EndedSpan(table=ground.spans[A], at_ts=Ts(200)))
    ground.reader.apply_due()
    assert (ground.known[-1].made, A in ground.spans) == ((), False)
    assert ground.reader.low_water[PARTITIONS[1]] == 1
    (made,) = ground.resolve().made
    assert made.low_water[PARTITIONS[1]] == 1


def test_a_dropped_table_is_not_made_of_rows_that_come_again(ground: Ground) -> None:
    ground.spans.ended[A] = Ts(200)
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    take_row(ground, 0, 150)
    ground.reader.take(ddl_read(0, 100, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"))
    ground.reader.take(ddl_read(1, 200, "DROP TABLE `shop`.`a`"))
    known = ground.resolve()
    assert (known.made, known.blocked_at, ground.asked) == ((), None, [here])
    take_row(ground, 1, 1_500)
    ground.resolved = Ts(2_000)
    with pytest.raises(TidelakeError, match="no CREATE TABLE"):
        ground.reader.apply_due()


def test_an_end_that_storage_did_not_take_is_noted_later(ground: Ground) -> None:
    drop_and_create(ground)
    ground.resolve()
    ground.storage_is_away = True
    ground.reader.ran(EndedSpan(table=ground.spans[A], at_ts=Ts(200)))
    with pytest.raises(TryAgain):
        ground.reader.apply_due()
    ground.storage_is_away = False
    ground.reader.apply_due()
    assert (len(ground.known[-1].removed), len(ground.known[-1].made)) == (1, 1)


def test_a_table_that_rows_tell_of_is_made_before_its_drop(ground: Ground) -> None:
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    take_row(ground, 0, 150)
    ground.reader.take(ddl_read(0, 200, "DROP TABLE `shop`.`a`"))
    first, second = PARTITIONS
    ground.between = [({second: 0}, {first: 1, second: 1}, replace(row(0, part="shop/1"), ts=150))]
    known = ground.resolve()
    assert [each.table.name for each in known.made] == [A]
    assert known.plan.runs is not None
    assert (known.blocked_at, known.plan.runs.ends) == (199, (A,))


def at_least_once() -> Ground:
    ground = Ground()
    ground.reader._is_at_least_once = True
    ground.reader._behind = BehindDrops(Ts(0))
    return ground


def dropped_at(drop_ts: int) -> Ground:
    """A source of which each partition is numbered by itself."""
    ground = at_least_once()
    ground.spans.ended[A] = Ts(drop_ts)
    ground.reader.submit(dict.fromkeys(PARTITIONS, 0))
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    ground.position = dict.fromkeys(PARTITIONS, 9)
    return ground


def resolve(ground: Ground, ts: int) -> None:
    ground.resolved = Ts(ts)
    ground.reader.apply_due()


def test_rows_behind_a_drop_are_passed_over_when_no_create_table_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were changed before it: partitions are numbered one by one, perhaps by whole seconds."""
    ground = dropped_at(200)
    take_row(ground, 4, 201)
    resolve(ground, 201 + LATE - 1)
    assert ground.reader.low_water[PARTITIONS[1]] == 4, "they may be of a table that is made again"
    take_row(ground, 5, 250)
    resolve(ground, 201 + LATE)
    assert (ground.spans.told, ground.known[-1].made) == ({}, ())
    assert "rows that lie behind the DROP TABLE" in own_text(caplog)
    resolve(ground, 300 + LATE)
    assert ground.reader.low_water[PARTITIONS[1]] == 9


def test_a_long_wait_behind_a_drop_is_a_concern_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(behind_drops, "SAYS_AFTER_S", -1.0)
    ground = dropped_at(200)
    concerns = ground.reader._behind.concerns
    take_row(ground, 4, 201)
    resolve(ground, 201 + LATE - 1)
    assert "lie behind its DROP TABLE, from commit-ts 201 on, and wait" in (concerns.first or "")
    assert "--schema-file" in (concerns.first or "")
    resolve(ground, 201 + LATE)
    assert concerns.first is None


def test_rows_that_go_on_behind_a_drop_stop_the_changefeed() -> None:
    """The table is there: who has made it was not read."""
    ground = dropped_at(200)
    take_row(ground, 0, 201)
    take_row(ground, 1, 201 + LATE)
    with pytest.raises(TidelakeError, match="no CREATE TABLE"):
        resolve(ground, 201 + LATE)


def test_a_drop_that_is_sent_again_with_the_rows_before_it() -> None:
    later = 200 + 50 * LATE
    for row_ts, is_left in ((later + 1, False), (later + 150, True)):
        ground = dropped_at(200)
        take_row(ground, 0, row_ts)
        resolve(ground, later + 10)
        ground.reader.take(ddl_read(0, later + 100, "DROP TABLE IF EXISTS `shop`.`a`"))
        resolve(ground, later + 110)
        resolve(ground, later + 120)
        assert (ground.reader.low_water[PARTITIONS[1]] == 0) is is_left
        resolve(ground, row_ts + LATE)
        assert (ground.spans.told, ground.known[-1].made) == ({}, ())


def test_a_create_table_takes_the_rows_that_wait() -> None:
    ground = dropped_at(200)
    take_row(ground, 3, 260)
    resolve(ground, 270)
    ground.reader.take(ddl_read(0, 300, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"))
    resolve(ground, 310)
    (made,) = ground.known[-1].made
    assert (made.low_water[PARTITIONS[1]], made.table.checkpoint) == (3, 200)


def test_rows_behind_a_rename_are_not_passed_over() -> None:
    """They are of the table under its new name."""
    ground = dropped_at(200)
    ground.spans.at = {A: SimpleNamespace(left_version=7)}.get
    take_row(ground, 0, 201)
    with pytest.raises(TidelakeError, match="no CREATE TABLE"):
        resolve(ground, 202)


def test_a_table_that_its_own_rows_may_be_below_begins_where_they_do() -> None:
    """Readers number each partition by itself: rows at or below a table's checkpoint are passed
    over, so that is not the number of the CREATE TABLE; but those of the table before it are."""
    ground = at_least_once()
    ground.reader._rows.row.checkpoint_ts = 50
    ground.reader.submit(dict.fromkeys(PARTITIONS, 0))
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    take_row(ground, 0, 299)
    ground.reader.take(ddl_read(0, 300, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"))
    (made,) = ground.resolve().made
    assert made.table.checkpoint == 50
    assert made.low_water[PARTITIONS[1]] == 0

    again = at_least_once()
    drop_and_create(again)
    again.resolve()
    again.reader.ran(EndedSpan(table=again.spans[A], at_ts=Ts(200)))
    again.reader.apply_due()
    assert again.known[-1].made[0].table.checkpoint == 200
