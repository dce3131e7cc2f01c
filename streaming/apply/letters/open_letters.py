"""Which open dead letters newer changes pass (docs/operations.md, Dead letters).

An upserted table does not tell when a row was changed last, nor that it was deleted. So its writer
notes it: if the row of a letter gets a newer change, the letter is superseded before that change is
committed. Then a letter that is still open has nothing newer of its row in the table, and may be
replayed, on the very version that shows this.

    letters of a table ──first needed, or another shape──► their keys ─┬─ a newer change: superseded
    letters of this batch ─────────────────────────────────────────────┴─ the very change, after a
                                                                          rewind: replayed

A table without open letters costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import TableName, Ts
from sinks.control.dead_letters import DeadLetters, LetterWriter
from sinks.control.letter_states import LETTER, OPEN, PASSED_NEW, PASSED_OLD, REPLAYED, SUPERSEDED
from sinks.control.letter_states import SCHEMA as STATES
from sinks.ddl.past_schemas import PastSchema
from streaming.apply.last_change import LastChanges
from streaming.apply.letters.letter_rows import (
    LetterEntries,
    LetterRows,
    Places,
    letter_entries,
    letter_rows,
)
from streaming.apply.letters.row_bytes import letter_decoder
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.changefeed.routes import Routes
from streaming.protocols.contract import Order

Shapes = Callable[[TableName], tuple[PastSchema, ...]]
_WORD: Final = [("first", np.int64), ("second", np.uint64)]
_NO_TS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """``created_at``: None where it was put there by this batch, or before and again by it."""

    part: str
    identity: str
    position: int
    index: int
    created_at: datetime | None
    commit_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """The letters that a batch meets, by their number. ``passed``: the commit-ts of the newer
    change; ``halves``: the same for letters with another half that is left, and which half was
    passed."""

    passed: Mapping[int, int] = field(default_factory=dict)
    halves: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    brought: frozenset[int] = frozenset()


class LetterKeys:
    """The keys of a table's open letters, found by arrays of numbers."""

    def __init__(self, *, is_log: bool) -> None:
        self.letters: list[Letter] = []
        self._is_log = is_log
        self._new: list[tuple[LetterEntries, npt.NDArray[np.bool_]]] = []
        self._words = np.empty(0, _WORD)
        self._order = Order.NET
        self._commit_ts = self._position = self._letter = np.empty(0, np.int64)
        self._index = np.empty(0, np.int32)
        self._is_put = self._is_old = self._is_left = np.empty(0, np.bool_)

    def add(
        self, letters: Sequence[Letter], entries: LetterEntries, passed: Sequence[str | None] = ()
    ) -> None:
        """``entries``: by the number among ``letters``. ``passed``: the half of each that newer
        changes have passed."""
        is_left = np.ones(len(entries.letter), np.bool_)
        for half, is_old in ((PASSED_NEW, False), (PASSED_OLD, True)):
            these = [number for number, of in enumerate(passed) if of == half]
            is_left &= ~(np.isin(entries.letter, these) & (entries.is_old == is_old))
        shifted = replace(entries, letter=entries.letter + len(self.letters))
        self.letters += letters
        if len(entries.letter):
            self._order = entries.order
            self._new.append((shifted, is_left))

    def commit_ts(self) -> dict[int, int]:
        """The commit-ts of the letters whose keys can be read, by number."""
        self._sort()
        return dict(zip(self._letter.tolist(), self._commit_ts.tolist(), strict=True))

    def told(self) -> dict[int, frozenset[tuple[int, ...]]]:
        """What each letter says of which keys, by number: the same for the same change."""
        self._sort()
        first, second = self._words["first"], self._words["second"]
        columns = (first, second, self._commit_ts, self._is_put, self._is_old)
        found: dict[int, set[tuple[int, ...]]] = {}
        entries = zip(*(column.tolist() for column in columns), strict=True)
        for letter, entry in zip(self._letter.tolist(), entries, strict=True):
            found.setdefault(letter, set()).add(entry)
        return {letter: frozenset(each) for letter, each in found.items()}

    def meet(self, last: LastChanges) -> Met:
        """The letters that these changes meet, which are committed next. Remembers which were
        passed."""
        self._sort()
        words = _words(last)
        hits = np.flatnonzero(np.isin(words["first"], self._words["first"][self._is_left]))
        passed: dict[int, int] = {}
        brought: set[int] = set()
        for hit in hits.tolist():
            low, high = (
                int(np.searchsorted(self._words["first"], words["first"][hit], side))
                for side in ("left", "right")
            )
            change = self._when(hit, last.commit_ts, last.position, last.index, last.is_put)
            for at in range(low, high):
                if not self._is_left[at] or self._words[at] != words[hit]:
                    continue
                own = self._when(at, self._commit_ts, self._position, self._index, self._is_put)
                if own == change:
                    brought.add(at)
                elif own < change and not self._is_log:
                    passed[at] = change[0]
        self._is_left[[*passed, *brought]] = False
        return self._met(passed, brought)

    def _when(self, at: int, *columns: npt.NDArray[Any]) -> tuple[int, ...]:
        """When an entry of these columns (commit-ts, position, index, is_put) comes among the
        changes of its key. Where the order is NET, a change may come again at another place."""
        commit_ts, *place, is_put = (int(column[at]) for column in columns)
        return (commit_ts, *(place if self._order is Order.PLACE else ()), is_put)

    def _met(self, passed: Mapping[int, int], brought: set[int]) -> Met:
        over, halves, came = {}, {}, set()
        for number in {int(self._letter[at]) for at in (*passed, *brought)}:
            entries = np.flatnonzero(self._letter == number).tolist()
            is_whole = not self._is_left[entries].any()
            last_ts = max((passed[at] for at in entries if at in passed), default=_NO_TS)
            if not is_whole:  # also where an UPDATE's old row went, and its new one has no place
                (at,) = (each for each in entries if not self._is_left[each])
                halves[number] = last_ts, PASSED_OLD if self._is_old[at] else PASSED_NEW
            elif any(at in brought for at in entries):
                came.add(number)
            else:
                over[number] = last_ts
        return Met(passed=over, halves=halves, brought=frozenset(came))

    def _sort(self) -> None:
        if not self._new:
            return
        parts = [entries for entries, _ in self._new]
        words = np.concatenate([self._words, *map(_words, parts)])
        order = np.argsort(words["first"], kind="stable")
        self._words = words[order]
        for name in ("commit_ts", "position", "index", "is_put", "letter", "is_old"):
            joined = np.concatenate([getattr(self, f"_{name}"), *(getattr(e, name) for e in parts)])
            setattr(self, f"_{name}", joined[order])
        self._is_left = np.concatenate([self._is_left, *(left for _, left in self._new)])[order]
        self._new = []


def _words(of: LastChanges | LetterEntries) -> npt.NDArray[Any]:
    found = np.zeros(len(of.keys), _WORD)
    found["first"] = of.keys.first.view(np.int64)
    if of.keys.second is not None:
        found["second"] = of.keys.second
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    task: TableTask  # of rows of any commit-ts
    keys: LetterKeys


class OpenLetters:
    """The open letters of the tables that one writer of spans writes. For its applying thread."""

    def __init__(
        self,
        dead_letters: DeadLetters,
        by: LetterWriter,
        rules: ChangeRules,
        shapes: Shapes,
        routes: Routes,
    ) -> None:
        """``shapes``: all older ones of a table, as ``TableTask.older`` has them."""
        self._dead_letters = dead_letters
        self._by = by
        self._rules = rules
        self._routes = routes
        self._shapes = shapes
        self._known: dict[TableName, _Known] = {}

    def forget(self, name: TableName) -> None:
        """Another may write the table from now on."""
        self._known.pop(name, None)

    def keys(self, task: TableTask) -> LetterKeys:
        """The keys of a table's open letters. Reads them if that has not been done, or if the table
        has another shape since."""
        known = self._known.get(task.name)
        if known is None or (known.task.schema, known.task.form) != (task.schema, task.form):
            known = self._read(task, self._dead_letters.open_of(self._by.changefeed_id, task.name))
            self._known[task.name] = known
        return known.keys

    def read(
        self, task: TableTask, letters: Iterable[pa.Table], rows: LetterRows | None = None
    ) -> LetterKeys:
        """Reads these open letters of a table, numbered as they come. ``rows``: what they are, if
        that is known; ``letters`` is one then."""
        return self._read(task, letters, rows).keys

    def _read(
        self, task: TableTask, letters: Iterable[pa.Table], rows: LetterRows | None = None
    ) -> _Known:
        older = self._shapes(task.name)
        every = replace(
            task,
            checkpoint=Ts(0),
            older=older,
            ignored_events=frozenset(),
            behind={},
        )
        known = _Known(task=every, keys=LetterKeys(is_log=task.is_log))
        for part in letters:
            self._add(known, part, rows)
        return known

    def add(self, name: TableName, letters: pa.Table) -> None:
        """Some that were put there by this batch, with their bytes."""
        if name in self._known:
            self._add(self._known[name], letters)

    def _add(self, known: _Known, letters: pa.Table, rows: LetterRows | None = None) -> None:
        if rows is None:
            decode = letter_decoder(self._rules.protocol)
            numbers = letters["commit_ts"] if self._rules.is_numbered else None
            rows = letter_rows(letters["value"], known.task.name, decode, self._routes, numbers)
        names = letters.column_names
        found = [
            Letter(
                part=each["part"],
                identity=each["identity"],
                position=each["position"],
                index=each["index"],
                created_at=each.get("created_at"),
                commit_ts=each["commit_ts"] or _NO_TS,
            )
            for each in letters.drop_columns(["value"]).to_pylist()
        ]
        passed = letters["passed"].to_pylist() if "passed" in names else ()
        places = Places(
            part=[each.part for each in found],
            position=np.array([each.position for each in found], np.int64),
            index=np.array([each.index for each in found], np.int32),
        )
        entries = letter_entries(known.task, rows.blocks, self._rules, places)
        known.keys.add(found, entries, passed)

    def note_passed(self, keys: LetterKeys, met: Met, by: str | None = None) -> None:
        """Call it before the commit of the changes that have met the letters. ``by``: a replay's
        operator."""
        whole = [(keys.letters[n], SUPERSEDED, None, ts) for n, ts in met.passed.items()]
        halves = [(keys.letters[n], OPEN, half, ts) for n, (ts, half) in met.halves.items()]
        self._note([*whole, *halves], by or f"stream (capture {self._by.capture_id})")

    def note_brought(self, keys: LetterKeys, met: Met, by: str | None = None) -> None:
        """Call it after that commit. A process that dies in between leaves a letter open, which may
        then be replayed all the same."""
        is_again = self._by.incarnation > 1
        by = by or (f"rewind (incarnation {self._by.incarnation})" if is_again else "stream")
        self._note([(keys.letters[n], REPLAYED, None, None) for n in met.brought], by)

    def _note(self, states: Sequence[tuple[Letter, str, str | None, int | None]], by: str) -> None:
        if not states:
            return
        self._by.check()
        letters = [letter for letter, *_ in states]
        created = self._created([each for each in letters if each.created_at is None])
        rows = [
            {
                "changefeed_id": self._by.changefeed_id,
                "part": letter.part,
                "identity": letter.identity,
                "position": letter.position,
                "index": letter.index,
                "created_at": at,
                "state": state,
                "passed": half,
                "note": None if ts is None else f"a newer change of its row, of commit-ts {ts}",
                "incarnation": self._by.incarnation,
            }
            for letter, state, half, ts in states
            for at in ([letter.created_at] if letter.created_at else created[letter])
        ]
        names = [*LETTER, "state", "passed", "note", "incarnation"]
        schema = pa.schema([STATES.field(name) for name in names])
        self._dead_letters.states.change(pa.Table.from_pylist(rows, schema), by=by)

    def _created(self, letters: Sequence[Letter]) -> dict[Letter, list[datetime]]:
        found: dict[Letter, list[datetime]] = {letter: [] for letter in letters}
        if letters:
            places = [(each.part, each.position) for each in letters]
            for each in self._dead_letters.at(self._by.changefeed_id, places).to_pylist():
                key = Letter(
                    part=each["part"],
                    identity=each["identity"],
                    position=each["position"],
                    index=each["index"],
                    created_at=None,
                    commit_ts=each["commit_ts"] or _NO_TS,
                )
                if key in found:
                    found[key].append(each["created_at"])
        return found
