"""Ranges are cut and packed so that nothing is lost, doubled or out of proportion."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from streaming.source.kafka.offset_ranges import OffsetRange, cut, joined, pack
from streaming.source.kafka.topic_partition import TopicPartition


def partition(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


IDS = {"t": "id-of-t", "u": "id-of-u"}


def test_all_there_is_within_the_budget():
    found = cut(
        {partition(0): 5, partition(1): 7}, {partition(0): 9, partition(1): 7}, IDS, messages=9
    )
    assert found == [OffsetRange("t", "id-of-t", 0, 5, 9)]


def test_a_backlog_is_cut_so_that_every_partition_gives_its_share():
    ends = {partition(0): 1_000_000, partition(1): 500_000, partition(2): 3}
    found = cut(dict.fromkeys(ends, 0), ends, IDS, messages=150_000)
    assert [each.messages for each in found] == [99_999, 49_999, 1]


@pytest.mark.parametrize(("there", "read"), [(100_001, 50_000), (100_000, 100_000), (9, 9)])
def test_a_first_read_of_a_large_backlog_is_small(there: int, read: int):
    (found,) = cut(
        {partition(0): 0}, {partition(0): there}, IDS, messages=1_000_000, first_messages=50_000
    )
    assert found.messages == read


def test_a_partition_whose_end_nobody_knows_is_left_out():
    assert cut({partition(0): 4}, {}, IDS, messages=10) == []


@pytest.mark.seeds(80)
def test_packing_loses_and_doubles_nothing(seed: int):
    rng = random.Random(seed)
    sizes = [
        rng.choice([0, 1, 100, 9_999, 10_000, 30_000, 1_000_000]) for _ in range(rng.randint(0, 30))
    ]
    ranges = []
    for number, size in enumerate(sizes):
        begin = rng.randint(0, 1_000)
        ranges.append(OffsetRange(rng.choice("tu"), "id", number, begin, begin + size))
    lists = rng.randint(1, 9)
    packed = pack(ranges, lists)
    assert len(packed) <= lists
    assert all(packed)
    pieces: dict[TopicPartition, list[OffsetRange]] = defaultdict(list)
    for work in packed:
        assert len({each.topic_partition for each in work}) == len(work), "twice in one list"
        for each in work:
            pieces[each.topic_partition].append(each)
    for whole in ranges:
        at = whole.begin
        for piece in pieces[whole.topic_partition]:  # in order of lists: of offsets too
            assert piece.begin == at
            at = piece.end
        assert at == whole.end
        small = [piece.messages for piece in pieces[whole.topic_partition] if piece != whole]
        assert all(each >= 10_000 for each in small)
    total, loads = sum(sizes), [sum(each.messages for each in work) for work in packed]
    if total:
        assert max(loads) <= 2 * total / lists + 20_000, "cores would idle"


def test_one_large_partition_is_work_for_every_core():
    packed = pack([OffsetRange("t", "id", 0, 7, 100_007)], 4)
    assert [[(each.begin, each.end) for each in work] for work in packed] == [
        [(7, 25_007)], [(25_007, 50_007)], [(50_007, 75_007)], [(75_007, 100_007)],
    ]  # fmt: skip


def test_thousands_of_topics_are_few_tasks():
    packed = pack([OffsetRange(f"t{each}", "id", 0, 0, 10) for each in range(3_000)], 2)
    assert [len(work) for work in packed] == [1_500, 1_500]


def test_pieces_count_up_to_the_first_hole():
    assert joined([(5, 10), (10, 20)], 5) == 20
    assert joined([(5, 9), (10, 20)], 5) == 9
    assert joined([], 5) == 5
