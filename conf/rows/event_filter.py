"""One ``[[filter.event-filters]]`` as the file has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conf.problems import require
from conf.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """One ``[[filter.event-filters]]``: which events of the matching tables are ignored."""

    matcher: tuple[str, ...] = setting("matcher", (), "the tables, as in `rules`")
    ignore_event: tuple[str, ...] = setting(
        "ignore-event", (), "TiCDC's names of events, such as `delete` or `drop table`"
    )
    ignore_sql: tuple[str, ...] = setting(
        "ignore-sql", (), "regular expressions: a DDL that one of them matches somewhere is ignored"
    )
    ignore_insert_value_expr: str = setting(
        "ignore-insert-value-expr",
        "",
        "an INSERT whose row fulfils this condition is ignored "
        "(docs/configuration.md#conditions-on-values)",
    )
    ignore_update_old_value_expr: str = setting(
        "ignore-update-old-value-expr",
        "",
        "an UPDATE whose row before it fulfils this condition is ignored",
    )
    ignore_update_new_value_expr: str = setting(
        "ignore-update-new-value-expr",
        "",
        "an UPDATE whose row after it fulfils this condition is ignored",
    )
    ignore_delete_value_expr: str = setting(
        "ignore-delete-value-expr",
        "",
        "a DELETE whose row fulfils this condition is ignored",
    )
    ignore_update_if: Literal["either", "both"] = setting(
        "ignore-update-if",
        "either",
        "conditions for both rows of an UPDATE ignore it if `either` of them holds, as in "
        "TiCDC, or if `both` do, as in DM",
    )

    def __post_init__(self) -> None:
        require(bool(self.matcher), "filter.event-filters: one of them has no matcher")
