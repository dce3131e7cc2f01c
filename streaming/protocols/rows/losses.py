"""What the messages of a protocol lose of a column's values: a property of its types.

What a loss is about is known from the column's definition alone. The truth behind them is the
matrix of docs/types.md, which compares every cell with the database's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import TidelakeError
from sinks.types.table_schema import Column, TableSchema

_WAY_OUT: Final = (
    "Leave these columns out with [[sink.column-selectors]], or the table with [filter] rules, or "
    "set strict-types = false. protocol=canal-json loses nothing"
)


@dataclass(frozen=True, slots=True)
class Loss:
    """``why``: what becomes of which values, in a few words."""

    why: str
    is_of: Callable[[Column], bool]


def lossy_columns(columns: Iterable[Column], losses: Sequence[Loss]) -> Mapping[str, str]:
    """The columns that may lose something, and what."""
    found = {}
    for column in columns if losses else ():
        whys = [loss.why for loss in losses if loss.is_of(column)]
        if whys:
            found[column.name] = "; ".join(whys)
    return found


def in_words(columns: Mapping[str, str]) -> str:
    """Columns with the same loss stand together."""
    by_why = dict[str, list[str]]()
    for name, why in columns.items():
        by_why.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in by_why.items())


@dataclass(frozen=True, slots=True)
class LossyTypes:
    """What the messages of a changefeed lose. ``source``: whose messages they are, in words.
    ``is_strict``: a table that would lose something is refused (``strict-types``)."""

    losses: Sequence[Loss] = ()
    source: str = ""
    is_strict: bool = False

    def among(self, schema: TableSchema) -> Mapping[str, str]:
        """What is lost of which columns of the target."""
        taken = [each for each in schema.delivered if each.mask != "null"]
        return lossy_columns(taken, self.losses)

    def refuse(self, name: object, schema: TableSchema) -> None:
        """Raises TidelakeError with ``strict-types``."""
        if self.is_strict and (found := self.among(schema)):
            raise TidelakeError(f"table {name}: {self._sentence(found)}")

    def refusal(self, before: TableSchema, after: TableSchema) -> str | None:
        """With ``strict-types``: why a DDL with this effect cannot run."""
        known = self.among(before)
        added = {n: why for n, why in self.among(after).items() if known.get(n) != why}
        return self._sentence(added) if self.is_strict and added else None

    def _sentence(self, found: Mapping[str, str]) -> str:
        return f"strict-types: {self.source} loses values of {in_words(found)}. {_WAY_OUT}"
