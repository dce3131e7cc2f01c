"""A read of avro is whole: it is read again with the schemas that it lacked, and DELETEs without a
commit-ts get one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from conf.sources.schema_registry import SchemaRegistry as Settings
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import (
    Block,
    Decoder,
    Kind,
    Messages,
    Wanted,
    WantedTable,
)
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import ReadOrder, SourceAway
from streaming.source.outside.reader import AvroReader, with_schemas
from streaming.source.outside.registry import RegistryClient
from streaming.source.resolved.watermarks import Watermarks
from tests.services.schema_registry import SchemaRegistry, serving
from tests.streaming.protocols.avro.reading import KEY, SCHEMAS, TS, ddl, deleted, row, watermark

PART = "shop_t/0"
NAME = TableName("shop", "t")
WANTED: Wanted = {NAME: WantedTable(above_ts=Ts(TS - 500), key=("id",))}


class LogReader:
    """Reads a log in memory, ``size`` messages in a chunk."""

    def __init__(self, log: Sequence[bytes], size: int) -> None:
        self.log = log
        self.size = size
        self.part = PART
        self.reads = 0
        self.decode: Decoder = decoder_of("avro")

    def use(self, decode: Decoder) -> None:
        self.decode = decode

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, 0)

    def read(self, order: ReadOrder) -> list[Block]:
        self.reads += 1
        return list(self._blocks(order.begin[PART], order.ends[PART], order.wanted))

    def _blocks(self, begin: int, end: int, wanted: Wanted) -> Iterator[Block]:
        for at in range(begin, end, self.size):
            values = self.log[at : min(at + self.size, end)]
            positions = pa.array(range(at, at + len(values)), pa.int64())
            chunk = Messages(
                part=self.part, positions=positions, values=pa.array(values, pa.binary())
            )
            yield from self.decode(chunk, wanted)
        yield Block(kind=Kind.DONE, part=PART, first=begin, last=end)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving(SchemaRegistry({n: text for n, text in SCHEMAS.items() if text})) as made:
        yield made


def reading(log: Sequence[bytes], size: int, registry: SchemaRegistry) -> tuple[AvroReader, Any]:
    inner = LogReader(log, size)
    client = RegistryClient(Settings(url=registry.url))
    made = with_schemas(inner, decoder_of("avro"), client)
    assert isinstance(made, AvroReader)
    return made, inner


def times(
    reader: AvroReader,
    begin: int,
    end: int,
    wanted: Wanted = WANTED,
    limits: Watermarks = Watermarks(parts=frozenset([PART])),  # noqa: B008
) -> dict[int, int]:
    order = ReadOrder(
        begin={PART: begin},
        ends={PART: end},
        wanted=wanted,
        identities={},
        limits=limits,
        messages=100,
    )
    blocks = reader.read(order)
    assert {block.kind for block in blocks} <= {Kind.ROW, Kind.DDL, Kind.WATERMARK, Kind.DONE}
    found: dict[int, int] = {}
    for block in blocks:
        if block.kind is Kind.ROW and block.body is not None:
            for each in block.table().to_pylist():
                assert block.min_ts is not None
                assert block.max_ts is not None
                assert block.min_ts <= each["commit_ts"] <= block.max_ts
                found[each["position"]] = each["commit_ts"]
    return found


LOG = [
    row(1, ts=TS),
    watermark(TS + 10),
    deleted(1),
    row(2, ts=TS + 100),
    deleted(2),
    deleted(3),
    watermark(TS + 200),
    deleted(4),
]
RIGHT = {0: TS, 2: TS + 11, 3: TS + 100, 4: TS + 101, 7: TS + 201}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_times_do_not_depend_on_chunks(size: int, registry: SchemaRegistry) -> None:
    reader, inner = reading(LOG, size, registry)
    found = times(reader, 0, len(LOG))
    assert found.items() >= RIGHT.items()
    assert TS + 101 <= found[5] <= TS + 102
    assert inner.reads == 2  # the schemas were asked for in between
    assert registry.asked == [*SCHEMAS]


@pytest.mark.parametrize("cut", range(1, len(LOG)))
def test_times_do_not_depend_on_reads(cut: int, registry: SchemaRegistry) -> None:
    reader, _ = reading(LOG, 2, registry)
    found = {**times(reader, 0, cut), **times(reader, cut, len(LOG))}
    assert found.items() >= RIGHT.items()


@pytest.mark.parametrize("begin", range(len(LOG)))
@pytest.mark.parametrize("back", [1, 2, 100])
def test_times_do_not_depend_on_where_a_reading_begins(
    begin: int, back: int, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.source.outside.reader._BACK", back)
    reader, _ = reading(LOG, 2, registry)
    right = {at: ts for at, ts in RIGHT.items() if at >= begin}
    if back == 1 and begin in (4, 7):
        right.pop(begin)  # the row before it was looked for no further than its watermark
    assert times(reader, begin, len(LOG)).items() >= right.items()


def test_a_delete_that_nothing_tells_the_time_of_is_above_the_checkpoint(
    registry: SchemaRegistry,
) -> None:
    reader, _ = reading([deleted(1), deleted(2)], 100, registry)
    found = times(reader, 0, 2)
    assert all(TS - 500 < ts <= TS - 498 for ts in found.values())


@pytest.mark.parametrize("cut", [1, 3])
def test_what_ticdc_sends_again_is_before_the_rows_behind_it(
    cut: int, registry: SchemaRegistry
) -> None:
    log = [row(9, ts=TS + 300), deleted(1), row(1, "new", ts=TS + 120), deleted(1)]
    reader, _ = reading(log, 100, registry)
    found = {**times(reader, 0, cut), **times(reader, cut, len(log))}
    assert found == {0: TS + 300, 1: TS + 120, 2: TS + 120, 3: TS + 121}


def test_a_delete_is_above_what_its_part_was_resolved_to(registry: SchemaRegistry) -> None:
    """The default topic's watermarks count for the topic of a table that is read to its end."""
    default = "default/0"
    log = [row(1, ts=TS + 100), watermark(TS + 150), deleted(1), watermark(TS + 90), deleted(1)]
    limits = Watermarks(parts=frozenset([PART, default]))
    limits = limits.advance({default: RecordedWatermark(ts=TS + 250, position=9)}, {})
    limits = limits.past({PART}, {PART: 2})
    assert limits.global_ts == TS + 250
    reader, _ = reading(log, 1, registry)
    assert times(reader, 0, 2, limits=limits) == {0: TS + 100}
    assert times(reader, 2, 3, limits=limits) == {2: TS + 251}
    reader, _ = reading(log, 1, registry)
    found = times(reader, 0, 5, limits=Watermarks(parts=limits.parts, recorded=limits.to_record()))
    assert found == {0: TS + 100, 2: TS + 251, 4: TS + 252}
    reader, _ = reading(log, 1, registry)
    assert times(reader, 4, 5, limits=limits) == {4: TS + 101}


def test_two_tables_of_one_name_are_refused(registry: SchemaRegistry) -> None:
    reader, inner = reading([row(1)], 100, registry)
    assert times(reader, 0, 1) == {0: TS}
    inner.part = "shop_t-/0"
    with pytest.raises(ConfigError, match="topics shop_t and shop_t- both have shop"):
        times(reader, 0, 1)
    assert times(reader, 0, 1, {}) == {}


@pytest.mark.parametrize(
    ("topic", "kind", "is_refused"),
    [("shop-t", 3, True), ("shop_t", 3, False), ("wire", 3, False), ("shop-t", 14, False)],
)
def test_so_are_ddls_of_the_other_table(
    topic: str, kind: int, is_refused: bool, registry: SchemaRegistry
) -> None:
    """A RENAME is in the topic of the old name, and DDLs may be in the default topic."""
    drop = ddl(TS + 1, "DROP TABLE `shop`.`t`", kind=kind)
    reader, inner = reading([row(1), drop], 100, registry)
    assert times(reader, 0, 1) == {0: TS}
    inner.part = f"{topic}/0"
    if is_refused:
        with pytest.raises(ConfigError, match=r"both have shop\.t"):
            times(reader, 1, 2)
    else:
        times(reader, 1, 2)


def test_nothing_of_a_read_counts_without_its_schemas(registry: SchemaRegistry) -> None:
    text = registry.schemas.pop(KEY)
    reader, _ = reading(LOG, 100, registry)
    with pytest.raises(SourceAway):
        times(reader, 0, len(LOG))
    registry.schemas[KEY] = text
    assert times(reader, 0, len(LOG)).items() >= RIGHT.items()


def test_tables_that_are_not_wanted_are_counted(registry: SchemaRegistry) -> None:
    reader, _ = reading(LOG, 2, registry)
    assert times(reader, 0, len(LOG), {}) == {}
