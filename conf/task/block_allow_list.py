"""A block-allow-list as ``[filter] rules``, the last of which that matches a table decides.

In DM a table is taken if its database is and the table is. A database: with `do-dbs` one of them,
else none of `ignore-dbs`. A table: one of `do-tables`; without `do-tables`, none of
`ignore-tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conf.problems import require
from conf.task.name_pattern import NamePattern


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAllowList:
    """Each table is a pattern of its database and one of its name. ``place`` is its key."""

    place: str
    case_sensitive: bool
    do_dbs: Sequence[str] = ()
    do_tables: Sequence[tuple[str, str]] = ()
    ignore_dbs: Sequence[str] = ()
    ignore_tables: Sequence[tuple[str, str]] = ()

    def rules(self) -> tuple[str, ...]:
        """Raises SettingError."""
        dbs = [self._pattern("do-dbs", each) for each in self.do_dbs]
        if self.do_tables:
            found = [f"{db}.{table}" for db, table in self._allowed(dbs)]
            require(found != [], f"{self.place}: no table of do-tables is in a database of do-dbs")
        else:
            found = [f"{each.rule}.*" for each in dbs] or ["*.*"]
            found += [f"!{db.rule}.{table.rule}" for db, table in self._tables("ignore-tables")]
        if not dbs:
            blocked = (self._pattern("ignore-dbs", each) for each in self.ignore_dbs)
            found += [f"!{each.rule}.*" for each in blocked]
        return tuple(dict.fromkeys(found))

    def _allowed(self, dbs: Sequence[NamePattern]) -> Iterable[tuple[str, str]]:
        """The patterns of `do-tables` within these databases; without any, all."""
        for db, table in self._tables("do-tables"):
            both = [self._both(db, each) for each in dbs] if dbs else [db]
            yield from ((each.rule, table.rule) for each in both if each is not None)

    def _both(self, left: NamePattern, right: NamePattern) -> NamePattern | None:
        """The pattern of names that both match; None: there is no such name."""
        if left.is_all or right.is_name:
            left, right = right, left
        if left.is_name:
            return left if right.takes(left.text, case_sensitive=self.case_sensitive) else None
        same = (left.text, left.is_regex) == (right.text, right.is_regex)
        require(
            right.is_all or same,
            f"{self.place}: do-dbs {right.text!r} and db-name {left.text!r} of do-tables are both "
            "patterns: leave the do-dbs out, or name the databases in one of them",
        )
        return left

    def _tables(self, key: str) -> Iterable[tuple[NamePattern, NamePattern]]:
        for db, table in self.do_tables if key == "do-tables" else self.ignore_tables:
            yield self._pattern(f"{key}: db-name", db), self._pattern(f"{key}: tbl-name", table)

    def _pattern(self, key: str, text: str) -> NamePattern:
        return NamePattern.of_list(text, f"{self.place}.{key}")
