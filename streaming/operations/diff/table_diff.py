"""One table: both sides are read once; what differs is asked again, until it is certain.

database, all rows ─► the table passes that ─► the table, all rows ─► keys that differ
                                                                         │ (settling)
       ┌──────────────── these keys: table, then database ◄──────────────┘
       └─► the table passes that ─► again
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from coordination.model import TableName
from coordination.trust.clock import SystemClock
from sinks.types.table_schema import TableSchema
from streaming.operations.diff.findings import Kind, RowFinding, TableFinding
from streaming.operations.diff.fingerprints import (
    SEVERAL,
    Batch,
    CellsHash,
    Differing,
    Fingerprints,
    KeyHash,
    by_key,
    counted,
    differing,
    hashed,
    is_among,
    key_hashes,
    key_set,
    parts_for,
    repeats,
)
from streaming.operations.diff.lake_rows import LakeVersion
from streaming.operations.diff.merged_rows import UNROUTED, Upstream
from streaming.operations.diff.passing import Passing
from streaming.operations.diff.settling import Asked, judged, still
from streaming.operations.diff.shape import NotComparable, Shape

MOST_ASKED: Final = 10_000  # keys that are asked again
MOST_WITHOUT_KEY: Final = 1_000  # no index finds these: a SELECT of some reads the whole table
MOST_CHUNKS: Final = 64  # that are read again for keys that the database alone has
MOST_ROUNDS: Final = 8  # a row that changes in each of them is not settled
FURTHER_LOOKS: Final = 8
LOOK_AGAIN_S: Final = (0.01, 0.1)
MOST_WATCHED: Final = 1_000  # keys at each of these looks
MOST_SHOWN: Final = 20
ALTERED: Final = "a DDL has changed it while it was compared: compare it again"
Told = Callable[[int], None]  # so many more rows were read
KeyValues = tuple[Any, ...]


class DatabaseTable(Protocol):
    """The database's side of one target: a table, or several."""

    def shape(self, schema: TableSchema, lake: Collection[str]) -> Shape:
        """What is compared, by the target's schema and the columns that it has. Raises
        NotComparable."""

    def batches(self, shape: Shape) -> Iterator[Batch]:
        """All rows; ``place`` of a batch names the chunk it came in."""

    def chunk(self, shape: Shape, place: int) -> Iterator[Batch]:
        """The rows that are in that chunk now."""

    def rows(self, shape: Shape, keys: Sequence[KeyValues]) -> Iterator[Batch]:
        """The rows that have one of these keys, in the order of ``shape.key``; others may come
        too, which the collation takes for equal."""


@dataclass(slots=True)
class Reading:
    """Some keys as one side has them."""

    cells: dict[KeyHash, CellsHash] = field(default_factory=dict)
    keys: dict[KeyHash, KeyValues] = field(default_factory=dict)
    rows: dict[KeyHash, dict[str, Any]] = field(default_factory=dict)  # of keys that are shown
    strange: set[KeyHash] = field(default_factory=set)  # see ``Batch``


def compare_table(
    name: TableName,
    newest: Callable[[], LakeVersion],
    database: DatabaseTable,
    passing: Passing,
    *,
    upstream: Upstream = UNROUTED,
    told: Told = lambda _rows: None,
) -> TableFinding:
    """``upstream``: the tables whose rows ``database`` has. Raises TidelakeError where a side
    cannot be read."""
    try:
        return _Comparison(name, newest, database, passing, upstream, told).finding()
    except NotComparable as why:
        return TableFinding(name=name, problem=str(why))


class _Comparison:
    def __init__(  # noqa: PLR0917
        self,
        name: TableName,
        newest: Callable[[], LakeVersion],
        database: DatabaseTable,
        passing: Passing,
        upstream: Upstream,
        told: Told,
    ) -> None:
        self._name = name
        self._newest = newest
        self._database = database
        self._passing = passing
        self._upstream = upstream
        self._told = told
        self._of_others = 0
        self._clock = SystemClock()
        self._never = threading.Event()
        self._version = newest()
        self._shape = self._compared()

    def finding(self) -> TableFinding:
        parts = parts_for(self._version.count_rows())
        with Fingerprints(parts) as lake, Fingerprints(parts) as database:
            self._gather(database, self._database.batches(self._shape))
            is_passed = self._passing.wait(self._passing.end())
            self._look_again()
            self._gather(lake, self._of_lake())
            is_counted = self._shape.counts_rows
            most = MOST_WITHOUT_KEY if self._version.schema.key_is_row else MOST_ASKED
            found, total = differing(lake, database, most, counts_rows=is_counted)
            found = _in_few_chunks(found)
            settled, still_open, rows = self._asked_again(found, is_passed=is_passed)
            return TableFinding(
                name=self._name,
                version=self._version.number,
                lake_rows=lake.rows,
                database_rows=database.rows,
                other_rows=self._of_others,
                repeats=repeats(database) if self._is_set else 0,
                differing=settled,
                open_rows=still_open,
                not_asked=total - len(found),
                rows=tuple(rows),
                columns=self._shape.differences,
                not_here=self._shape.not_here,
            )

    @property
    def _is_set(self) -> bool:
        return self._version.schema.key_is_row and not self._shape.counts_rows

    def _gather(self, into: Fingerprints, batches: Iterable[Batch]) -> None:
        for batch in batches:
            rows = hashed(batch)
            into.add(rows)
            self._told(len(rows))

    def _compared(self) -> Shape:
        return self._database.shape(self._version.schema, frozenset(self._version.table.types))

    def _of_lake(self) -> Iterator[Batch]:
        """The target's rows of these upstream tables."""
        self._of_others = 0
        for batch in self._version.batches(self._shape):
            keep = self._upstream.is_among(self._shape, batch)
            if keep is not None and not keep.all():
                self._of_others += int(np.count_nonzero(~keep))
                yield batch.filtered(keep)
            else:
                yield batch

    def _look_again(self) -> None:
        """The newest version. Raises NotComparable where a DDL has come between."""
        self._version = self._newest()
        if self._compared() != self._shape:
            raise NotComparable(ALTERED)

    def _asked_again(
        self, found: Sequence[Differing], *, is_passed: bool
    ) -> tuple[int, int, list[RowFinding]]:
        """How many keys differ, how many are not settled, and the first of them."""
        asked = {each.key: Asked(each.database) for each in found}
        keys = self._key_values(found)
        count = 0
        settled: list[RowFinding] = []
        last: list[RowFinding] = []  # of the last round, not settled
        for _ in range(MOST_ROUNDS):
            if not asked:
                break
            examples = _examples(asked, MOST_SHOWN - len(settled))
            lake = _read(self._of_lake(), self._shape, asked, examples)
            keys |= lake.keys
            database = self._of_database(asked, keys, examples)
            suspects = still(asked, lake.cells, database.cells)
            is_shown = not suspects or self._passing.is_shown()
            looks = [database.cells, *self._further_looks(suspects[:MOST_WATCHED], keys, database)]
            verdict = judged(asked, lake.cells, looks, is_shown=is_shown)
            count += len(verdict.differing)
            seen = _Seen(self._shape, keys, lake, database)
            settled += seen.findings(verdict.differing, is_settled=True)
            last = seen.findings(verdict.again, is_settled=False)
            asked = dict(verdict.again)
            if not asked or not is_passed or not self._passing.wait(self._passing.end()):
                break
            self._look_again()
        return count, len(asked), [*settled, *last][:MOST_SHOWN]

    def _of_database(
        self,
        asked: Collection[KeyHash],
        keys: Mapping[KeyHash, KeyValues],
        examples: Collection[KeyHash] = (),
    ) -> Reading:
        wanted = [keys[key] for key in asked if key in keys]
        rows = self._database.rows(self._shape, wanted) if wanted else iter(())
        return _read(rows, self._shape, asked, examples)

    def _further_looks(
        self,
        suspects: Collection[KeyHash],
        keys: Mapping[KeyHash, KeyValues],
        first: Reading,
    ) -> Iterator[Mapping[KeyHash, CellsHash]]:
        """At rows that were still, at times that no writer's rhythm meets."""
        others = {key: first.cells[key] for key in first.cells.keys() - set(suspects)}
        for _ in range(FURTHER_LOOKS if suspects else 0):
            self._clock.wait(self._never, random.uniform(*LOOK_AGAIN_S))
            yield others | self._of_database(suspects, keys).cells

    def _key_values(self, found: Sequence[Differing]) -> dict[KeyHash, KeyValues]:
        """The keys that the database alone has, by their chunks; a row that is gone has none."""
        wanted = {each.key: each.place for each in found if each.lake is None}
        reading = Reading()
        for place in sorted(set(wanted.values())):
            batches = self._database.chunk(self._shape, place)
            reading.keys |= _read(batches, self._shape, wanted, ()).keys
        return reading.keys


def _read(
    batches: Iterable[Batch],
    shape: Shape,
    wanted: Collection[KeyHash],
    examples: Collection[KeyHash],
) -> Reading:
    """The rows with a wanted key, out of all these."""
    found, hashes, keys = Reading(), [], key_set(wanted)
    for batch in batches:
        rows = hashed(batch)
        keep = is_among(rows, keys)
        if not keep.any():
            continue
        rows, part = rows[keep], batch.filtered(keep)
        hashes.append(rows)
        of_rows = key_hashes(rows)
        values = zip(*(column.to_pylist() for column in part.key), strict=True)
        found.keys |= dict(zip(of_rows, values, strict=True))
        if part.strange is not None:
            found.strange |= {of_rows[at] for at in np.flatnonzero(part.strange)}
        for at, key in enumerate(of_rows):
            if key in examples:
                arrays = zip(shape.columns, (*part.key, *part.cells), strict=True)
                found.rows[key] = {column.name: array[at].as_py() for column, array in arrays}
    if hashes:
        rows = np.concatenate(hashes)
        found.cells = by_key(counted(rows) if shape.counts_rows else rows)
    return found


def _in_few_chunks(found: Sequence[Differing]) -> list[Differing]:
    """Without what would have the whole database read again: a table may lack most rows."""
    places = sorted({each.place for each in found if each.lake is None})[:MOST_CHUNKS]
    few = frozenset(places)
    return [each for each in found if each.lake is not None or each.place in few]


def _examples(asked: Mapping[KeyHash, Asked], most: int) -> frozenset[KeyHash]:
    """The keys whose rows are kept to be shown: suspects first, which may be found to differ."""
    suspects = sorted(asked, key=lambda key: (asked[key].suspect is None, key))
    return frozenset(suspects[: max(0, most)])


@dataclass(frozen=True, slots=True)
class _Seen:
    """One round's sight of both sides."""

    shape: Shape
    keys: Mapping[KeyHash, KeyValues]
    lake: Reading
    database: Reading

    def findings(self, keys: Iterable[KeyHash], *, is_settled: bool) -> list[RowFinding]:
        """The keys whose rows were kept, as they are shown."""
        names = [column.name for column in self.shape.key]
        return [
            RowFinding(
                key=dict(zip(names, self.keys[key], strict=True)),
                kind=self._kind(key),
                cells=self._cells(key),
                is_settled=is_settled,
            )
            for key in keys
            if key in self.lake.rows or key in self.database.rows
        ]

    def _kind(self, key: KeyHash) -> Kind:
        ours, theirs = self.lake.cells.get(key), self.database.cells.get(key)
        if SEVERAL in (ours, theirs):
            return "several"
        if key in self.database.strange:
            return "unfit"
        if ours is not None and theirs is not None:
            return "counted" if self.shape.counts_rows else "changed"
        return "missing" if ours is None else "extra"

    def _cells(self, key: KeyHash) -> dict[str, tuple[Any, Any]]:
        if key not in self.lake.rows or key not in self.database.rows:
            return {}
        ours, theirs = self.lake.rows[key], self.database.rows[key]
        names = (column.name for column in self.shape.cells)
        return {name: (ours[name], theirs[name]) for name in names if ours[name] != theirs[name]}
