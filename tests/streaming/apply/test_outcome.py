"""What became of the tables of a batch, as one value."""

from __future__ import annotations

from coordination.model import TableName
from streaming.apply.table_task import Outcome

A, B, C, D = (TableName("shop", name) for name in "abcd")


def test_each_table_is_in_one_set_and_waits_unless_it_was_written() -> None:
    found = Outcome.of({A: "written", B: "paused", C: "withdrawn", D: "altered"})
    assert (found.written, found.paused) == ({A}, {B})
    assert (found.withdrawn, found.altered) == ({C}, {D})
    assert found.waiting == {B, C, D}
    assert Outcome.of({}) == Outcome()
