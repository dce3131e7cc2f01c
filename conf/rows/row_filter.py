"""The conditions of event filters: by which values of its row an event is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from conf.problems import SettingError
from conf.rows.conditions import Condition, columns_of, read_condition
from conf.rows.event_filter import EventFilter

Kind = Literal["insert", "update_old", "update_new", "delete"]
KEYS: Final[Mapping[Kind, str]] = {
    "insert": "ignore-insert-value-expr",
    "update_old": "ignore-update-old-value-expr",
    "update_new": "ignore-update-new-value-expr",
    "delete": "ignore-delete-value-expr",
}


@dataclass(frozen=True, slots=True)
class ValueExpression:
    key: str
    text: str
    condition: Condition

    @property
    def names(self) -> list[str]:
        """The columns that it names, each once."""
        found = {each.text.lower(): each.text for each in columns_of(self.condition)}
        return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """The expressions of one event filter. ``needs_both``: an UPDATE is ignored if both of its own
    are true (DM), else if one of them is (TiCDC)."""

    expressions: Mapping[Kind, ValueExpression]
    needs_both: bool


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rules of a table. An event is ignored if one of them says so. ``events``: those of
    insert, update and delete that are ignored whatever their values are."""

    rules: tuple[ValueRule, ...] = ()
    events: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.rules or self.events)

    @property
    def asks_old_rows(self) -> bool:
        return any("update_old" in rule.expressions for rule in self.rules)


def texts_of(settings: EventFilter) -> dict[Kind, str]:
    """The expressions that are given."""
    given: dict[Kind, str] = {
        "insert": settings.ignore_insert_value_expr,
        "update_old": settings.ignore_update_old_value_expr,
        "update_new": settings.ignore_update_new_value_expr,
        "delete": settings.ignore_delete_value_expr,
    }
    return {kind: text for kind, text in given.items() if text}


def value_rule(settings: EventFilter) -> ValueRule | None:
    """None: it has no expression. Raises SettingError."""
    found = {}
    for kind, text in texts_of(settings).items():
        try:
            found[kind] = ValueExpression(KEYS[kind], text, read_condition(text))
        except SettingError as error:
            raise SettingError(f"{KEYS[kind]}{error}") from error
    needs_both = settings.ignore_update_if == "both"
    return ValueRule(expressions=found, needs_both=needs_both) if found else None
