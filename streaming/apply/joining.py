"""Join many small row blocks of a table into fewer, larger ones.

Only blocks of the same partition and the same schema are joined, since a block has one partition
for all its offsets, and one schema for the types that its messages tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from streaming.apply.row_block import RowBlock
from streaming.protocols.contract import ipc
from streaming.source.positions import TopicPartition

MANY_BLOCKS: Final = 64
SMALL_BYTES: Final = 256 << 10  # compressed; a larger block is not read again to be joined
BATCH_BYTES: Final = 64 << 20  # decompressed


def joined(blocks: Sequence[RowBlock]) -> tuple[tuple[RowBlock, ...], list[RowBlock]]:
    """The blocks after the small ones are joined, and the blocks that were replaced by that.

    A joined block is at the place of the first block that it replaces.
    """
    groups: dict[tuple[TopicPartition, bytes], list[RowBlock]] = {}
    for block in blocks:
        if block.bytes < SMALL_BYTES:
            shape = block.partition, block.schema().serialize().to_pybytes()
            groups.setdefault(shape, []).append(block)
    instead: dict[int, RowBlock | None] = {}  # by the identity of the block that is replaced
    replaced: list[RowBlock] = []
    for group in groups.values():
        if len(group) > 1:
            instead.update({id(block): None for block in group})
            instead[id(group[0])] = _join(group)
            replaced += group
    kept = (instead.get(id(block), block) for block in blocks)
    return tuple(block for block in kept if block is not None), replaced


def _in_large_batches(rows: pa.Table) -> pa.Table:
    """Cut rows into batches of about ``BATCH_BYTES``: rows that compress well are large when they
    are read."""
    step = max(1, len(rows) * BATCH_BYTES // max(1, rows.nbytes))
    parts = [rows.slice(begin, step).combine_chunks() for begin in range(0, len(rows), step)]
    return pa.concat_tables(parts)


def _join(blocks: Sequence[RowBlock]) -> RowBlock:
    batches = [batch for block in blocks for batch in block.batches()]
    rows = _in_large_batches(pa.Table.from_batches(batches, blocks[0].schema()))
    first = blocks[0]
    return RowBlock(
        name=first.name,
        partition=first.partition,
        rows=sum(block.rows for block in blocks),
        min_ts=min(block.min_ts for block in blocks),
        max_ts=max(block.max_ts for block in blocks),
        first=min(block.first for block in blocks),
        last=max(block.last for block in blocks),
        key_changes=sum(block.key_changes for block in blocks),
        body=pa.py_buffer(ipc(rows)),
    )
