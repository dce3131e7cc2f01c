"""The carry: what stays, where a restart reads from, and that memory, files and joining lose
nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError
from coordination.model import TableName
from streaming.apply import bodies
from streaming.apply.bodies import SpillFiles
from streaming.apply.carry import Carry
from streaming.apply.row_block import RowBlock, RowsGone
from streaming.apply.table_blocks import MANY_BLOCKS
from streaming.protocols.contract import Block, wire_types
from tests.streaming.apply.blocks import A, Row, block_of

B = TableName("shop", "b")
P0, P1 = "shop/0", "shop/1"


@pytest.fixture(params=[256 << 20, 0], ids=["memory", "files"])
def carry(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Carry]:
    held = Carry(tmp_path / "carry", memory_bytes=request.param)
    yield held
    held.close()
    assert not list(tmp_path.rglob("*.blocks"))
    assert held.bytes == 0


def block(*stamps: int, part: str = "shop/0", first: int = 0, name: TableName = A) -> Block:
    rows = [
        Row(
            op="INSERT",
            ts=ts,
            data={"id": str(ts)},
            part=part,
            position=first + number,
        )
        for number, ts in enumerate(stamps)
    ]
    return block_of(rows, name)


def stamps(blocks: Sequence[RowBlock]) -> list[int]:
    return [ts for each in blocks for batch in each.batches() for ts in batch["commit_ts"].tolist()]


def test_due_are_the_blocks_that_may_hold_such_rows(carry: Carry) -> None:
    for each in (block(10, 20), block(30), block(15, 40), block(50, name=B)):
        carry.add(each)
    assert stamps(carry.due(A, 0, 9)) == []
    assert stamps(carry.due(A, 0, 10)) == [10, 20]
    assert stamps(carry.due(A, 20, 100)) == [30, 15, 40]
    assert stamps(carry.due(B, 0, 100)) == [50]
    assert carry.due(TableName("shop", "c"), 0, 100) == []
    assert carry.due(B, 0, 49) == []
    assert sum(each.rows for each in carry.due(A, 0, 100)) == 5
    assert carry.waiting_rows(20) == 4


def test_a_block_stays_until_its_last_row_is_applied(carry: Carry) -> None:
    carry.add(block(10, 20, part="shop/0", first=100))
    carry.add(block(12, part="shop/1", first=200))
    carry.add(block(30, part="shop/0", first=102))
    assert carry.low_water(A) == {P0: 100, P1: 200}

    carry.drop_applied(A, 15)
    assert stamps(carry.due(A, 15, 100)) == [10, 20, 30]
    assert carry.low_water(A) == {P0: 100}

    carry.drop_applied(A, 20)
    assert carry.low_water(A) == {P0: 102}
    assert carry.due(A, 20, 100)
    carry.drop_applied(A, 30)
    assert (carry.low_water(A), carry.bytes) == ({}, 0)


def test_what_was_applied_already_holds_no_offset(carry: Carry) -> None:
    """Rows that are sent again wait for nothing, and no low water for them."""
    carry.drop_applied(A, 5)
    carry.add(block(30, first=7))
    carry.drop_applied(A, 20)
    carry.add(block(10, 20, first=3))
    assert carry.low_water(A) == {P0: 7}
    assert carry.due(A, 20, 20) == []
    carry.drop_applied(A, 20)
    assert stamps(carry.due(A, 0, 100)) == [30]


def test_a_table_that_is_forgotten_leaves_nothing(carry: Carry) -> None:
    carry.add(block(10))
    carry.add(block(10, name=B))
    carry.drop_applied(A, 5)
    carry.forget(A)
    carry.forget(A)
    assert (carry.due(A, 0, 100), stamps(carry.due(B, 0, 100))) == ([], [10])
    carry.add(block(3))  # taken up again, further back
    assert carry.low_water(A) == {P0: 0}


def test_what_is_above_the_budget_goes_to_files_and_comes_back(tmp_path: Path) -> None:
    blocks = [block(number) for number in range(1, 10)]
    carry = Carry(tmp_path, memory_bytes=sum(len(each.body or b"") for each in blocks[:4]) + 1)
    for each in blocks:
        carry.add(each)
    files = list(tmp_path.rglob("*.blocks"))
    assert 0 < sum(file.stat().st_size for file in files) < carry.bytes
    assert stamps(carry.due(A, 0, 100)) == list(range(1, 10))

    carry.drop_applied(A, 4)  # room in memory again
    carry.add(block(10))
    assert sorted(tmp_path.rglob("*.blocks")) == sorted(files)
    carry.drop_applied(A, 10)
    assert (carry.bytes, list(tmp_path.rglob("*.blocks"))) == (0, [])
    carry.close()
    assert list(tmp_path.iterdir()) == []


def test_a_body_in_a_file_stays_readable(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path)
    bodies = [pa.py_buffer(bytes([number]) * 6) for number in range(3)]
    spilled = [files.write(body) for body in bodies]
    view = spilled[0].read()
    spilled[0].delete()
    spilled[0].delete()
    assert [each.path.exists() for each in spilled] == [False, True, True]
    assert view == bodies[0]
    assert [each.read() for each in spilled[1:]] == bodies[1:]
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(TidelakeError, match=r"cannot be kept in .*Give it room"):
        Carry(tmp_path / "taken", memory_bytes=0).add(block(1))


@pytest.mark.parametrize("batch_bytes", [bodies.BATCH_BYTES, 500])
def test_many_small_blocks_become_few_and_lose_nothing(
    carry: Carry, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they come while a watermark stands still: of two partitions, and of two wire types."""
    monkeypatch.setattr(bodies, "BATCH_BYTES", batch_bytes)
    rows = 4 * MANY_BLOCKS
    for number in range(rows):
        row = Row(
            op="INSERT",
            ts=1000 - number,
            data={"id": str(number)},
            part=f"shop/{number % 2}",
            position=number,
            types={"id": "int" if number < rows // 2 else "bigint"},
        )
        carry.add(block_of([row]))
    held = carry.due(A, 0, 1000)
    assert len(held) < MANY_BLOCKS
    assert sorted(stamps(held)) == [1000 - number for number in reversed(range(rows))]
    assert sum(each.rows for each in held) == rows
    assert carry.bytes == sum(each.bytes for each in held)
    assert carry.low_water(A) == {P0: 0, P1: 1}
    for each in held:
        offsets = [offset for batch in each.batches() for offset in batch["position"].tolist()]
        assert all(batch.nbytes < 2 * batch_bytes for batch in each.batches())
        assert (min(offsets), max(offsets)) == (each.first, each.last)
        assert {offset % 2 for offset in offsets} == {int(each.part[-1])}
        wire = {"int" if offset < rows // 2 else "bigint" for offset in offsets}
        assert wire == set(wire_types(each.plain_schema()).values())
    carry.drop_applied(A, 1000)
    assert carry.bytes == 0


def test_rows_whose_file_was_taken_away_are_said_to_be_gone_and_later_ones_are_kept(
    tmp_path: Path,
) -> None:
    carry = Carry(tmp_path / "carry", memory_bytes=0)
    carry.add(block(10))
    shutil.rmtree(tmp_path / "carry")
    carry.add(block(20, first=1))
    (gone, kept) = carry.due(A, 0, 100)
    with pytest.raises(RowsGone):
        gone.batches()
    assert stamps([kept]) == [20]
    carry.close()
