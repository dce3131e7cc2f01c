"""The bodies of blocks that wait: in memory, above a budget in files, and small ones joined.

keep ──► in memory, or in a file ──release──► (gone)
joined: while a watermark stands still many small blocks come, and it is slow to read them one
        by one
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
from streaming.apply.table_blocks import MANY_BLOCKS, TableBlocks
from streaming.protocols.contract import ipc

SMALL_BYTES: Final = 256 << 10  # compressed; a larger block is not read again to be joined
BATCH_BYTES: Final = 64 << 20  # decompressed
MEMORY_BYTES: Final = 256 << 20


@dataclass(slots=True, eq=False)
class Bodies:
    """One thread at a time. ``folder``: files are made in a folder within it, which ``close``
    removes. ``memory_bytes``: the limit for bodies in memory; further ones are written to files."""

    folder: Path
    memory_bytes: int = MEMORY_BYTES
    _files: SpillFiles = field(init=False)
    _held_bytes: int = field(default=0, init=False)
    _spilled_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._files = SpillFiles(self.folder)

    @property
    def bytes(self) -> int:
        return self._held_bytes + self._spilled_bytes

    def keep(self, block: RowBlock) -> RowBlock:
        """The block with its body where it is kept. Raises TidelakeError if the memory budget is
        used up and the file cannot be written."""
        body = block.buffer()
        if self._held_bytes + body.size > self.memory_bytes:
            spilled = self._files.write(body)
            self._spilled_bytes += body.size
            return replace(block, body=spilled)
        self._held_bytes += body.size
        return block

    def release(self, blocks: Iterable[RowBlock]) -> None:
        """These blocks are done with. A body in memory stays readable for who has it; one in a file
        does not."""
        for block in blocks:
            if isinstance(block.body, Spilled):
                self._spilled_bytes -= block.bytes
                block.body.delete()
            else:
                self._held_bytes -= block.bytes

    def with_small_ones_joined(self, table: TableBlocks) -> TableBlocks:
        blocks, replaced = joined(table.blocks)
        self.release(replaced)
        known = {id(block) for block in table.blocks}
        kept = tuple(block if id(block) in known else self.keep(block) for block in blocks)
        return replace(table, blocks=kept, join_at=max(MANY_BLOCKS, 2 * len(kept)))

    def close(self) -> None:
        self._files.close()
        self._held_bytes = self._spilled_bytes = 0


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
