"""A Kafka source: its topics' partitions are the parts, and offsets the positions.

An identity is the topic's ID, which is another one where a topic of the same name was made again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_parameters import UPDATES_AS_INSERTS
from coordination.errors import TidelakeError, TopicMissing
from coordination.model import TableName
from streaming.protocols.clocks import beyond_ts
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import (
    Identities,
    Kept,
    Places,
    Reader,
    RecordedPlace,
    SourceChanged,
    SourceClock,
    SourceLost,
    SourceShape,
)
from streaming.source.kafka.broker import Broker, check_topic_ids
from streaming.source.kafka.deleted_messages import CLOCKS_MS, refuse_a_hole
from streaming.source.kafka.message_bytes import values_at
from streaming.source.kafka.open_transactions import OpenTransactions
from streaming.source.kafka.retention import kept, tell_of_compacted
from streaming.source.kafka.strays import past_strays, tell_of_strays
from streaming.source.kafka.topic_partition import TopicPartition
from streaming.source.outside.claimed_rows import tell_of_cut_rows, with_claimed_rows
from streaming.source.outside.reader import with_schemas
from streaming.source.outside.registry import RegistryClient
from streaming.source.positions import Positions, counted
from streaming.source.resolved.idle_parts import IdleParts
from streaming.source.resolved.limits import Limits, Marks, Stored
from streaming.source.resolved.pinned_limits import (
    AT_LEAST_ONCE_MEANS,
    PinnedLimits,
    limited,
)
from streaming.source.resolved.watermarks import Watermarks

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs


logger = logging.getLogger(__name__)


class KafkaSource:
    """See `contract.Source`."""

    server = "the broker"
    has_end = False

    def __init__(
        self, settings: KafkaSettings, storage_options: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._settings = settings
        self._topic = settings.topic
        self._storage_options = storage_options
        self._registry = None if settings.registry is None else RegistryClient(settings.registry)
        self._broker = Broker(settings)
        self.is_numbered = settings.is_numbered
        self._idle = IdleParts()
        self._transactions = OpenTransactions()

    def close(self) -> None:
        self._broker.close()

    def keep_to(self, identities: Identities) -> None: ...

    def shape(self) -> SourceShape:
        found = self._broker.shape()
        return SourceShape(
            {str(each): found.topic_ids[each.topic] for each in sorted(found.partitions)},
            frozenset(map(str, found.strays | self._of_tables(found.partitions))),
        )

    def _of_tables(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of tables' own topics: TiCDC sends watermarks there only while the table is there,
        and to the default topic always."""
        if self.is_numbered:
            return frozenset()
        return frozenset(each for each in partitions if each.topic != self._topic)

    def goes_on(
        self,
        place: RecordedPlace,
        shape: SourceShape,
        reached_ts: int,  # noqa: ARG002
    ) -> RecordedPlace:
        self.check_identities(place.identities, shape)
        return place

    def check_unchanged(self, start: SourceShape) -> None:
        now = self.shape()
        self.check_identities(start.identities, now)
        if now.parts != start.parts:
            added = ", ".join(map(str, sorted(_parsed(now.parts - start.parts))))
            raise SourceChanged(f"new partitions {added}: starting the stream again to read them")

    def check_identities(self, recorded: Identities, shape: SourceShape) -> None:
        read, now = topic_ids_of(recorded), topic_ids_of(shape.identities)
        check_topic_ids(read, now)
        gone = [each for each in read if each not in now and self._settings.expressions.take(each)]
        if gone:
            raise TopicMissing(
                f"topic {', '.join(gone)} was read and is gone: what it had and was not read yet "
                "cannot be had any more. If nothing of it is missed, say so by "
                f"topics=…,{','.join('!' + each for each in gone)}"
            )

    def check(self, positions: Positions, checkpoint_ts: int | None = None) -> None:
        self._broker.check_offsets(_offsets(positions), checkpoint_ts)

    def begin_at(self, shape: SourceShape, low_water: Positions) -> dict[str, int]:
        first = self.beginnings(shape.parts - low_water.keys())
        for partition, offset in sorted(_offsets(first).items()):
            if offset > 0:  # it was added while the changefeed ran; a new start checks more
                raise SourceLost(
                    f"topic {partition.topic} partition {partition.partition} is new and begins at "
                    f"offset {offset} already: the changefeed starts again, and looks whether "
                    "anything is missing"
                )
        return {part: (low_water if part in low_water else first)[part] for part in shape.parts}

    def refuse_a_hole(
        self, first: Positions, *, checkpoint_ts: int, reached_ts: int | None
    ) -> None:
        refuse_a_hole(
            _offsets(first), self._broker, checkpoint_ts=checkpoint_ts, reached_ts=reached_ts
        )

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        return _positions(self._broker.beginnings(_parsed(parts)))

    def ends(self, parts: Iterable[str]) -> dict[str, int]:
        at_ms = time.time() * 1e3
        ends = _positions(self._broker.ends(_parsed(parts)))
        self._idle.looked(ends, at_ms)
        return ends

    def limits(self, shape: SourceShape, recorded: Marks) -> Limits:
        if self.is_numbered:
            above_ts = beyond_ts(time.time() * 1e3)
            return PinnedLimits.of(shape.parts, recorded, above_ts=above_ts)
        return Watermarks(parts=shape.parts, recorded=recorded)

    def settled(
        self,
        shape: SourceShape,
        limits: Limits,
        position: Positions,
        stored: Stored,
    ) -> Limits:
        if isinstance(limits, PinnedLimits):
            known = limits.settled(stored)
            return known.idle_at(self._idle.steps(position, known)) if stored.is_ours else known
        assert isinstance(limits, Watermarks)
        return past_strays(self, shape, limits, position, self._topic)

    def reach(self, ends: Positions, stored: Stored) -> Positions:
        return limited(ends, stored) if self.is_numbered else ends

    def distance(self, begin: Positions, end: Positions) -> int:
        return counted(begin, end)

    def clock(self) -> SourceClock:
        """After deletions of messages, a start may lie ahead of the clocks by the time that
        `deleted_messages` advises."""
        try:
            newest_ms = self._broker.newest_ms()
            first = self._broker.beginnings(self._broker.shape().partitions)
        except TidelakeError:
            return SourceClock()
        is_cut = newest_ms is not None and any(offset > 0 for offset in first.values())
        return SourceClock(
            newest_ms=newest_ms, latest_ms=(newest_ms or 0) + CLOCKS_MS if is_cut else None
        )

    def kept(self, positions: Positions) -> Kept | None:
        return kept(self._broker, _offsets(positions))

    def raw(self, places: Places, identities: Identities) -> Iterator[pa.Table]:
        at = {TopicPartition.parse(part): offsets for part, offsets in places.items()}
        return values_at(self._settings, at, topic_ids_of(identities))

    def place(self, part: str, position: int) -> str:
        partition = TopicPartition.parse(part)
        return f"topic {partition.topic} partition {partition.partition} offset {position}"

    def unlogged(self) -> Sequence[TableName]:
        return ()

    def held_back(self, parts: Iterable[str]) -> str | None:
        wanted = _parsed(parts)
        written = self._broker.ends(wanted, committed=False)
        return self._transactions.look(self._broker.ends(wanted), written, time.monotonic())

    def tell_of(self, shape: SourceShape, begin: Positions) -> None:
        of_default = (p for p in shape.strays if TopicPartition.parse(p).topic == self._topic)
        tell_of_strays(self, replace(shape, strays=frozenset(of_default)), begin)
        if self._settings.expressions:
            found = topic_ids_of(shape.identities).keys() - {*self._settings.topics}
            logger.info(
                "topics that %s stands for: %s. New ones are read as they come",
                ",".join(self._settings.expressions.texts),
                ", ".join(sorted(found)) or "none yet",
            )
        tell_of_cut_rows(self._settings.large)
        if not self._settings.tells_updates:
            logger.warning("%s", UPDATES_AS_INSERTS)
        if self.is_numbered:
            tell_of_compacted(self._broker, topic_ids_of(shape.identities))
        decode = decoder_of(self._settings.protocol)
        means = (AT_LEAST_ONCE_MEANS, decode.numbered_loss)
        for told in means if self.is_numbered else (decode.loss,):
            if told:
                logger.warning("%s", told)

    def end_ts(self) -> None: ...

    def reader(self, jobs: Jobs, *, start_ts: int, name: str) -> Reader:
        from streaming.source.kafka.spark_reader import SparkReader

        decode = decoder_of(self._settings.protocol, start_ts=start_ts)
        whole = with_claimed_rows(decode, self._settings.large, self._storage_options)
        own_ms = decode.own_ms if self.is_numbered else None
        reader = SparkReader(
            jobs,
            self._settings,
            whole,
            name=name,
            own_ms=own_ms,
            are_ddls=decode.are_ddls,
        )
        return with_schemas(reader, decode, self._registry, is_numbered=self.is_numbered)


def topic_ids_of(identities: Identities) -> dict[str, str]:
    """By topic. All partitions of a topic have its ID."""
    return {TopicPartition.parse(part).topic: each for part, each in identities.items()}


def _parsed(parts: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition.parse(each) for each in parts]


def _offsets(positions: Positions) -> dict[TopicPartition, int]:
    return {TopicPartition.parse(part): at for part, at in positions.items()}


def _positions(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(partition): at for partition, at in offsets.items()}
