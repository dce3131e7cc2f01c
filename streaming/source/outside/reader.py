"""A reader of avro: messages of schemas that are not known yet are read again once the registry has
told them, and DELETEs without a commit-ts get theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol

from coordination.errors import ConfigError
from coordination.model import TableName
from streaming.protocols.contract import NO_TABLE, Block, ChunkState, Decoder, Kind, Wanted
from streaming.protocols.decoders import ProtocolDecoder
from streaming.protocols.rows.safe_names import safe_name
from streaming.source.contract import Reader, ReadOrder
from streaming.source.outside.delete_times import PartTimes, timed
from streaming.source.outside.registry import RegistryClient
from streaming.source.positions import Positions

_MOST: Final = 1 << 40  # messages: a reader has a limit of its own
_BACK: Final = 2_000  # messages, in which a watermark is looked for first


class UsingReader(Reader, Protocol):
    """A reader whose decoder may change."""

    def use(self, decode: Decoder) -> None: ...

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        """As `contract.Source`'s."""


class AvroReader:
    """See `contract.Reader`. A read is whole or raises: nothing of it counts before all its schemas
    are known. Where a reading begins, the messages before it are looked at too, back to a
    watermark: a DELETE there may be above it."""

    def __init__(
        self,
        reader: UsingReader,
        decode: ProtocolDecoder,
        registry: RegistryClient,
        *,
        is_numbered: bool = False,
    ) -> None:
        """``is_numbered``: the reader gives all messages their commit-ts."""
        self._reader = reader
        self._is_numbered = is_numbered
        self._decode = decode
        self._registry = registry
        self._parts: dict[str, PartTimes] = {}
        self._topics: dict[TableName, str] = {}  # of each table whose rows were read
        reader.use(replace(decode, schemas=registry.known))

    def close(self) -> None:
        self._reader.close()

    def cancel(self) -> None:
        self._reader.cancel()

    def read(self, order: ReadOrder) -> list[Block]:
        there = order.there
        unknown = {part: at for part, at in there.items() if not self._is_known(part, at)}
        if unknown and not self._is_numbered:
            self._look_back(unknown, order)
        blocks = self._whole(order)
        self._check_topics(blocks, order.wanted)
        marks = {} if self._is_numbered else order.limits.to_record()
        return list(timed(blocks, self._parts, order.wanted, marks))

    def _check_topics(self, blocks: Iterable[Block], wanted: Wanted) -> None:
        """TiCDC writes `a-b` and `a_b` as one name. Their topics are two. A DDL is in its table's
        topic, a RENAME in that of the old name, and others may be in the default topic."""
        for block in blocks:
            name = block.name if block.origin == NO_TABLE else block.origin
            topic = block.part.rpartition("/")[0]
            known = self._topics.get(name, topic)
            is_other = topic != known
            if block.kind is Kind.ROW and block.name in wanted:
                self._topics[name] = known
            elif block.kind is Kind.DDL and is_other and safe_name(topic) == safe_name(known):
                is_other = {*block.table()["ddl_type"].to_pylist()} != {"RENAME"}
            else:
                continue
            if is_other:
                raise ConfigError(
                    f"the topics {known} and {topic} both have {name}: in avro two tables "
                    "whose names differ in signs that are no letter, digit or _ have one name. "
                    "List one of the two topics alone in the changefeed's topics"
                )

    def _is_known(self, part: str, at: int) -> bool:
        return part in self._parts and self._parts[part].position == at

    def _look_back(self, unknown: Positions, order: ReadOrder) -> None:
        first, left, size = self._reader.beginnings(unknown), dict(unknown), _BACK
        while left:
            begin = {part: max(first[part], at - size) for part, at in left.items()}
            found, at = dict[str, PartTimes](), dict(begin)
            while any(at[part] < end for part, end in left.items()):
                blocks = self._whole(
                    replace(order, begin=at, ends=left, wanted={}, messages=_MOST, first_messages=0)
                )
                list(timed(blocks, found, {}, {}))
                at |= {b.part: b.last for b in blocks if b.kind is Kind.DONE}
            for part, end in [*left.items()]:
                times = found.get(part, PartTimes())
                if times.watermark or begin[part] == first[part]:
                    self._parts[part] = replace(times, position=end)
                    del left[part]
            size *= 8

    def _whole(self, order: ReadOrder) -> list[Block]:
        """The blocks of a read all of whose schemas are known."""
        while True:
            blocks = self._reader.read(order)
            lacks = {n for b in blocks if b.kind is Kind.STATE for n in ChunkState.of(b).lacks}
            if not lacks:
                return blocks
            self._reader.use(replace(self._decode, schemas=self._registry.schemas(lacks)))


def with_schemas(
    reader: UsingReader,
    decode: ProtocolDecoder,
    registry: RegistryClient | None,
    *,
    is_numbered: bool = False,
) -> Reader:
    """The reader for a protocol that may need schemas."""
    if registry is None or not decode.needs_schemas:
        return reader
    return AvroReader(reader, decode, registry, is_numbered=is_numbered)
