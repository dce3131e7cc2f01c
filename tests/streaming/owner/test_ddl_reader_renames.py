"""What an owner makes of a RENAME TABLE that has run: spans end and begin, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.errors import TryAgain
from coordination.model import TableName, Ts
from coordination.scheduler.messages import stored_table_id
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.owner.control_rows import EndedSpan, RenamedSpans
from tests.streaming.apply.blocks import A
from tests.streaming.owner.test_ddl_reader import PARTITIONS, STEP, Ground
from tests.streaming.owner.test_ddl_reader_drops import ddl_read, take_row

NEW = TableName("shop", "new")


@pytest.fixture
def ground() -> Ground:
    return Ground()


def rename(old: ReplicatedTable, new: TableName, at_ts: int = 200) -> RenamedSpans:
    """One of the tables that are renamed there."""
    table = replace(old, name=new, checkpoint=Ts(at_ts), created_ts=Ts(at_ts))
    return RenamedSpans(ended=(EndedSpan(table=old, at_ts=Ts(at_ts)),), made=(table,))


def renamed(ground: Ground) -> RenamedSpans:
    """A table is renamed at 200; the row of 400, under the new name, is read before that."""
    old = ground.spans[A] = ReplicatedTable(name=A, checkpoint=Ts(199))
    here = dict.fromkeys(PARTITIONS, 0)
    ground.reader.submit(here)
    ground.reader.catch_up(here, STEP)
    take_row(ground, 0, 150)
    take_row(ground, 1, 400, NEW)
    ground.reader.take(ddl_read(0, 200, "RENAME TABLE `shop`.`a` TO `shop`.`new`"))
    ground.position = dict.fromkeys(PARTITIONS, 2)
    return rename(old, NEW)


def test_a_span_ends_under_the_old_name_and_begins_under_the_new_one(ground: Ground) -> None:
    done = renamed(ground)
    known = ground.resolve()
    assert (known.blocked_at, known.made, NEW in ground.spans) == (199, (), False)
    ground.reader.ran(done)
    ground.reader.apply_due()
    known = ground.known[-1]
    assert (known.blocked_at, A in ground.spans) == (None, False)
    assert known.removed == (stored_table_id(1, "shop", "a", 0),)
    (made,) = known.made
    assert (made.table, ground.begun, ground.marks) == (done.made[0], [NEW], [(A, 200)])
    assert made.low_water[PARTITIONS[1]] == 1, "its row of 400 was read before it was there"


def test_two_spans_swap_their_names(ground: Ground) -> None:
    done = renamed(ground)
    other = ground.spans[NEW] = ReplicatedTable(name=NEW, checkpoint=Ts(199))
    back = rename(other, A)
    ground.resolve()
    ground.reader.ran(RenamedSpans(ended=done.ended + back.ended, made=done.made + back.made))
    ground.reader.apply_due()
    known = ground.known[-1]
    old = {stored_table_id(1, "shop", name, 0) for name in ("a", "new")}
    assert (set(known.removed), ground.marks) == (old, [])
    assert {made.table.name: made.low_water[PARTITIONS[1]] for made in known.made} == {A: 1, NEW: 1}
    assert ground.spans == {NEW: done.made[0], A: back.made[0]}


def test_a_rename_that_storage_did_not_take_is_noted_later(ground: Ground) -> None:
    done = renamed(ground)
    ground.resolve()
    ground.storage_is_away = True
    ground.reader.ran(done)
    with pytest.raises(TryAgain):
        ground.reader.apply_due()
    ground.storage_is_away = False
    ground.reader.apply_due()
    assert (len(ground.known[-1].removed), len(ground.known[-1].made)) == (1, 1)


def test_what_another_owner_has_noted_of_a_rename_stays(ground: Ground) -> None:
    """It died before the span of the old name had ended."""
    done = renamed(ground)
    ground.spans[NEW] = replace(done.made[0], checkpoint=Ts(300))
    ground.reader.ran(done)
    ground.resolve()
    known = ground.known[-1]
    assert (len(known.removed), known.made, ground.begun) == (1, (), [])
    assert ground.spans[NEW].checkpoint == 300


def test_a_dropped_table_that_is_back_begins_again(ground: Ground) -> None:
    """Its rows may have been read before it was there."""
    renamed(ground)
    ground.resolve()
    ground.spans.end(A, Ts(199))
    back = ReplicatedTable(name=A, checkpoint=Ts(200), created_ts=Ts(200))
    for _ in range(2):  # another owner may have noted it
        ground.reader.ran(RenamedSpans(ended=(), made=(back,)))
        ground.reader.apply_due()
    (made,) = [each for known in ground.known for each in known.made]
    assert (made.table, ground.spans[A], ground.begun) == (back, back, [A])
    assert made.low_water[PARTITIONS[1]] == 1
