"""The carry: row blocks that are read and not wholly applied yet (rule 3).

It keeps them per table in the order in which they came: compressed, and above a memory budget in
files. A block is dropped when all of its rows are applied. If only some rows are, the reader of the
block leaves those out by their commit-ts. The low-water positions are those of the oldest waiting
rows, so the carry can be rebuilt from the source at any time.

    TableBlocks ──add, applied──► TableBlocks      values, per table
    Bodies                                         their memory and their files
"""

from __future__ import annotations

from pathlib import Path

from coordination.model import TableName
from streaming.apply.bodies import MEMORY_BYTES, Bodies
from streaming.apply.row_block import RowBlock
from streaming.apply.table_blocks import TableBlocks
from streaming.protocols.contract import Block


class Carry:
    """The carry of one changefeed in one capture. Used by one thread at a time.

    ``folder`` and ``memory_bytes``: see `Bodies`."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._bodies = Bodies(folder, memory_bytes)
        self._tables: dict[TableName, TableBlocks] = {}

    @property
    def bytes(self) -> int:
        return self._bodies.bytes

    def add(self, block: Block) -> None:
        """Keep a row block. Raises TidelakeError if the memory budget is used up and the file
        cannot be written."""
        kept = self._bodies.keep(RowBlock.of(block))
        table = self._tables.get(block.name, TableBlocks()).add(kept)
        if len(table.blocks) >= table.join_at:
            table = self._bodies.with_small_ones_joined(table)
        self._tables[block.name] = table

    def due(self, name: TableName, checkpoint: int, limit: int) -> list[RowBlock]:
        """The blocks that may hold rows of a table in ``(checkpoint, limit]``, in the order in
        which they came. One in memory stays readable after it was dropped; one in a file does
        not."""
        table = self._tables.get(name)
        return table.due(checkpoint, limit) if table else []

    def drop_applied(self, name: TableName, checkpoint: int) -> None:
        """The table is at ``checkpoint``: drop blocks whose rows are all at or below it."""
        if name in self._tables:
            self._replace(name, self._tables[name].applied(checkpoint))

    def forget(self, name: TableName) -> None:
        if name in self._tables:
            self._replace(name, TableBlocks())
            del self._tables[name]

    def low_water(self, name: TableName) -> dict[str, int]:
        """The position from which a restart must read each part that has waiting rows of the
        table."""
        table = self._tables.get(name)
        return table.low_water() if table else {}

    def waiting_rows(self, limit: int) -> int:
        """An upper bound for the number of waiting rows above ``limit``, of all tables."""
        return sum(
            block.rows
            for table in self._tables.values()
            for block in table.blocks
            if block.max_ts > max(limit, table.checkpoint)
        )

    def close(self) -> None:
        self._tables.clear()
        self._bodies.close()

    def _replace(self, name: TableName, table: TableBlocks) -> None:
        self._bodies.release(self._tables[name].without(table))
        self._tables[name] = table
