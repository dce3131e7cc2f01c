"""What every source of changes must do: Kafka, a recording and the fake pass it.

A subclass makes sources. Messages are no canal-json, so that each comes as one BAD row with its
bytes: what was read of which place is then known without a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind
from streaming.source.contract import RAW, Reader, ReadOrder, RecordedPlace, Source, SourceLost
from streaming.source.positions import Positions
from streaming.source.resolved.limits import Stored

Logs = Mapping[str, Sequence[bytes]]  # partition's number -> its messages
LOGS: Logs = {
    "0": [b"a%d" % at for at in range(7)],
    "1": [b"b%d" % at for at in range(3)],
    "2": [],
}


def read(
    reader: Reader, source: Source, begin: Positions, *, messages: int = 1_000, first: int = 0
) -> list[Block]:
    shape = source.shape()
    ends = source.ends(begin)
    return reader.read(
        ReadOrder(
            begin=begin,
            ends=ends,
            wanted={},
            identities=shape.identities,
            limits=source.limits(shape, {}).advance({}, begin),
            messages=messages,
            first_messages=first,
        )
    )


def values(blocks: Sequence[Block]) -> dict[str, list[bytes]]:
    """By partition, the messages' bytes in the order in which they came; positions must rise."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for block in blocks:
        if block.kind is Kind.BAD:
            rows = found.setdefault(block.part.rpartition("/")[2], [])
            rows += [(each["position"], each["value"]) for each in block.table().to_pylist()]
    for rows in found.values():
        assert [at for at, _ in rows] == sorted({at for at, _ in rows})
    return {number: [value for _, value in rows] for number, rows in found.items()}


def reached(blocks: Sequence[Block]) -> dict[str, int]:
    return {block.part: block.last for block in blocks if block.kind is Kind.DONE}


class SourceContract(ABC):
    """``make`` gives a source that holds these messages (a partition may be missing if it is
    empty), and a reader of it."""

    @abstractmethod
    def make(self, logs: Logs) -> tuple[Source, Reader]: ...

    @abstractmethod
    def made_again(self, logs: Logs) -> Source:
        """The source of the last `make`, after its place was emptied and filled anew."""

    def test_every_part_has_an_identity_and_nothing_has_changed(self) -> None:
        source, _ = self.make(LOGS)
        shape = source.shape()
        assert {part.rpartition("/")[2] for part in shape.parts} >= {"0", "1"}
        assert all(shape.identities.values())
        assert source.shape() == shape
        source.check_unchanged(shape)
        source.check_identities(shape.identities, shape)
        place = RecordedPlace(positions={}, identities=shape.identities, marks={})
        source.keep_to(shape.identities)
        assert source.goes_on(place, shape, 0) is place

    def test_all_is_read_once_from_beginnings_to_ends(self) -> None:
        source, reader = self.make(LOGS)
        begin = source.begin_at(source.shape(), {})
        assert begin == source.beginnings(begin)
        blocks = read(reader, source, begin)
        assert values(blocks) == {number: list(log) for number, log in LOGS.items() if log}
        assert {**begin, **reached(blocks)} == source.ends(begin)
        done = {b.part.rpartition("/")[2]: b.rows for b in blocks if b.kind is Kind.DONE}
        assert {number: rows for number, rows in done.items() if rows} == {"0": 7, "1": 3}
        assert read(reader, source, source.ends(begin)) == []

    def test_a_read_is_the_same_again(self) -> None:
        source, reader = self.make(LOGS)
        begin = source.begin_at(source.shape(), {})
        once, again = read(reader, source, begin), read(reader, source, begin)
        assert (values(once), reached(once)) == (values(again), reached(again))

    @pytest.mark.parametrize("messages", [1, 4])
    def test_small_reads_come_to_the_same(self, messages: int) -> None:
        source, reader = self.make(LOGS)
        at = source.begin_at(source.shape(), {})
        found: dict[str, list[bytes]] = {}
        for _ in range(100):
            blocks = read(reader, source, at, messages=messages)
            for number, some in values(blocks).items():
                found.setdefault(number, []).extend(some)
            if not blocks:
                break
            assert source.distance(at, {**at, **reached(blocks)}) > 0
            at = {**at, **reached(blocks)}
        assert found == {number: list(log) for number, log in LOGS.items() if log}
        assert at == source.ends(at)

    def test_a_first_read_is_small_where_much_lies_there(self) -> None:
        source, reader = self.make({"0": [b"%d" % at for at in range(100)], "1": []})
        begin = source.begin_at(source.shape(), {})
        count = sum(map(len, values(read(reader, source, begin, first=10)).values()))
        assert 0 < count <= 20

    def test_a_low_water_is_where_reading_goes_on(self) -> None:
        source, reader = self.make(LOGS)
        start = source.begin_at(source.shape(), {})
        first = read(reader, source, start, messages=4)
        low_water = {**start, **reached(first)}
        begin = source.begin_at(source.shape(), low_water)
        assert begin == low_water
        source.check(begin)
        both = [values(first), values(read(reader, source, begin))]
        assert {
            number: [each for found in both for each in found.get(number, [])] for number in "01"
        } == {number: list(LOGS[number]) for number in "01"}

    def test_what_is_not_there_any_more_is_refused(self) -> None:
        source, _ = self.make(LOGS)
        beyond = {part: at + 5 for part, at in source.ends(source.shape().parts).items()}
        with pytest.raises(SourceLost):
            source.check(beyond, 47)

    def test_one_that_was_made_again_is_another(self) -> None:
        source, _ = self.make(LOGS)
        before = source.shape()
        source = self.made_again({"0": [b"x"] * 9, "1": [b"y"] * 9})
        now = source.shape()
        with pytest.raises(SourceLost):
            source.check_identities(before.identities, now)
        with pytest.raises(SourceLost):
            source.check_unchanged(before)
        place = RecordedPlace(positions={}, identities=before.identities, marks={})
        with pytest.raises(SourceLost):
            source.goes_on(place, now, 0)
        places = {part: [0] for part in before.parts}
        with pytest.raises(SourceLost):
            list(source.raw(places, before.identities))

    def test_single_messages_come_again_with_their_bytes(self) -> None:
        source, reader = self.make(LOGS)
        shape = source.shape()
        blocks = read(reader, source, source.begin_at(shape, {}))
        told = {
            (block.part, row["position"]): row["value"]
            for block in blocks
            if block.kind is Kind.BAD
            for row in block.table().to_pylist()
        }
        places: dict[str, list[int]] = {}
        for part, at in told:
            places.setdefault(part, []).append(at)
        tables = list(source.raw(places, shape.identities))
        assert all(table.schema == RAW for table in tables)
        rows: list[dict[str, Any]] = [row for table in tables for row in table.to_pylist()]
        assert {(row["part"], row["position"]): row["value"] for row in rows} == told
        (part, at), *_ = told
        assert source.place(part, at)

    def test_its_limits_are_w_and_rise(self) -> None:
        source, _ = self.make(LOGS)
        shape = source.shape()
        limits = source.limits(shape, {})
        assert limits.global_ts == 0
        marks = {part: RecordedWatermark(ts=50, position=1) for part in shape.parts}
        assert limits.advance(marks, {}).global_ts == 50
        assert source.settled(shape, limits, source.ends(shape.parts), Stored({}, True)) is limits
        recorded = source.limits(shape, marks)
        assert recorded.global_ts == 0
        assert recorded.advance({}, dict.fromkeys(shape.parts, 2)).global_ts == 50

    def test_nothing_lies_between_a_place_and_itself(self) -> None:
        source, _ = self.make(LOGS)
        ends = source.ends(source.shape().parts)
        assert source.distance(ends, ends) == 0
        assert source.distance(source.beginnings(ends), ends) > 0
        source.clock()
        source.kept(ends)
        source.close()
        assert source.shape().parts, "it opens again"
