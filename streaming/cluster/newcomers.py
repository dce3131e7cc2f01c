"""Spans on their way into a writer: what of them is wanted, and what has been read of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from coordination.model import TableName, Ts
from coordination.watchdog import Watched
from sinks.changefeeds import ChangefeedRow
from sinks.progress import ProgressRow
from streaming.cluster.held_spans import Assignment
from streaming.cluster.reads import Offsets, low, parsed
from streaming.cluster.topic_stream import TopicStream
from streaming.protocols.contract import Block, Wanted, WantedTable
from streaming.sink_tables import SinkTable
from streaming.source.ranges import TopicPartition

logger = logging.getLogger(__name__)

NEAR_MESSAGES: Final = 50_000  # more of them cost no more time to read than another job does


@dataclass(slots=True, kw_only=True, eq=False)
class Newcomer:
    """A span whose rows are being brought together: its table, and from where it must be read.

    ``since``: from there on the stream has them. ``caught``: of the last read of what lies before,
    until the carry has them."""

    assignment: Assignment
    table: SinkTable
    low_water: Offsets
    since: Offsets | None = None
    caught: list[Block] = field(default_factory=list)
    is_caught_up: bool = False

    @property
    def behind(self) -> int:
        """Messages between its low water and where the stream has it."""
        low_water = self.low_water
        return sum(max(0, at - low_water.get(p, at)) for p, at in (self.since or {}).items())


class Newcomers:
    """Those on their way, and the rows that are wanted, of them and of all that are here. The
    worker, the reading and the applying thread share it."""

    def __init__(self, stream: TopicStream) -> None:
        self._stream = stream
        self._changed = threading.Condition()  # and the lock of all that follows
        self._coming: dict[TableName, Newcomer] = {}
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
            return {each.assignment.id for each in self._coming.values()}

    def begin(self, newcomers: Iterable[Newcomer]) -> None:
        """Their rows are wanted from the next read on."""
        with self._changed:
            for each in newcomers:
                name = each.assignment.name
                self._coming[name] = each
                self._wanted[name] = wanted_of(each.table, each.assignment.checkpoint_ts)

    def coming(self) -> list[Newcomer]:
        """Those whose rows are not all here yet."""
        with self._changed:
            return [each for each in self._coming.values() if not each.is_caught_up]

    def catch_up(self, together: Sequence[Newcomer], step: Watched) -> None:
        """Read their rows up to where the stream has them, in one pass (`passes`); the stream goes
        on meanwhile. They go into the carry read by read: a backlog may be larger than memory.
        After a failure it is called again and begins anew: rows that come twice are applied once.
        ``step``: of the worker; each read is one."""
        begun_s = time.monotonic()
        since = together[0].since
        assert since is not None
        wanted = {
            each.assignment.name: wanted_of(each.table, each.assignment.checkpoint_ts)
            for each in together
        }
        messages, is_last = 0, False
        for read in self._stream.read_between(low_water_of(together), since, wanted):
            messages += read.messages
            is_last = all(at >= since[p] for p, at in read.position.items())
            self._bring(together, read.blocks, is_last=is_last)
            step.rest()
            together = together if is_last else self._await_taken(together)
            step.step()
            if not together:
                return
        if not is_last:
            self._bring(together, (), is_last=True)
        logger.debug(
            "caught up name=%s tables=%d messages=%d seconds=%.3f",
            *(self._stream.name, len(together), messages, time.monotonic() - begun_s),
        )

    def _bring(
        self, together: Iterable[Newcomer], blocks: Sequence[Block], *, is_last: bool
    ) -> None:
        """To each its own; the last of them makes them caught up."""
        with self._changed:
            for newcomer in together:
                name = newcomer.assignment.name
                newcomer.caught += [block for block in blocks if block.name == name]
                newcomer.is_caught_up = is_last
            self.steps += 1
        self._stream.wake()

    def _await_taken(self, together: Iterable[Newcomer]) -> list[Newcomer]:
        """Those that still come, once the applying thread has taken what they brought; none when
        it has failed."""

        def coming() -> list[Newcomer]:
            return [each for each in together if each in self._coming.values()]

        with self._changed:
            self._changed.wait_for(
                lambda: self._has_failed or not any(each.caught for each in coming())
            )
            return [] if self._has_failed else coming()

    # The reading thread.

    def submit(self, begin: Offsets) -> Wanted:
        """The next read begins here: what is wanted of it."""
        with self._changed:
            for newcomer in self._coming.values():
                if newcomer.since is None:
                    newcomer.since = dict(begin)
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
            gone = [n for n, each in self._coming.items() if each.assignment.id not in held]
            for name in gone:
                del self._coming[name]
            self._changed.notify_all()
        return gone

    def forget(self, name: TableName) -> bool:
        """False: it has come again meanwhile, and some of its rows as well."""
        with self._changed:
            if name in self._coming:
                return False
            self._wanted.pop(name, None)
            return True

    def take(self, held: Container[int]) -> tuple[list[Block], list[Newcomer]]:
        """What those of these assignments have brought since the last time, and which of them
        have brought all of it."""
        with self._changed:
            here = [each for each in self._coming.values() if each.assignment.id in held]
            blocks = [block for newcomer in here for block in newcomer.caught]
            ready = [newcomer for newcomer in here if newcomer.is_caught_up]
            for newcomer in here:
                newcomer.caught = []
            self._changed.notify_all()
        return blocks, ready

    def has_joined(self, newcomer: Newcomer) -> None:
        """It is on its way no more; known all the time, so that it does not begin twice."""
        with self._changed:
            if self._coming.get(newcomer.assignment.name) is newcomer:
                del self._coming[newcomer.assignment.name]


def wanted_of(table: SinkTable, above_ts: Ts) -> WantedTable:
    """Its rows above this commit-ts, and its key where that is known."""
    key = None
    if table.is_settled:
        key = table.target.schema.key if table.target is not None else ()
    return WantedTable(above_ts=above_ts, key=key)


def passes(coming: Iterable[Newcomer]) -> list[list[Newcomer]]:
    """Those that can be caught up with now, by the reading that does it: together where the stream
    has them from the same place on and their rows begin near each other; the shortest first."""
    found: list[list[Newcomer]] = []
    for newcomer in sorted(
        (each for each in coming if each.since is not None), key=attrgetter("behind")
    ):
        for together in found:
            first = together[0]
            is_near = newcomer.behind - first.behind <= NEAR_MESSAGES
            if is_near and first.since == newcomer.since:
                together.append(newcomer)
                break
        else:
            found.append([newcomer])
    return found


def low_water_of(together: Iterable[Newcomer]) -> dict[TopicPartition, int]:
    """Where the reading of one pass begins."""
    return low([each.low_water for each in together])


def stored_low_water(row: ChangefeedRow, progress: ProgressRow | None) -> dict[TopicPartition, int]:
    """From where a span must be read; what its row does not say, the changefeed's does."""
    own = progress.source_offsets if progress is not None else {}
    return parsed({**row.source_offsets, **own})
