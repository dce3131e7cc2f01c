"""Leaves out the events that an event filter ignores, by their kind or the values of their rows.

    due rows ──cast the columns that conditions name──► is it ignored? ─┬─ no: a piece without them
                                                                        └─ cannot be told: an error

An ignored event leaves the table as it was, and comes to no key's last change (rule 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coordination.model import Ts
from sinks.types.text_arrays import CastRules
from streaming.apply.row_block import RowBlock
from streaming.apply.rows_to_apply import Piece, pieces_to_apply
from streaming.apply.table_task import TableTask
from streaming.apply.values.asked_rows import AskedRows
from streaming.apply.values.split_updates import ask_halves, split_updates


def pieces_taken(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: CastRules
) -> Iterator[Piece]:
    """As ``pieces_to_apply``, without the events that filters ignore. Raises ConfigError where a
    condition does not fit the table."""
    if not task.filters:
        yield from pieces_to_apply(task, blocks, limit)
        return
    pieces = list(pieces_to_apply(task, blocks, limit))
    split = split_updates(pieces, rules)
    asked = [AskedRows(piece, task.name, rules) for piece in pieces]
    for each, of in zip(asked, split.of_pieces, strict=True):
        for _, row_filter, within in each.filtered(task.filters):
            each.ask(row_filter, within & ~of.is_half)
    ask_halves(asked, split, task.filters)
    for each in asked:
        ignored = each.ignored()
        if not ignored.any():
            yield each.told()
        elif not ignored.all():
            yield each.told().only(~ignored)


def ignored_positions(
    task: TableTask, blocks: Sequence[RowBlock], limit: Ts, rules: CastRules
) -> set[int]:
    """The positions of the events that conditions ignore."""
    found: set[int] = set()
    filters = {of: replace(each, events=frozenset()) for of, each in task.filters.items()}
    for piece in pieces_to_apply(task, blocks, limit) if filters else ():
        asked = AskedRows(piece, task.name, rules)
        for _, row_filter, within in asked.filtered(filters):
            asked.ask(row_filter, within)
        found.update(piece.position[: piece.count][asked.ignored()].tolist())
    return found
