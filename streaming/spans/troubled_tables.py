"""Tables that a capture cannot write now, each by itself: an older state of one was brought back,
or its last write has failed. The others go on.

    a write, or the opening of a table ──► ReplicatedTable.error ──► a concern, the progress row's
    `error`
             ▲                                                   │ every few seconds
             └───────── the rows are tried again ◄── opened again ┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from coordination.model import TableName
from streaming.apply.table_errors import holding
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.stream.lasting_warnings import LACKS, LastingWarnings

OPEN_EVERY_S: Final = 5.0


class TroubledTables:
    """The troubled tables of one writer; used by its applying thread, except for ``close``."""

    def __init__(self, concerns: LastingWarnings) -> None:
        self._concerns = concerns
        self._told: dict[str, TableName] = {}  # by the subject of the concern
        self._open_at_s: dict[TableName, float] = {}

    def tell(self, tables: Iterable[ReplicatedTable], now_s: float) -> None:
        """Report troubles that began and troubles that are over."""
        now: dict[str, tuple[TableName, str]] = {}
        for each in tables:
            if each.error:
                now[_subject(each.name)] = each.name, each.error
            elif each.lacks:
                now[f"{LACKS}{each.name}"] = each.name, each.why_not
        for about in self._told.keys() - now.keys():
            self._concerns.say(about, None)
            self._open_at_s.pop(self._told.pop(about), None)
        for about, (name, why) in now.items():
            if about not in self._told:
                self._concerns.say(about, why)
                self._told[about] = name
                if not about.startswith(LACKS):  # nothing but a copy mends that
                    self._open_at_s[name] = now_s + OPEN_EVERY_S

    def due(self, now_s: float) -> list[TableName]:
        """The tables to open again now: their trouble may be mended, or somebody may have altered
        them by hand."""
        due = [name for name, at_s in self._open_at_s.items() if at_s <= now_s]
        self._open_at_s.update((name, now_s + OPEN_EVERY_S) for name in due)
        return due

    def close(self) -> None:
        """Ends with the writer. The next writer of the tables reports its own troubles."""
        for about in list(self._told):
            self._concerns.withdraw(about)


def opened_or_held(
    span: ReplicatedTable, opened: Callable[[], ReplicatedTable | None]
) -> ReplicatedTable | None:
    """The table as it is opened; or as it was, with the reason why it cannot be opened. Raises
    errors that are not of this table alone."""
    try:
        return opened()
    except Exception as error:  # noqa: BLE001 - raised again unless it holds the table
        return replace(span, error=holding(span.name, error))


def _subject(name: TableName) -> str:
    return f"table {name}"
