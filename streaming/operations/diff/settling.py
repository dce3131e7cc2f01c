"""Is a difference one, or only a change on its way? Pure: what two readings say of a key.

A database cannot be read as of a moment that is past, and the table is always a little behind. So a
key that differs is asked again, in rounds. A round reads the table after its checkpoint has passed
the database's last reading, then the database once more:

    database ──► checkpoint passes it ──► table ──► database ──► checkpoint passes it ──► …
     before                                      after, several times;
                                                 the last is the next round's before

If the table has what the database had before or after, the key is equal. If the database had the
same row before and after, and the table has another one, the key is a suspect: its row may have
changed to and fro in between. Several looks afterwards see most rows that do so often. A suspect
with the same rows in the next round differs. All other keys are asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streaming.operations.diff.fingerprints import CellsHash, KeyHash

Row = CellsHash | None  # None: there is no such row


class Verdict(StrEnum):
    EQUAL = "equal"
    DIFFERS = "differs"
    ASK_AGAIN = "ask again"


class Suspicion(StrEnum):
    """How a key stands when a round begins."""

    NONE = "none"
    SUSPECT = "suspect"


class Sight(StrEnum):
    """A round's sight of a key."""

    SAME = "the table has a row of before or after"
    STILL = "the database has one row before and after, and the table another"
    MOVING = "the database has several rows before and after, and the table another"


# By the suspicion before and the sight: the verdict. A suspect that stood still with other rows
# than a round ago is a new suspect: `judged` takes its suspicion away before it looks here.
VERDICTS: Final[Mapping[tuple[Suspicion, Sight], Verdict]] = {
    (Suspicion.NONE, Sight.SAME): Verdict.EQUAL,
    (Suspicion.NONE, Sight.STILL): Verdict.ASK_AGAIN,
    (Suspicion.NONE, Sight.MOVING): Verdict.ASK_AGAIN,
    (Suspicion.SUSPECT, Sight.SAME): Verdict.EQUAL,
    (Suspicion.SUSPECT, Sight.STILL): Verdict.DIFFERS,
    (Suspicion.SUSPECT, Sight.MOVING): Verdict.ASK_AGAIN,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A key that is asked again: the database's row at its last reading, and the pair of rows
    (table, database) that made it a suspect; None: it is none."""

    before: Row
    suspect: tuple[Row, Row] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """``differing``: the rows (table, database) by key. ``again``: what the next round asks."""

    equal: frozenset[KeyHash]
    differing: Mapping[KeyHash, tuple[Row, Row]]
    again: Mapping[KeyHash, Asked]


def sight(before: Row, lake: Row, after: Sequence[Row]) -> Sight:
    theirs = {before, *after}
    if lake in theirs:
        return Sight.SAME
    return Sight.STILL if len(theirs) == 1 else Sight.MOVING


def still(
    asked: Mapping[KeyHash, Asked], lake: Mapping[KeyHash, Row], after: Mapping[KeyHash, Row]
) -> list[KeyHash]:
    """The keys that a first look afterwards shows still: the others need no further look."""
    return [
        key
        for key, each in asked.items()
        if sight(each.before, lake.get(key), [after.get(key)]) is Sight.STILL
    ]


def judged(
    asked: Mapping[KeyHash, Asked],
    lake: Mapping[KeyHash, Row],
    after: Sequence[Mapping[KeyHash, Row]],
    *,
    is_shown: bool = True,
) -> Judged:
    """One round. ``after``: at least one look, the first at all keys, the others at those that were
    ``still``. A key that ``lake`` or a look lacks has no row there. ``is_shown``: the further looks
    show all that the table may have; else the table may be ahead, and nothing was seen still."""
    equal, differing, again = set[KeyHash](), dict[KeyHash, tuple[Row, Row]](), {}
    first_still = frozenset(still(asked, lake, after[0]))
    for key, each in asked.items():
        ours = lake.get(key)
        looks = [look.get(key) for look in (after if key in first_still else after[:1])]
        theirs = looks[-1]
        seen = sight(each.before, ours, looks)
        if seen is Sight.STILL and not is_shown:
            seen = Sight.MOVING
        is_suspect = each.suspect == (ours, theirs) and each.suspect is not None
        verdict = VERDICTS[Suspicion.SUSPECT if is_suspect else Suspicion.NONE, seen]
        if verdict is Verdict.EQUAL:
            equal.add(key)
        elif verdict is Verdict.DIFFERS:
            differing[key] = (ours, theirs)
        else:
            again[key] = Asked(theirs, (ours, theirs) if seen is Sight.STILL else None)
    return Judged(frozenset(equal), differing, again)
