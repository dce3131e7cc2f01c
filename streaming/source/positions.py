"""A part of a source, and positions in it.

A *part* is read in order and is named by a text (of a Kafka topic: ``topic/partition``). A
*position* in a part is one 64-bit integer that rises; only the source knows what it means (a Kafka
offset, the line of a recording)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

Positions = Mapping[str, int]  # part -> position: of the next message, if nothing else is said
NO_POSITIONS: Final[Positions] = MappingProxyType({})
Distance = Callable[[Positions, Positions], int]  # how many messages lie between, about


def counted(begin: Positions, end: Positions) -> int:
    """The distance where positions count messages. Parts that ``begin`` lacks do not count."""
    return sum(max(0, at - begin.get(part, at)) for part, at in end.items())
