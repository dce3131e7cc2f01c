"""What a source of changes must do. Kafka, a recording and a fake pass one suite
(`tests/contracts/source_contract.py`).

    open ─► shape: parts, each with an identity ─► begin_at(low water) ─► check
                                                        │
    ends ─► reader.read(begin, ends, wanted) ─► blocks ─┴─► limits.advance(blocks, positions) ─► W

A *part* is read in order, and its *identity* says what its positions belong to (a topic's ID):
where the identity differs, recorded positions mean nothing. A watermark's token may tell more: with
it the source goes on under another identity (`Source.goes_on`). Only a source knows what a position
means. The rest of the program compares positions of one part and stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from coordination.errors import SOURCE_MOVED, TidelakeError, TryAgain
from coordination.model import TableName, Ts
from streaming.protocols.contract import Block, Wanted
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Limits, Marks, Stored

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs

Identities = Mapping[str, str]  # part -> identity
NO_IDENTITIES: Final[Identities] = MappingProxyType({})
Places = Mapping[str, Sequence[int]]  # part -> positions of single messages
RAW: Final = pa.schema(
    [
        ("part", pa.string()),
        ("position", pa.int64()),
        ("value", pa.large_binary()),  # null: a message without a value
    ]
)


class SourceChanged(TidelakeError):
    """The source has new parts that we read: the stream must start again with the new set."""


class SourceMoved(TidelakeError):
    """The place is another server now, or the server that was read does not come back: the
    changefeed begins again, and looks where it can go on."""

    code = SOURCE_MOVED


class SourceAway(TryAgain):
    """The source does not answer. At a start that is an error; later it is tried again for a
    while."""


class SourceLost(TidelakeError):
    """The source no longer has messages that we still need. That is never skipped silently. The
    code is TiCDC's for a history that TiDB's garbage collection has removed."""

    code = "CDC:ErrGCTTLExceeded"


@dataclass(frozen=True, slots=True)
class SourceShape:
    """The parts of a source and their identities, as they are at a stream's start. ``strays``:
    parts that get no watermark of their own (`Source.settled`)."""

    identities: Identities
    strays: frozenset[str] = frozenset()

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(self.identities)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPlace:
    """Where a changefeed is in its source, as it was stored: low water, identities, watermarks."""

    positions: Positions
    identities: Identities
    marks: Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceClock:
    """The source's knowledge of the time. ``newest_ms``: of its newest message (ms since 1970),
    None if there is none or it is not known. ``latest_ms``: how late a start may be that the source
    itself has advised, None if it advises nothing."""

    newest_ms: float | None = None
    latest_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How long the source keeps the oldest needed message; ``left_s``: None: for ever, or not
    known. ``concern``: a sentence if that time is short, or may be, with the way out."""

    left_s: float | None
    concern: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """One read from ``begin`` towards ``ends``, of about ``messages`` at most.

    ``limits``: as they are at ``begin``, or later ones of the same stream. ``first_messages``: the
    limit of a stream's first read if there is much to read, so that the first commit comes soon."""

    begin: Positions
    ends: Positions
    wanted: Wanted
    identities: Identities
    limits: Limits
    messages: int
    first_messages: int = 0

    @property
    def there(self) -> dict[str, int]:
        """The parts in which there is something to read, and from where on."""
        return {part: at for part, at in self.begin.items() if at < self.ends.get(part, at)}


class Reader(Protocol):
    """Reads a source with the executors. For one thread, except for ``cancel``."""

    def read(self, order: ReadOrder) -> list[Block]:
        """The blocks of a part come by rising position, and end with a DONE block that says how far
        it was read. A part that is not read has none. Raises SourceLost and other TidelakeErrors;
        or SourceAway and other TryAgains, after which the read may be tried again. Blocks.
        """

    def cancel(self) -> None:
        """Called from another thread: ends a ``read`` that is under way, by a TryAgain."""

    def close(self) -> None: ...


class Source(Protocol):
    """One changefeed's source, for one thread. All but ``place``, ``distance`` and ``limits`` may
    block, and raise SourceAway."""

    server: str  # what a sentence calls it, as in "{server} does not answer"
    has_end: bool  # it is read to its end, and gets nothing more
    is_numbered: bool  # readers give its changes their commit-ts, so all must keep to the owner's

    def close(self) -> None:
        """Close the connection; the next request opens it again."""

    def keep_to(self, identities: Identities) -> None:
        """These identities were recorded. Where the source is one of several servers, only the one
        that has them is asked from now on; but for ``shape``, which takes another one if that does
        not answer. Does not ask."""

    def shape(self) -> SourceShape:
        """The shape that it has now. Raises TopicMissing where it is not there."""

    def goes_on(self, place: RecordedPlace, shape: SourceShape, reached_ts: int) -> RecordedPlace:
        """The place in the source as it is now: the same, or with other identities the place that
        the watermarks' tokens tell, at which the same messages lie before. All of its positions are
        above those of ``place``. ``reached_ts``: no table has changes above it.

        Raises SourceLost where there is no such place, and SourceAway where there may be one
        later."""

    def check_unchanged(self, start: SourceShape) -> None:
        """Raise SourceLost or SourceMoved if a part has another identity than at the start,
        SourceChanged if there are more parts, and the errors of ``shape``."""

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        """Raise SourceLost where a part has another identity than was recorded. Does not ask."""

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:
        """Raise SourceLost unless the source has everything from these positions on.
        ``checkpoint_ts``: the changefeed's, for the advice in the message."""

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        """The position from which each part is read: its low water, or of a part without one its
        beginning. Raises SourceLost where that has lost messages already."""

    def refuse_a_hole(
        self, first: Positions, *, checkpoint_ts: int, reached_ts: int | None
    ) -> None:
        """Raise SourceLost unless it is certain that these parts have, from the positions ``first``
        on, all changes above the checkpoint. ``reached_ts``: how far the tables are, for the advice
        in the message; None if there are none yet."""

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        """The first position that the source still has, by part."""

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        """The position after the last message, by part."""

    def limits(self, shape: SourceShape, recorded: Marks) -> Limits:
        """A new object that turns blocks and positions into W (rule 2), before anything is read.
        ``recorded``: watermarks of an earlier reading, which count when reading has passed them."""

    def settled(
        self, shape: SourceShape, limits: Limits, position: Positions, stored: Stored
    ) -> Limits:
        """``limits``, after everything before ``position`` has been read, with what only the source
        can tell besides: the same object where it can tell nothing."""

    def reach(self, ends: Positions, stored: Stored) -> Positions:
        """Up to where may be read. If `is_numbered`, others than the owner read no further than the
        owner's stored limits."""

    def distance(self, begin: Positions, end: Positions) -> int:
        """How many messages lie between, about. Does not ask."""

    def clock(self) -> SourceClock: ...

    def kept(self, positions: Positions) -> Kept | None:
        """How long the messages from these positions on are kept; None: for ever, or not known."""

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        """The messages at these places once more, as tables of schema ``RAW``, by part and
        position; a message that is gone has no row. Raises SourceLost if a part has another
        identity."""

    def place(self, part: str, position: int) -> str:
        """The name of a message's place in a sentence. Does not ask."""

    def unlogged(self) -> Sequence[TableName]:
        """Upstream tables of which some changes are not in it, by a rule of theirs."""

    def held_back(self, parts: Iterable[str]) -> str | None:
        """What has lain in these parts for long and is given to nobody yet, in a sentence with the
        way out; None: nothing."""

    def tell_of(self, shape: SourceShape, begin: Positions) -> None:
        """Logs facts about the shape when a stream begins."""

    def end_ts(self) -> Ts | None:
        """The ts up to which a source with an end can be read; None for a source without an end."""

    def reader(self, jobs: Jobs, *, start_ts: int, name: str) -> Reader:
        """``start_ts``: rows and DDLs at or below are not needed; ``name`` is shown in Spark's
        UI."""
