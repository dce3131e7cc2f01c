"""The waiting blocks of one table, as a value: which are due, which are done with, and from where
they would have to be read again. Bodies are looked at by none of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from streaming.apply.row_block import RowBlock

MANY_BLOCKS: Final = 64


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

    def without(self, later: TableBlocks) -> list[RowBlock]:
        """The blocks that a later value of the same table does not have any more."""
        kept = {id(block) for block in later.blocks}
        return [block for block in self.blocks if id(block) not in kept]

    def low_water(self) -> dict[str, int]:
        """By part, the first position of the blocks that hold rows above the checkpoint."""
        positions: dict[str, int] = {}
        for block in self.blocks:
            if block.max_ts > self.checkpoint:
                known = positions.get(block.part, block.first)
                positions[block.part] = min(known, block.first)
        return positions
