"""Tables that a copy does not take: nothing tells their rows apart, and no rule says how to write
them (`on-no-key`).

Their later rows alone would be a part of each table. So such a table gets a progress row that says
what it lacks, and no target until it is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from coordination.errors import ConfigError
from coordination.model import TableName
from sinks.target.write_mode import WriteMode
from streaming.changefeed.routes import Routes
from streaming.source.dump.source_table import SourceTable

logger = logging.getLogger(__name__)

NO_KEY: Final = "no primary key and no NOT NULL unique key"
RULES: Final = '[[sink.tables]] with write-mode = "append" or key = "all-columns"'


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """``rows``: about how many it has."""

    name: TableName
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """The tables of a database that are copied, and those that are not."""

    copied: list[SourceTable] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def sorted_out(
    tables: Iterable[SourceTable],
    form_of: Callable[[TableName], WriteMode],
    routes: Routes,
    *,
    leaves_out: bool,
    known: Collection[TableName] = (),
) -> Sorted:
    """``form_of``: how a table's target is written. ``known``: are left out already, and not told
    again. Raises ConfigError for one that may not be left out."""
    found = Sorted()
    for whole in tables:
        form = form_of(whole.name)
        if may_be_copied(whole, form):
            found.copied.append(whole.chosen(form.choice))
        elif whole.name not in known:
            found.left_out.append(LeftOut(name=whole.name, rows=whole.rows))
    names = [each.name for each in found.left_out]
    if names and not leaves_out:
        raise ConfigError(
            f"tables with {NO_KEY} cannot be told row by row, so none is copied: {_list(names)}. "
            f"Say what each shall be, by {RULES}; or leave it out with [filter] rules; or let all "
            'of them wait, with on-no-key = "leave-out"'
        )
    of = {routes.of(each.name).target: each.name for each in found.copied}
    for name in names:
        if (target := routes.of(name).target) in of:
            raise ConfigError(
                f"table {name} has {NO_KEY}, and goes into {target} as {of[target]} does, which "
                "would lack its rows: leave it out with [filter] rules, or give it a target of its "
                f"own and {RULES}"
            )
    return found


def may_be_copied(table: SourceTable, form: WriteMode) -> bool:
    """Whether its target can be written."""
    return bool(table.key or form.is_log or form.all_columns)


def what_it_lacks(target: TableName, tables: Iterable[LeftOut]) -> str:
    """The sentence for an operator. ``tables``: those that go into ``target``."""
    told = list(tables)
    rows = sum(each.rows for each in told)
    named = (
        f"table {target}"
        if [target] == [each.name for each in told]
        else (f"target {target} of {_list(each.name for each in told)}")
    )
    return (
        f"{named} is not replicated: it had {NO_KEY} when the tables were copied, so it lacks its "
        f"rows of before (about {rows}) and all later ones. Give it a key in the database, or "
        f"{RULES}, and start the copy again (tidelake run with task-mode=all, or the tidb:// URI): "
        "it is copied then, and joins. Or leave it out with [filter] rules"
    )


def _list(names: Iterable[TableName]) -> str:
    return ", ".join(map(str, sorted(names)))
