"""How each target is written: its write mode, which columns it has, and which are masked.

Rules are looked up by the names of targets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from conf.column_rules import ColumnMask, ColumnSelector
from conf.masking import hide
from conf.settings import Changefeed, DeltaSink, TableRule
from conf.sources.source_uri import is_at_least_once, lost_text_of
from coordination.errors import ConfigError
from coordination.model import TableName
from coordination.secrets import revealed
from sinks.target.write_mode import UPSERT, WriteMode
from sinks.types.column_choice import ColumnChoice
from sinks.types.table_schema import Mask, TableSchema
from streaming.changefeed.filter import (
    ColumnRules,
    TableFilter,
    TableRules,
    read_column_rules,
    read_rules,
)
from streaming.protocols.decoders import losses_of
from streaming.protocols.rows.losses import LossyTypes

CHECK_DIGITS: Final = 4  # few, so that they help nobody to guess a salt

_Rules = tuple[
    tuple[tuple[TableRules, ColumnRules], ...], tuple[tuple[TableRules, ColumnRules, Mask], ...]
]


class WriteModes:
    """``[[sink.tables]]``: as with TiCDC's dispatchers the first match counts. Raises ConfigError
    as ``TableFilter`` does."""

    def __init__(
        self,
        rules: Sequence[TableRule] = (),
        *,
        case_sensitive: bool = False,
        asks_old_rows: Callable[[TableName], bool] = lambda _: False,
        loses_rows: Callable[[TableName], bool] = lambda _: False,
        choice_of: Callable[[TableName], ColumnChoice] = lambda _: ColumnChoice(),
        lossy: LossyTypes | None = None,
    ) -> None:
        self._rules = [
            (
                read_rules("matcher of sink.tables", rule.matcher, case_sensitive),
                WriteMode.of_rule(rule),
            )
            for rule in rules
        ]
        self._asks_old_rows = asks_old_rows
        self._loses_rows = loses_rows
        self._choice_of = choice_of
        self.lossy = LossyTypes() if lossy is None else lossy

    def of(self, name: TableName) -> WriteMode:
        """Upserted, without more, where no rule matches."""
        found = next((form for rules, form in self._rules if rules.match(name)), UPSERT)
        asks_old_rows, choice = self._asks_old_rows(name), self._choice_of(name)
        if asks_old_rows or not choice.is_all:
            return replace(found, asks_old_rows=asks_old_rows, choice=choice)
        return found

    def refuse(self, name: TableName, schema: TableSchema) -> None:
        """Raises where a target cannot be, or go on, with this schema."""
        self.of(name).refuse_without_key(name, schema)
        if schema.counts_rows and self._loses_rows(name):
            raise ConfigError(
                f"table {name} has each row as often as the database (key = 'rows'), and an event "
                "filter ignores INSERTs or UPDATEs of it: the DELETE of such a row would find "
                "none. Take the table out of that filter, or set write-mode = 'append'"
            )
        self.lossy.refuse(name, schema)

    def refuse_origin(self, origin: TableName, target: TableName) -> None:
        """Raises ConfigError where rules of columns name an upstream table that is routed into a
        target which they do not name: its values would come in clear."""
        if self._choice_of(target).is_all and not self._choice_of(origin).is_all:
            raise ConfigError(
                f"sink.column-selectors or sink.column-masks name {origin}, which goes into "
                f"{target}: their matchers are for targets, so name that"
            )


def write_modes(changefeed: Changefeed) -> WriteModes:
    """How the tables of a changefeed are written. Raises ConfigError."""
    taken, sink = TableFilter(changefeed.filter), changefeed.sink
    case_sensitive = changefeed.filter.case_sensitive
    is_routed = bool(sink.routes)  # then conditions are on tables of other names

    def asks_old_rows(name: TableName) -> bool:
        return taken.asks_old_rows if is_routed else taken.row_filter(name).asks_old_rows

    def loses_rows(name: TableName) -> bool:
        return taken.loses_rows(None if is_routed else name)

    rules = sink.column_selectors, sink.column_masks, case_sensitive
    _rules_of(*rules)  # refused here, not at the first table

    check = hashlib.sha256(b"salt " + mask_salt(sink)).hexdigest()[:CHECK_DIGITS]
    return WriteModes(
        sink.tables,
        case_sensitive=case_sensitive,
        asks_old_rows=asks_old_rows,
        loses_rows=loses_rows,
        choice_of=lambda name: replace(choice_of(name, *rules), salt_check=check),
        lossy=_lossy_types(changefeed),
    )


def _lossy_types(changefeed: Changefeed) -> LossyTypes:
    source, protocol = changefeed.source, changefeed.source.protocol
    losses = losses_of(
        protocol, is_numbered=is_at_least_once(source), lost_text=lost_text_of(source)
    )
    return LossyTypes(losses, f"protocol={protocol}", changefeed.strict_types)


def mask_salt(sink: DeltaSink) -> bytes:
    """Looked up at each call. Raises ConfigError."""
    if sink.mask_salt is None:
        return b""
    found = revealed("sink.mask-salt", sink.mask_salt)
    hide(found)
    return found.encode()


def choice_of(
    name: TableName,
    selectors: tuple[ColumnSelector, ...],
    masks: tuple[ColumnMask, ...],
    case_sensitive: bool,
) -> ColumnChoice:
    selecting, masking = _rules_of(selectors, masks, case_sensitive)
    is_selected = any(rules.match(name) for rules, _ in selecting)
    is_masked = any(rules.match(name) for rules, _, _ in masking)
    if not is_selected and not is_masked:
        return ColumnChoice()
    key = name, selectors, masks, case_sensitive
    return ColumnChoice(
        takes=_Takes(*key), mask_of=_MaskOf(*key), is_all=False, about=f"table {name}: "
    )


def hides(sink: DeltaSink, *, case_sensitive: bool) -> Callable[[TableName | None], bool]:
    """Whether columns of a table are masked; None: of any."""
    _, masking = _rules_of(sink.column_selectors, sink.column_masks, case_sensitive)

    def is_hidden(name: TableName | None) -> bool:
        return any(name is None or rules.match(name) for rules, _, _ in masking)

    return is_hidden


@lru_cache(maxsize=8)
def _rules_of(
    selectors: tuple[ColumnSelector, ...], masks: tuple[ColumnMask, ...], case_sensitive: bool
) -> _Rules:
    selecting = tuple(
        (
            read_rules("matcher of sink.column-selectors", each.matcher, case_sensitive),
            read_column_rules("columns of sink.column-selectors", each.columns),
        )
        for each in selectors
    )
    masking: list[tuple[TableRules, ColumnRules, Mask]] = [
        (
            read_rules("matcher of sink.column-masks", each.matcher, case_sensitive),
            read_column_rules("columns of sink.column-masks", each.columns),
            each.mask,
        )
        for each in masks
    ]
    return selecting, tuple(masking)


@dataclass(frozen=True, slots=True)
class _Of:
    """Looked up by its rules, which can be pickled."""

    name: TableName
    selectors: tuple[ColumnSelector, ...]
    masks: tuple[ColumnMask, ...]
    case_sensitive: bool

    @property
    def _rules(self) -> _Rules:
        return _rules_of(self.selectors, self.masks, self.case_sensitive)


class _Takes(_Of):
    def __call__(self, column: str) -> bool:
        selecting, _ = self._rules
        found = next((columns for rules, columns in selecting if rules.match(self.name)), None)
        return found is None or found.match(column)


class _MaskOf(_Of):
    def __call__(self, column: str) -> Mask:
        _, masking = self._rules
        wanted = (
            mask
            for rules, columns, mask in masking
            if rules.match(self.name) and columns.match(column)
        )
        return next(wanted, "")
