"""What is found before a start, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "note", "waits", "refused"]


@dataclass(frozen=True, slots=True)
class Note:
    """``verdict``: ok; note: a start works, and this is to be known; waits: the table is not
    replicated until that is mended, and the others are; refused: a start ends with this.
    ``about``: a part of the installation (``Java``, ``warehouse`` …), or a table. ``what``: a
    sentence, with the statement or command that mends it."""

    verdict: Verdict
    about: str
    what: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a start would meet. ``is_away``: something could not be asked."""

    notes: tuple[Note, ...]
    is_away: bool = False

    @property
    def is_refused(self) -> bool:
        return any(note.verdict == "refused" for note in self.notes)

    @property
    def line(self) -> str:
        """The whole in one line."""
        refused, waiting = (_count(self.notes, verdict) for verdict in ("refused", "waits"))
        tables = f"{waiting} {'table waits' if waiting == 1 else 'tables wait'}"
        if refused:
            things = "one thing" if refused == 1 else f"{refused} things"
            return f"a start would be refused: {things} found wrong"
        return f"a start would work, but {tables}" if waiting else "a start would work"

    def to_json(self) -> dict[str, Any]:
        rows = [
            {"verdict": note.verdict, "about": note.about, "what": note.what} for note in self.notes
        ]
        return {"starts": not self.is_refused, "notes": rows}


def _count(notes: Iterable[Note], verdict: Verdict) -> int:
    return sum(note.verdict == verdict for note in notes)
