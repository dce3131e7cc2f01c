"""The carry: row blocks that are read and not wholly applied yet (rule 3).

It keeps them per table in the order in which they came: compressed, and above a memory budget in
files. A block is dropped when all of its rows are applied. If only some rows are, the reader of the
block leaves those out by their commit-ts. The low-water positions are those of the oldest waiting
rows, so the carry can be rebuilt from the source at any time.

    TableBlocks ──add, applied, joined──► TableBlocks      values, per table
    Carry                                                  owns them, their memory and their files
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from coordination.errors import TidelakeError
from coordination.model import TableName
from streaming.apply.row_block import RowBlock, Spilled
from streaming.protocols.contract import Block, ipc

MANY_BLOCKS: Final = 64
SMALL_BYTES: Final = 256 << 10  # compressed; a larger block is not read again to be joined
BATCH_BYTES: Final = 64 << 20  # decompressed


MEMORY_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlocks:
    """The waiting blocks of one table, in the order in which they came."""

    blocks: tuple[RowBlock, ...] = ()
    checkpoint: int = 0  # the greatest so far: rows at or below it are applied
    join_at: int = MANY_BLOCKS  # when there are so many blocks, the small ones are joined

    def add(self, block: RowBlock) -> TableBlocks:
        return replace(self, blocks=(*self.blocks, block))

    def due(self, checkpoint: int, limit: int) -> list[RowBlock]:
        """The blocks that may hold rows in ``(checkpoint, limit]``."""
        return [
            block for block in self.blocks if block.min_ts <= limit and block.max_ts > checkpoint
        ]

    def applied(self, checkpoint: int) -> TableBlocks:
        """Without the blocks whose rows are all at or below the checkpoint."""
        kept = tuple(block for block in self.blocks if block.max_ts > checkpoint)
        return replace(self, blocks=kept, checkpoint=max(checkpoint, self.checkpoint))

    def low_water(self) -> dict[str, int]:
        """By part, the first position of the blocks that hold rows above the checkpoint."""
        positions: dict[str, int] = {}
        for block in self.blocks:
            if block.max_ts > self.checkpoint:
                known = positions.get(block.part, block.first)
                positions[block.part] = min(known, block.first)
        return positions


@dataclass(slots=True, eq=False)
class Carry:
    """The carry of one changefeed in one capture. Used by one thread at a time.

    ``folder``: files are made in a folder within it, which ``close`` removes. ``memory_bytes``: the
    limit for block bodies in memory; further ones are written to files.
    """

    folder: Path
    memory_bytes: int = MEMORY_BYTES
    _tables: dict[TableName, TableBlocks] = field(default_factory=dict, init=False)
    _files: SpillFiles = field(init=False)
    _held_bytes: int = field(default=0, init=False)
    _spilled_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._files = SpillFiles(self.folder)

    @property
    def bytes(self) -> int:
        return self._held_bytes + self._spilled_bytes

    def add(self, block: Block) -> None:
        """Keep a row block. Raises TidelakeError if the memory budget is used up and the file
        cannot be written."""
        table = self._tables.get(block.name, TableBlocks()).add(self._kept(RowBlock.of(block)))
        if len(table.blocks) >= table.join_at:
            table = self._with_small_ones_joined(table)
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
        self._files.close()
        self._held_bytes = self._spilled_bytes = 0

    def _kept(self, block: RowBlock) -> RowBlock:
        body = block.buffer()
        if self._held_bytes + body.size > self.memory_bytes:
            spilled = self._files.write(body)
            self._spilled_bytes += body.size
            return replace(block, body=spilled)
        self._held_bytes += body.size
        return block

    def _with_small_ones_joined(self, table: TableBlocks) -> TableBlocks:
        """Join small blocks: while a watermark stands still many of them come, and it is slow to
        read them one by one."""
        blocks, replaced = joined(table.blocks)
        self._release(replaced)
        known = {id(block) for block in table.blocks}
        kept = tuple(block if id(block) in known else self._kept(block) for block in blocks)
        return replace(table, blocks=kept, join_at=max(MANY_BLOCKS, 2 * len(kept)))

    def _replace(self, name: TableName, table: TableBlocks) -> None:
        kept = {id(block) for block in table.blocks}
        self._release(block for block in self._tables[name].blocks if id(block) not in kept)
        self._tables[name] = table

    def _release(self, blocks: Iterable[RowBlock]) -> None:
        for block in blocks:
            if isinstance(block.body, Spilled):
                self._spilled_bytes -= block.bytes
                block.body.delete()
            else:
                self._held_bytes -= block.bytes


class SpillFiles:
    """Writes each body to a file of its own, in a folder within ``place`` that the first write
    makes. The files are not kept for a restart, which reads the rows from the source again."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._folder: Path | None = None
        self._made = 0

    def write(self, body: pa.Buffer) -> Spilled:
        """Write a body to a new file. Raises TidelakeError if that fails."""
        spilled = None
        try:
            if self._folder is None:
                self._place.mkdir(parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix="carry-", dir=self._place))
            self._folder.mkdir(parents=True, exist_ok=True)  # where a cleaner took it away
            self._made += 1
            spilled = Spilled(self._folder / f"{self._made}.blocks", body.size)
            spilled.path.write_bytes(body)
        except OSError as error:
            if spilled is not None:
                spilled.delete()
            raise TidelakeError(
                f"rows that wait for their watermark cannot be kept in {self._place}: "
                f"{error.strerror}. Give it room, or set TMPDIR to a folder that has some"
            ) from error
        return spilled

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def joined(blocks: Sequence[RowBlock]) -> tuple[tuple[RowBlock, ...], list[RowBlock]]:
    """The blocks after the small ones are joined, and the blocks that were replaced by that.

    A joined block is at the place of the first block that it replaces.
    """
    groups: dict[tuple[str, TableName, bytes], list[RowBlock]] = {}
    for block in blocks:
        if block.bytes < SMALL_BYTES:
            shape = block.part, block.origin, block.plain_schema().serialize().to_pybytes()
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
    batches = [batch for block in blocks for batch in block.plain_batches()]
    rows = _in_large_batches(pa.Table.from_batches(batches, blocks[0].plain_schema()))
    return replace(
        blocks[0],
        rows=sum(block.rows for block in blocks),
        min_ts=min(block.min_ts for block in blocks),
        max_ts=max(block.max_ts for block in blocks),
        first=min(block.first for block in blocks),
        last=max(block.last for block in blocks),
        key_changes=sum(block.key_changes for block in blocks),
        body=pa.py_buffer(ipc(rows)),
    )
