"""Which chunks of a table are still to be copied: a plan, as a value.

    begun ─► todo ─► next_step ─┬─ Measure(range) ─► measured ─┐
              ▲                 └─ Read(range) ────► read ─────┤
              └──────────── ranges that are left ◄─────────────┘

A chunk is a range of the key that one SELECT reads. Where the key is one integer, ranges are
computed, from the keys' ends and the server's estimate; a SELECT has a limit, and where it cut, the
rest of its range is divided by the density that was seen. Other keys are in an order that the
server alone knows: it is asked for the key behind the next so many rows, and goes on from there.

No chunk lies beyond the last key at the beginning: what grows there is in the binlog. All that
happens to a plan is an outcome (``Measured``, ``WasRead``); a copy that was killed applies those
that it has noted to the plan with which it began, and has the plan as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from streaming.source.dump.key_ranges import ALL_ROWS, Bound, KeyRange
from streaming.source.dump.source_table import SourceTable

CHUNK_BYTES: Final = 64 << 20  # by the server's estimate; some 0.3 s of one connection
MOST_ROWS: Final = 500_000
FEWEST_ROWS: Final = 100
_MOST_RANGES: Final = 1_000  # at the beginning: an estimate may be far too large
_PIECES: Final = 8  # that the rest of a range is cut into, at most


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask for the key of the last of ``rows`` rows of the range."""

    range: KeyRange
    rows: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read the range, or its first ``limit`` rows."""

    range: KeyRange
    limit: int | None


Step = Measure | Read


@dataclass(frozen=True, slots=True)
class Measured:
    """``bound``: None where the range has fewer rows."""

    range: KeyRange
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class WasRead:
    """``cut``: the first and the last key that were read, where the limit was reached."""

    range: KeyRange
    cut: tuple[int, int] | None = None


Outcome = Measured | WasRead


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlan:
    """``todo``: ranges to read. ``unmeasured``: what lies behind the last of them, of a size that
    is not known. ``running``: ranges whose step was taken and has no outcome yet."""

    chunk_rows: int
    limit: int | None
    todo: tuple[KeyRange, ...] = ()
    unmeasured: KeyRange | None = None
    running: frozenset[KeyRange] = frozenset()

    @property
    def is_done(self) -> bool:
        return not self.todo and self.unmeasured is None and not self.running

    def next_step(self, ready: int) -> tuple[Step | None, ChunkPlan]:
        """What to do beside what is running, and the plan in which it runs; None: nothing now.

        ``ready``: so many ranges should be known beforehand, or their readers would wait for
        measures, which come one after the other.
        """
        behind = self.unmeasured
        if behind is not None and behind not in self.running and len(self.todo) < ready:
            return Measure(behind, self.chunk_rows), self._with_running(behind)
        if not self.todo:
            return None, self
        first, *rest = self.todo
        plan = replace(self, todo=tuple(rest))
        return Read(first, self.limit), plan._with_running(first)

    def after(self, outcome: Outcome) -> ChunkPlan:
        """The plan when that is known, whether its step was taken here or before a restart."""
        plan = replace(self, running=self.running - {outcome.range})
        if isinstance(outcome, Measured):
            assert outcome.range == plan.unmeasured
            after, upto = outcome.range.after, outcome.range.upto
            if outcome.bound is None:
                return replace(plan, todo=(*plan.todo, outcome.range), unmeasured=None)
            known = KeyRange(after, outcome.bound)
            behind = KeyRange(outcome.bound, upto)
            return replace(plan, todo=(*plan.todo, known), unmeasured=behind)
        left = plan.todo
        if outcome.range not in self.running:  # a restart: here its step was not taken
            place = left.index(outcome.range)
            left = (*left[:place], *left[place + 1 :])
        return replace(plan, todo=(*_rest(outcome), *left))

    def again(self, step: Step) -> ChunkPlan:
        """The plan when the step has failed: it is taken again."""
        plan = replace(self, running=self.running - {step.range})
        return plan if isinstance(step, Measure) else replace(plan, todo=(step.range, *plan.todo))

    def _with_running(self, taken: KeyRange) -> ChunkPlan:
        return replace(self, running=self.running | {taken})


def chunk_rows(table: SourceTable) -> int:
    """How many rows of it are about CHUNK_BYTES."""
    row_bytes = table.bytes / table.rows if table.rows else 0
    rows = int(CHUNK_BYTES / row_bytes) if row_bytes else MOST_ROWS
    return max(FEWEST_ROWS, min(MOST_ROWS, rows))


def whole_table() -> ChunkPlan:
    """One chunk: a table without an order, or one that must be read in one moment."""
    return ChunkPlan(chunk_rows=0, limit=None, todo=(ALL_ROWS,))


def no_rows() -> ChunkPlan:
    """The table was empty at the beginning."""
    return ChunkPlan(chunk_rows=0, limit=None)


def integer_plan(first: int, last: int, estimate: int, rows: int) -> ChunkPlan:
    """Ranges of about ``rows`` rows, were the keys spread evenly. A SELECT may take twice as many:
    the estimate is rough, and a rest costs another one."""
    width = last - first + 1
    count = max(1, min(-(-estimate // rows), width, _MOST_RANGES))
    ends = [first - 1 + width * number // count for number in range(1, count + 1)]
    bounds: list[Bound | None] = [None, *((str(end),) for end in ends)]
    ranges = map(KeyRange, bounds, bounds[1:])
    return ChunkPlan(chunk_rows=rows, limit=2 * rows, todo=tuple(ranges))


def measured_plan(last: Bound, rows: int) -> ChunkPlan:
    """Ranges of ``rows`` rows, which the server finds one after the other."""
    return ChunkPlan(chunk_rows=rows, limit=None, unmeasured=KeyRange(None, last))


def _rest(outcome: WasRead) -> Iterable[KeyRange]:
    """What a limit has left of an integer range: pieces as wide as half of what was read, so that
    several connections go on in a dense place, and one of all that is behind."""
    if outcome.cut is None:
        return
    assert outcome.range.upto is not None
    first, after = outcome.cut
    upto = int(outcome.range.upto[0])
    width = max(1, (after - first + 1) // 2)
    for number in range(_PIECES):
        end = upto if number == _PIECES - 1 else min(upto, after + width)
        if end > after:
            yield KeyRange((str(after),), (str(end),))
        after = end
