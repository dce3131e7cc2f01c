"""Spans on their way into a writer: what of them is wanted, and what has been read of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordination.model import Ts
from streaming.cluster.held_spans import Assignment
from streaming.cluster.reads import Offsets
from streaming.protocols.contract import Block, WantedTable
from streaming.spans import Span as Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A span that can join: its table, and from where it must be read."""

    assignment: Assignment
    table: Table
    low_water: Offsets


@dataclass(slots=True, kw_only=True, eq=False)
class Joining:
    """A newcomer whose rows are being brought together. ``since``: from there on the stream has
    them. ``caught``: of the last read of what lies before, until the carry has them."""

    newcomer: Newcomer
    since: Offsets | None = None
    caught: list[Block] = field(default_factory=list)
    is_caught_up: bool = False


def wanted_of(table: Table, above_ts: Ts) -> WantedTable:
    """Its rows above this commit-ts, and its key where that is known."""
    key = None
    if table.is_settled:
        key = table.target.schema.key if table.target is not None else ()
    return WantedTable(above_ts=above_ts, key=key)
