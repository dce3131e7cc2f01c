"""Messages that cannot be this changefeed's: of another database's connector, or of two connectors
that tell the same table. For the reading thread, before anything of a read is used.

Rows of two servers have equal keys, and would be mixed in one table in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow.compute as pc

from coordination.errors import ConfigError
from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, OTHER_SOURCE, Block, Kind


class Places(Protocol):
    """What names a message's place in a sentence: the source (`source/contract.py`)."""

    def place(self, part: str, position: int) -> str: ...


@dataclass(slots=True)
class ForeignMessages:
    """``senders``: of each upstream table, the one whose messages came first, and their place."""

    places: Places
    senders: dict[TableName, tuple[str, str, int]] = field(default_factory=dict)

    def refuse(self, blocks: Iterable[Block]) -> None:
        """Raises ConfigError."""
        for block in blocks:
            if block.kind is Kind.BAD:
                self._refuse_other_source(block)
            elif block.sender and block.kind in (Kind.ROW, Kind.DDL):
                self._refuse_second(block)

    def _refuse_other_source(self, block: Block) -> None:
        bad = block.table()
        found = bad.filter(pc.equal(bad["error_class"], OTHER_SOURCE))
        if len(found):
            position, why = found["position"][0].as_py(), found["error_message"][0].as_py()
            raise ConfigError(f"{self.places.place(block.part, position)}: {why}")

    def _refuse_second(self, block: Block) -> None:
        name = block.name if block.origin == NO_TABLE else block.origin
        known, part, first = self.senders.setdefault(name, (block.sender, block.part, block.first))
        if known != block.sender and name.table:
            one, other = self.places.place(part, first), self.places.place(block.part, block.first)
            raise ConfigError(
                f"table {name} comes from two connectors of Debezium, {known} ({one}) and "
                f"{block.sender} ({other}): rows of two servers have equal keys. Give each "
                "connector a changefeed with a sink-uri of its own, and name the topics of one "
                "alone in `topics`"
            )
