"""Spans that join a running stream, so that their earlier rows are read beside it
(docs/cluster.md 8). Also which rows the stream's reads are to decode."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from coordination.model import TableName, Ts, lowest
from coordination.trust.watchdog import Watched
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.protocols.contract import Block, Wanted, WantedTable
from streaming.source.positions import Distance, Positions
from streaming.spans.assigned_spans import Assignment
from streaming.stream.shared_stream import SharedStream

logger = logging.getLogger(__name__)

NEAR_MESSAGES: Final = 50_000  # to read so many more takes no longer than one more job


@dataclass(slots=True, kw_only=True, eq=False)
class JoiningSpan:
    """A span whose unapplied rows are not all in the carry yet, with its table.

    Its rows must still be read from ``low_water`` on. ``since``: the positions from which on the
    stream's own reads bring them; None until the next read begins. ``caught``: rows from before
    ``since`` that the worker has read, until the applying thread moves them into the carry."""

    assignment: Assignment
    table: ReplicatedTable
    low_water: Positions
    since: Positions | None = None
    caught: list[Block] = field(default_factory=list)
    is_caught_up: bool = False

    def behind(self, distance: Distance) -> int:
        """How many messages lie between its low water and ``since``."""
        return distance(self.low_water, self.since or {})


class JoiningSpans:
    """The spans of a writer that are newcomers now, and which rows of all its spans (newcomers and
    joined ones) the stream is to decode. The worker, the reading thread and the applying thread
    share it."""

    def __init__(self, stream: SharedStream) -> None:
        self._stream = stream
        self._changed = threading.Condition()  # also the lock of everything below
        self._coming: dict[TableName, JoiningSpan] = {}
        self._wanted: dict[TableName, WantedTable] = {}
        self.steps = 0  # rises when rows of newcomers have been read
        self._has_failed = False

    def set_failed(self, *, has_failed: bool) -> None:
        """Whether the writer has failed: then the applying thread takes no rows, and the worker
        must not wait for it."""
        with self._changed:
            self._has_failed = has_failed
            self._changed.notify_all()

    # Called by the worker.

    def assignment_ids(self) -> set[int]:
        with self._changed:
            return {each.assignment.id for each in self._coming.values()}

    def begin(self, newcomers: Iterable[JoiningSpan]) -> None:
        """From the stream's next read on their rows are decoded."""
        with self._changed:
            for each in newcomers:
                name = each.assignment.name
                self._coming[name] = each
                self._wanted[name] = wanted_of(each.table, each.assignment.checkpoint_ts)

    def coming(self) -> list[JoiningSpan]:
        """The newcomers whose earlier rows have not all been read yet."""
        with self._changed:
            return [each for each in self._coming.values() if not each.is_caught_up]

    def catch_up(
        self, together: Sequence[JoiningSpan], step: Watched, closing: threading.Event
    ) -> None:
        """Read the rows of ``together`` from their low water up to ``since``, in one pass (see
        `passes`). Blocks; the stream goes on meanwhile. After each read it waits until the carry
        has the rows, since a backlog may be larger than memory. After a failure it is called again
        and goes on where it was. ``step``: the worker's; each read is one step. It ends amid a
        backlog once ``closing`` is set."""
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
            self._bring(together, read.blocks, read.position, is_last=is_last)
            step.rest()
            together = together if is_last else self._await_taken(together)
            step.step()
            if not together or closing.is_set():
                return
        if not is_last:
            self._bring(together, (), {}, is_last=True)
        logger.debug(
            "caught up name=%s tables=%d messages=%d seconds=%.3f",
            *(self._stream.name, len(together), messages, time.monotonic() - begun_s),
        )

    def _bring(
        self,
        together: Iterable[JoiningSpan],
        blocks: Sequence[Block],
        position: Positions,
        *,
        is_last: bool,
    ) -> None:
        """Leave each newcomer the blocks of its table. With the last read they are caught up."""
        with self._changed:
            for newcomer in together:
                name = newcomer.assignment.name
                newcomer.caught += [block for block in blocks if block.name == name]
                newcomer.low_water = {
                    p: max(at, position.get(p, at)) for p, at in newcomer.low_water.items()
                }
                newcomer.is_caught_up = is_last
            self.steps += 1
        self._stream.wake()

    def _await_taken(self, together: Iterable[JoiningSpan]) -> list[JoiningSpan]:
        """Wait until the applying thread has taken the rows; then those of ``together`` that are
        newcomers still. Returns none when the writer has failed."""

        def coming() -> list[JoiningSpan]:
            return [each for each in together if each in self._coming.values()]

        with self._changed:
            self._changed.wait_for(
                lambda: self._has_failed or not any(each.caught for each in coming())
            )
            return [] if self._has_failed else coming()

    # Called by the reading thread.

    def submit(self, begin: Positions) -> Wanted:
        """The stream's next read begins at ``begin``: returns which rows it is to decode. New
        newcomers get ``begin`` as their ``since``."""
        with self._changed:
            for newcomer in self._coming.values():
                if newcomer.since is None:
                    newcomer.since = dict(begin)
                    # A partition that was added to the topic: its low water is older than that.
                    newcomer.low_water = {**dict.fromkeys(begin, 0), **newcomer.low_water}
            return dict(self._wanted)

    # Called by the applying thread.

    def is_wanted(self, name: TableName) -> bool:
        with self._changed:
            return name in self._wanted

    def want(self, name: TableName, wanted: WantedTable) -> None:
        """Narrow the rows that are wanted of a span that has joined: its applied rows are not
        wanted any more."""
        with self._changed:
            if name in self._wanted:
                self._wanted[name] = wanted

    def drop_all_but(self, held: Container[int]) -> list[TableName]:
        """Forget the newcomers whose assignments are not in ``held``. Returns their names."""
        with self._changed:
            gone = [n for n, each in self._coming.items() if each.assignment.id not in held]
            for name in gone:
                del self._coming[name]
            self._changed.notify_all()
        return gone

    def forget(self, name: TableName) -> bool:
        """Want no more rows of the table. False if it has joined anew meanwhile: then its rows stay
        wanted, and some of them may be in the carry."""
        with self._changed:
            if name in self._coming:
                return False
            self._wanted.pop(name, None)
            return True

    def take(self, held: Container[int]) -> tuple[list[Block], list[JoiningSpan]]:
        """The rows that were read for the newcomers of these assignments since the last call, and
        the newcomers that are caught up: their rows are complete with this call."""
        with self._changed:
            here = [each for each in self._coming.values() if each.assignment.id in held]
            blocks = [block for newcomer in here for block in newcomer.caught]
            ready = [newcomer for newcomer in here if newcomer.is_caught_up]
            for newcomer in here:
                newcomer.caught = []
            self._changed.notify_all()
        return blocks, ready

    def has_joined(self, newcomer: JoiningSpan) -> None:
        """It is a newcomer no more. To be called after the writer lists it as joined: a span in
        neither list would begin a second time."""
        with self._changed:
            if self._coming.get(newcomer.assignment.name) is newcomer:
                del self._coming[newcomer.assignment.name]


def wanted_of(table: ReplicatedTable, above_ts: Ts) -> WantedTable:
    """The table's rows above this commit-ts, with its key (None while the key is not known, and if
    old rows are needed whole)."""
    key = None
    if table.is_settled:
        key = table.target.schema.key if table.target is not None else ()
    if table.target is not None and table.target.needs_old_rows:
        key = None
    return WantedTable(above_ts=above_ts, key=key)


def passes(coming: Iterable[JoiningSpan], distance: Distance) -> list[list[JoiningSpan]]:
    """The newcomers that can be caught up now (their ``since`` is known), grouped into passes of
    reading. One pass serves those with the same ``since`` whose low waters are near each other. The
    shortest pass comes first."""
    found: list[list[JoiningSpan]] = []
    for newcomer in sorted(
        (each for each in coming if each.since is not None), key=lambda each: each.behind(distance)
    ):
        for together in found:
            first = together[0]
            is_near = newcomer.behind(distance) - first.behind(distance) <= NEAR_MESSAGES
            if is_near and first.since == newcomer.since:
                together.append(newcomer)
                break
        else:
            found.append([newcomer])
    return found


def low_water_of(together: Iterable[JoiningSpan]) -> dict[str, int]:
    """Where the reading of one pass begins."""
    return lowest([each.low_water for each in together])


def stored_low_water(row: ChangefeedRow, progress: ProgressRow | None) -> dict[str, int]:
    """From where a span must be read: its progress row's positions, but not below the changefeed's
    (they are of an earlier server then)."""
    own = progress.source_positions if progress is not None else {}
    first = row.source_positions
    return {part: max(first.get(part, 0), own.get(part, 0)) for part in first.keys() | own.keys()}
