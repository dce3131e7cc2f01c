"""A table's statements, taken away as long as it still fails. Pure: who runs them is passed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

Statements = Sequence[str]
StillFail = Callable[[Sequence[Statements]], Sequence[bool]]
_MOST: Final = 40  # candidates that are run at once, a table each
_COLUMN: Final = re.compile(r"`?(\w+)`? ")
_INSERT: Final = re.compile(r"(INSERT INTO \S+) \((.*?)\) VALUES \((.*)\)$", re.DOTALL)
_CREATE: Final = re.compile(r"(CREATE TABLE \S+) \((.*)\)( CHARACTER SET .*)$", re.DOTALL)


def shrunk(statements: Statements, still_fail: StillFail) -> list[str]:
    """The shortest that was found to fail. ``still_fail`` gets many at a time, each as if it were
    alone."""
    found = list(statements)
    while True:
        tried = [each for each in _shorter(found) if each][:_MOST]
        verdicts = still_fail(tried) if tried else []
        failing = [each for each, fails in zip(tried, verdicts, strict=True) if fails]
        if not failing:
            return found
        # What can go alone may go together: that saves most of the rounds.
        together = [each for each in found if all(each in one for one in failing)]
        is_shorter = len(failing) > 1 and any(map(_makes, together))
        if is_shorter and still_fail([together])[0]:
            found = together
        else:
            found = min(failing, key=lambda each: sum(map(len, each)))


def _shorter(statements: list[str]) -> list[list[str]]:
    """Without a half of what stands behind CREATE TABLE, a quarter, one; then without a column."""
    begin = next((at for at, each in enumerate(statements) if _makes(each)), 0) + 1
    count = len(statements) - begin
    sizes = sorted({size for size in (count // 2, count // 4, 1) if size}, reverse=True)
    pieces = [
        [*statements[:at], *statements[at + size :]]
        for size in sizes
        for at in range(begin, len(statements), size)
    ]
    pieces += [statements[:at] + statements[at + 1 :] for at in range(begin - 1)]
    return pieces + [without_column(statements, each) for each in _columns(statements[begin - 1])]


def _makes(statement: str) -> bool:
    return statement.startswith("CREATE TABLE ")


def _columns(create: str) -> list[str]:
    made = _CREATE.match(create)
    names = [_COLUMN.match(each) for each in split(made[2])] if made else []
    return [each[1] for each in names if each and each[1].startswith("c")]


def without_column(statements: Statements, column: str) -> list[str]:
    """Without the statements that need it, too."""
    found = (_without(each, column) for each in statements)
    return [each for each in found if each is not None]


def _without(statement: str, column: str) -> str | None:
    if (made := _CREATE.match(statement)) is not None:
        kept = [each for each in split(made[2]) if not re.match(rf"`?{column}`? ", each)]
        return f"{made[1]} ({', '.join(kept)}){made[3]}"
    if (into := _INSERT.match(statement)) is not None:
        pairs = zip(split(into[2]), split(into[3]), strict=True)
        kept = [(name, value) for name, value in pairs if name != f"`{column}`"]
        names, values = (", ".join(each[at] for each in kept) for at in (0, 1))
        return f"{into[1]} ({names}) VALUES ({values})"
    return None if f"`{column}`" in statement else statement


def split(text: str) -> list[str]:
    """At each comma that is in no parentheses and no quotes (a quote in quotes is doubled)."""
    found, depth, in_quotes, begin = [], 0, False, 0
    for at, each in enumerate(text):
        if each == "'":
            in_quotes = not in_quotes
        elif not in_quotes and each in "()":
            depth += 1 if each == "(" else -1
        elif not in_quotes and each == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()]
