"""A recording as a source: its topics' partitions are the parts, and line numbers the positions.

It has an end. Nothing is above the least watermark of its parts that a reader may take as whole, so
a run without a target-ts goes to there (`end_ts`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import UPDATES_AS_INSERTS
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from streaming.protocols.contract import Kind
from streaming.protocols.decoders import ProtocolDecoder, decoder_of
from streaming.source.contract import (
    RAW,
    Identities,
    Kept,
    Places,
    Reader,
    RecordedPlace,
    SourceClock,
    SourceLost,
    SourceShape,
)
from streaming.source.outside.claimed_rows import tell_of_cut_rows, with_claimed_rows
from streaming.source.outside.reader import with_schemas
from streaming.source.outside.registry import RegistryClient
from streaming.source.positions import Positions
from streaming.source.recording.file import RecordingFile, recording_file
from streaming.source.recording.lines_task import Lines, NoBase64, chunks
from streaming.source.resolved.commit_clock import Pin
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.numbering import NumberedDecoder
from streaming.source.resolved.pinned_limits import AT_LEAST_ONCE_MEANS, PinnedLimits, limited
from streaming.source.resolved.watermarks import Watermarks

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs


logger = logging.getLogger(__name__)

SLICE_BYTES = 16 << 20  # read at a time where the driver reads


class RecordingSource:
    """See `contract.Source`."""

    server = "the recording"
    has_end = True

    def __init__(
        self, settings: RecordingSettings, storage_options: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._settings = settings
        self._storage_options = storage_options
        self.is_numbered = settings.is_numbered
        self._ended_of: dict[str, set[str]] = {}  # by the file's identity
        self._registry = None if settings.registry is None else RegistryClient(settings.registry)

    def close(self) -> None: ...

    def keep_to(self, identities: Identities) -> None: ...

    def shape(self) -> SourceShape:
        file = self._file()
        return SourceShape(dict.fromkeys(file.parts, file.identity), self._strays(file))

    def goes_on(
        self,
        place: RecordedPlace,
        shape: SourceShape,
        reached_ts: int,  # noqa: ARG002
    ) -> RecordedPlace:
        self.check_identities(place.identities, shape)
        return place

    def check_unchanged(self, start: SourceShape) -> None:
        self.check_identities(start.identities, self.shape())

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        for part, identity in recorded.items():
            if shape.identities.get(part, identity) != identity:
                raise SourceLost(
                    f"{self._settings.path} is not the recording that this changefeed has read: "
                    "give the earlier file, or give this one a changefeed-id and a warehouse of "
                    "its own"
                )

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:  # noqa: ARG002
        lines = self._file().lines
        for part, at in sorted(positions.items()):
            if at > lines:
                raise SourceLost(
                    f"{self._settings.path} has {lines} lines, and line {at + 1} of {part} is "
                    "needed: give the whole recording"
                )

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        return {part: low_water.get(part, 0) for part in shape.parts}

    def refuse_a_hole(
        self, first: Positions, *, checkpoint_ts: int, reached_ts: int | None
    ) -> None:
        """Nobody can tell which messages a recording lacks: it is played as it is."""

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, 0)

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, self._file().lines)

    def limits(self, shape: SourceShape, recorded: Marks) -> Limits:
        if self.is_numbered:
            return PinnedLimits.of(shape.parts, recorded)
        return Watermarks(parts=shape.parts, recorded=recorded)

    def settled(
        self,
        shape: SourceShape,
        limits: Limits,
        position: Positions,
        stored: Stored,
    ) -> Limits:
        """Parts without a watermark of their own get nothing more when they are read to the end."""
        lines = self._file().lines
        if isinstance(limits, PinnedLimits):
            known = limits.settled(stored)
            if not stored.is_ours or any(at < lines for at in position.values()):
                return known
            last_ts = Ts(max(each.resolved_ts for each in known.by_part.values()))
            return known.idle_at(dict.fromkeys(known.by_part, last_ts))
        assert isinstance(limits, Watermarks)
        read_to = {each: position[each] for each in shape.strays if position[each] >= lines}
        passed = limits.past(shape.strays, read_to)
        return limits if passed == limits else passed

    def reach(self, ends: Positions, stored: Stored) -> Positions:
        return limited(ends, stored) if self.is_numbered else ends

    def distance(self, begin: Positions, end: Positions) -> int:
        """All parts share the lines."""
        return max((at - begin.get(part, at) for part, at in end.items()), default=0)

    def clock(self) -> SourceClock:
        return SourceClock()

    def kept(self, positions: Positions) -> Kept | None:  # noqa: ARG002
        return None

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        file, with_keys = self._file(), decoder_of(self._settings.protocol).reads_keys
        self.check_identities(identities, self.shape())
        for part, wanted in sorted(places.items()):
            for at in sorted(set(wanted)):
                lines = _lines(file, at, at + 1)
                for chunk in chunks(file.plain, lines, {part: at}, with_keys=with_keys):
                    columns = [[part], chunk.positions, chunk.values.cast(pa.large_binary())]
                    yield pa.table(columns, schema=RAW)

    def place(self, part: str, position: int) -> str:
        return f"{self._settings.path} line {position + 1} ({part})"

    def unlogged(self) -> Sequence[TableName]:
        return ()

    def held_back(self, parts: Iterable[str]) -> str | None: ...

    def tell_of(self, shape: SourceShape, begin: Positions) -> None:  # noqa: ARG002
        tell_of_cut_rows(self._settings.large)
        if not self._settings.tells_updates:
            logger.warning("%s", UPDATES_AS_INSERTS)
        decode = decoder_of(self._settings.protocol)
        means = (AT_LEAST_ONCE_MEANS, decode.numbered_loss)
        for told in means if self.is_numbered else (decode.loss,):
            if told:
                logger.warning("%s", told)

    def end_ts(self) -> Ts:
        """The least watermark of its parts, up to which it can be played. Raises ConfigError where
        a part has none. Reads the whole recording."""
        file = self._file()
        decode = decoder_of(self._settings.protocol)
        if self.is_numbered:
            return self._last_number(file, decode)
        strays = self._strays(file)
        last = {part: 0 for part in file.parts if part not in strays}
        change_ts = 0
        try:
            for lines in _slices(file):
                begin = dict.fromkeys(file.parts, 0)
                for chunk in chunks(file.plain, lines, begin, with_keys=decode.reads_keys):
                    for block in decode(chunk, {}):
                        if block.kind is Kind.WATERMARK and block.part in last:
                            last[block.part] = max(last[block.part], block.max_ts or 0)
                        elif block.kind in (Kind.ROW, Kind.DDL):
                            change_ts = max(change_ts, block.max_ts or 0)
        except (NoBase64, pa.ArrowInvalid) as error:
            raise ConfigError(f"source-uri: {file.path} cannot be read: {error}") from error
        if without := sorted(part for part, ts in last.items() if not ts):
            raise ConfigError(
                f"source-uri: {file.path} has no watermark of {', '.join(without)}, so no row is "
                "known to be complete. Record for longer, or leave the part out"
            )
        end_ts = Ts(min(last.values()))
        if change_ts > end_ts:
            logger.warning(
                "%s has changes up to commit-ts %d, and the last watermark that all its partitions "
                "have is %d: changes above it may be incomplete, and are not applied",
                *(file.path, change_ts, end_ts),
            )
        return end_ts

    def _last_number(self, file: RecordingFile, decode: ProtocolDecoder) -> Ts:
        """All of it is whole. Raises ConfigError where it cannot be read."""
        assert decode.own_ms is not None
        begin, pins = dict.fromkeys(file.parts, 0), {part: (Pin(0, 0),) for part in file.parts}
        numbers = NumberedDecoder(
            decode, decode.own_ms, pins, begin, are_ddls=decode.are_ddls
        ).started()
        try:
            for lines in _slices(file):
                for chunk in chunks(file.plain, lines, begin, with_keys=decode.reads_keys):
                    numbers.number(chunk)
        except (NoBase64, pa.ArrowInvalid) as error:
            raise ConfigError(f"source-uri: {file.path} cannot be read: {error}") from error
        return Ts(max(numbers.after.values(), default=0))

    def reader(self, jobs: Jobs, *, start_ts: int, name: str) -> Reader:
        from streaming.source.recording.reader import RecordingReader  # Spark is up by then

        decode = decoder_of(self._settings.protocol, start_ts=start_ts)
        whole = with_claimed_rows(decode, self._settings.large, self._storage_options)
        own_ms = decode.own_ms if self.is_numbered else None
        reader = RecordingReader(
            jobs,
            self._settings.path,
            whole,
            name=name,
            own_ms=own_ms,
            are_ddls=decode.are_ddls,
        )
        return with_schemas(reader, decode, self._registry, is_numbered=self.is_numbered)

    def _strays(self, file: RecordingFile) -> frozenset[str]:
        """Partitions that TiCDC may not use: those beyond ``partition-num``."""
        used = self._settings.partition_num
        beyond = {p for p in file.parts if used and int(p.rpartition("/")[2]) >= used}
        return frozenset(beyond | self._ended(file, beyond))

    def _ended(self, file: RecordingFile, beyond: set[str]) -> set[str]:
        """Parts of topics that got no more watermarks while another topic did in all of its parts:
        TiCDC sends none to a topic whose tables are gone."""
        topics = {topic_of(part) for part in file.parts}
        if self.is_numbered or len(topics) < 2:
            return set()
        if file.identity not in self._ended_of:
            last = _last_ts(file, self._settings.protocol)
            of_topics = [
                [last[p] for p in last.keys() - beyond if topic_of(p) == t] for t in topics
            ]
            passed_ts = max(min(each, default=0) for each in of_topics)
            ended = {
                t for t, of in zip(topics, of_topics, strict=True) if max(of, default=0) < passed_ts
            }
            self._ended_of[file.identity] = {p for p in file.parts if topic_of(p) in ended}
        return self._ended_of[file.identity]

    def _file(self) -> RecordingFile:
        return recording_file(self._settings.path)


def topic_of(part: str) -> str:
    return part.rpartition("/")[0]


def _last_ts(file: RecordingFile, protocol: str) -> dict[str, int]:
    """The greatest watermark of each part. Reads the whole recording."""
    decode, last = decoder_of(protocol), dict.fromkeys(file.parts, 0)
    for lines in _slices(file):
        begin = dict.fromkeys(file.parts, 0)
        for chunk in chunks(file.plain, lines, begin, with_keys=decode.reads_keys):
            marks = [b.max_ts or 0 for b in decode(chunk, {}) if b.kind is Kind.WATERMARK]
            last[chunk.part] = max([last[chunk.part], *marks])
    return last


def _slices(file: RecordingFile) -> Iterator[Lines]:
    """All lines, about ``SLICE_BYTES`` at a time: a message may be large."""
    first = 0
    while first < file.lines:
        room = int(file.starts[first]) + SLICE_BYTES
        last = max(first + 1, int(np.searchsorted(file.starts, room, side="right")) - 1)
        yield _lines(file, first, last)
        first = last


def _lines(file: RecordingFile, first: int, last: int) -> Lines:
    return Lines(first, last, *np.take(file.starts, (first, last)).tolist())
