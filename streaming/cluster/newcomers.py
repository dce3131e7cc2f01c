"""Spans on their way into a writer: what of them is wanted, and what has been read of it."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordination.model import TableName, Ts
from sinks.changefeeds import ChangefeedRow
from sinks.progress import ProgressRow
from streaming.cluster.held_spans import Assignment
from streaming.cluster.reads import Offsets, low
from streaming.protocols.contract import Block, Wanted, WantedTable
from streaming.sink_tables import SinkTable
from streaming.source.ranges import TopicPartition

NEAR_MESSAGES: Final = 50_000  # more of them cost no more time to read than another job does


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A span that can join: its table, and from where it must be read."""

    assignment: Assignment
    table: SinkTable
    low_water: Offsets


@dataclass(slots=True, kw_only=True, eq=False)
class Joining:
    """A newcomer whose rows are being brought together. ``since``: from there on the stream has
    them. ``caught``: of the last read of what lies before, until the carry has them."""

    newcomer: Newcomer
    since: Offsets | None = None
    caught: list[Block] = field(default_factory=list)
    is_caught_up: bool = False


class Newcomers:
    """Those on their way, and the rows that are wanted, of them and of all that are here. The
    worker, the reading and the applying thread share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # and the lock of all that follows
        self._joining: dict[TableName, Joining] = {}
        self._wanted: dict[TableName, WantedTable] = {}
        self.steps = 0  # rises with all that they bring
        self._has_failed = False

    def set_failed(self, *, has_failed: bool) -> None:
        """Nobody takes what they bring, or somebody does again."""
        with self._changed:
            self._has_failed = has_failed
            self._changed.notify_all()

    # The worker.

    def assignment_ids(self) -> set[int]:
        with self._changed:
            return {each.newcomer.assignment.id for each in self._joining.values()}

    def begin(self, newcomers: Iterable[Newcomer]) -> None:
        """Their rows are wanted from the next read on."""
        with self._changed:
            for each in newcomers:
                name = each.assignment.name
                self._joining[name] = Joining(newcomer=each)
                self._wanted[name] = wanted_of(each.table, each.assignment.checkpoint_ts)

    def coming(self) -> list[Joining]:
        """Those whose rows are not all here yet."""
        with self._changed:
            return [each for each in self._joining.values() if not each.is_caught_up]

    def bring(self, together: Iterable[Joining], blocks: Sequence[Block], *, is_last: bool) -> None:
        """To each its own; the last of them makes them caught up."""
        with self._changed:
            for joining in together:
                name = joining.newcomer.assignment.name
                joining.caught += [block for block in blocks if block.name == name]
                joining.is_caught_up = is_last
            self.steps += 1

    def await_taken(self, together: Iterable[Joining]) -> list[Joining]:
        """Those that still come, once the applying thread has taken what they brought; none when
        it has failed."""

        def coming() -> list[Joining]:
            return [each for each in together if each in self._joining.values()]

        with self._changed:
            self._changed.wait_for(
                lambda: self._has_failed or not any(each.caught for each in coming())
            )
            return [] if self._has_failed else coming()

    # The reading thread.

    def submit(self, begin: Offsets) -> Wanted:
        """The next read begins here: what is wanted of it."""
        with self._changed:
            for joining in self._joining.values():
                if joining.since is None:
                    joining.since = dict(begin)
            return dict(self._wanted)

    # The applying thread.

    def is_wanted(self, name: TableName) -> bool:
        with self._changed:
            return name in self._wanted

    def want(self, name: TableName, wanted: WantedTable) -> None:
        """Less than before of one that is here."""
        with self._changed:
            if name in self._wanted:
                self._wanted[name] = wanted

    def drop_all_but(self, held: Container[int]) -> list[TableName]:
        """Those of other assignments are on their way no more."""
        with self._changed:
            gone = [n for n, j in self._joining.items() if j.newcomer.assignment.id not in held]
            for name in gone:
                del self._joining[name]
            self._changed.notify_all()
        return gone

    def forget(self, name: TableName) -> bool:
        """False: it has come again meanwhile, and some of its rows as well."""
        with self._changed:
            if name in self._joining:
                return False
            self._wanted.pop(name, None)
            return True

    def take(self, held: Container[int]) -> tuple[list[Block], list[Newcomer]]:
        """What those of these assignments have brought since the last time, and which of them
        have brought all of it."""
        with self._changed:
            here = [j for j in self._joining.values() if j.newcomer.assignment.id in held]
            blocks = [block for joining in here for block in joining.caught]
            ready = [joining.newcomer for joining in here if joining.is_caught_up]
            for joining in here:
                joining.caught = []
            self._changed.notify_all()
        return blocks, ready

    def has_joined(self, newcomer: Newcomer) -> None:
        """It is on its way no more; known all the time, so that it does not begin twice."""
        with self._changed:
            name = newcomer.assignment.name
            if name in self._joining and self._joining[name].newcomer is newcomer:
                del self._joining[name]


def wanted_of(table: SinkTable, above_ts: Ts) -> WantedTable:
    """Its rows above this commit-ts, and its key where that is known."""
    key = None
    if table.is_settled:
        key = table.target.schema.key if table.target is not None else ()
    return WantedTable(above_ts=above_ts, key=key)


def passes(coming: Iterable[Joining]) -> list[list[Joining]]:
    """Those that can be caught up with now, by the reading that does it: together where the stream
    has them from the same place on and their rows begin near each other; the shortest first."""
    found: list[list[Joining]] = []
    for joining in sorted((each for each in coming if each.since is not None), key=_behind):
        for together in found:
            first = together[0]
            is_near = _behind(joining) - _behind(first) <= NEAR_MESSAGES
            if is_near and first.since == joining.since:
                together.append(joining)
                break
        else:
            found.append([joining])
    return found


def low_water_of(together: Iterable[Joining]) -> dict[TopicPartition, int]:
    """Where the reading of one pass begins."""
    return low([each.newcomer.low_water for each in together])


def _behind(joining: Joining) -> int:
    """Messages."""
    low_water = joining.newcomer.low_water
    return sum(max(0, at - low_water.get(p, at)) for p, at in (joining.since or {}).items())


def stored_low_water(row: ChangefeedRow, progress: ProgressRow | None) -> dict[TopicPartition, int]:
    """From where a span must be read; what its row does not say, the changefeed's does."""
    own = progress.source_offsets if progress is not None else {}
    offsets = {**row.source_offsets, **own}
    return {TopicPartition.parse(text): offset for text, offset in offsets.items()}
