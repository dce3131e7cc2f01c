"""Tables that a copy does not take: nothing tells their rows apart, and no rule says how to write
them (`on-no-key`).

Their later rows alone would be a part of each table. So such a table gets a progress row that says
what it lacks, and no target until it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from coordination.errors import ConfigError
from coordination.model import TableName
from sinks.target.write_mode import WriteMode
from streaming.changefeed.replicated_table import NO_KEY, RULES, WHY
from streaming.changefeed.routes import Routes
from streaming.source.dump.source_table import SourceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """``rows``: about how many it has. ``why``: empty where it has no key."""

    name: TableName
    rows: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """The tables of a database that are copied, and those that are not. ``refused``: what keeps all
    of them from being copied, a sentence each."""

    copied: list[SourceTable] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refuse(self) -> None:
        """Raise ConfigError for all that is refused."""
        if self.refused:
            raise ConfigError("; ".join(self.refused))


def sorted_out(
    tables: Iterable[SourceTable],
    form_of: Callable[[TableName], WriteMode],
    routes: Routes,
    *,
    leaves_out: bool,
    known: Collection[TableName] = (),
) -> Sorted:
    """``form_of``: how a table's target is written; its ConfigErrors are refused here. ``known``:
    are left out already, and not told again."""
    found = Sorted()
    for whole in tables:
        try:
            form = form_of(whole.name)
        except ConfigError as error:
            found.refused.append(str(error))
            continue
        if may_be_copied(whole, form):
            found.copied.append(whole.chosen(form.choice))
        elif whole.name not in known:
            why = hindrance(whole, form)
            found.left_out.append(LeftOut(name=whole.name, rows=whole.rows, why=why))
    names = [each.name for each in found.left_out if not each.why]
    if names and not leaves_out:
        found.refused.append(
            f"tables with {NO_KEY} cannot be told row by row, so none is copied: {_list(names)}. "
            f"Say what each shall be, by {RULES}; or leave it out with [filter] rules; or let all "
            'of them wait, with on-no-key = "leave-out"'
        )
    of = {routes.of(each.name).target: each.name for each in found.copied}
    for each in found.left_out:
        if (target := routes.of(each.name).target) in of:
            rules = each.why or f"give it a target of its own and {RULES}"
            why = "cannot be copied now" if each.why else f"has {NO_KEY}"
            found.refused.append(
                f"table {each.name} {why}, and goes into {target} as {of[target]} does, which "
                f"would lack its rows: leave it out with [filter] rules, or {rules}"
            )
    return found


def may_be_copied(table: SourceTable, form: WriteMode) -> bool:
    """Whether its rows can be read, and its target be written."""
    has_key = bool(table.key or form.is_log or form.all_columns)
    return has_key and not hindrance(table, form)


def hindrance(table: SourceTable, form: WriteMode) -> str:
    """Why it alone is not copied now, but for its lack of a key, and what mends that."""
    if unread := table.chosen(form.choice).unread:
        return unread
    if form.needs_one_moment and not table.has_snapshots:
        return (
            f"it must be read in one moment, as it has no key or is written with {form}, and its "
            "engine has no consistent reads: make it an InnoDB table"
        )
    return ""


def what_it_lacks(target: TableName, tables: Iterable[LeftOut]) -> str:
    """Which rows, for `not_replicated`. ``tables``: those that go into ``target``."""
    told = list(tables)
    rows = sum(each.rows for each in told)
    count = f"about {rows}" if rows else "an unknown number of"  # some engines estimate nothing
    names = [each.name for each in told]
    rows_of = f"{count} rows of before" + (f", of {_list(names)}" if [target] != names else "")
    whys = [each.why for each in told if each.why]
    return f"{rows_of}{WHY}{'; '.join(whys)}" if whys else rows_of


def _list(names: Iterable[TableName]) -> str:
    return ", ".join(map(str, sorted(names)))
