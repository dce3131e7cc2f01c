"""Where a range ends, and how messages become chunks."""

from __future__ import annotations

import pytest

from streaming.source.kafka import read_ranges as subject
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import Cursor


def cursor(begin: int = 0, end: int = 10) -> Cursor:
    return Cursor(OffsetRange("t", "id", 3, begin, end), begin, begin)


def test_messages_up_to_the_last_offset():
    one = cursor()
    one.take([0, 1, 5], [b"a", None, b"c"])
    assert (one.is_read, one.left) == (False, 4)
    one.take([9], [b"d"])
    assert (one.is_read, one.left) == (True, 0)
    (chunk,) = one.chunks()
    assert chunk.positions.to_pylist() == [0, 1, 5, 9]
    assert chunk.values.to_pylist() == [b"a", None, b"c", b"d"]
    done = one.done()
    assert (done.first, done.last, done.rows, done.message_bytes) == (0, 10, 4, 3)


def test_a_message_at_or_behind_the_end_ends_it_and_is_dropped():
    one = cursor()
    one.take([4, 12, 13], [b"a", b"b", b"c"])
    (chunk,) = one.chunks()
    assert chunk.positions.to_pylist() == [4]
    assert (one.is_read, one.passed, one.at) == (True, True, 10)


def test_the_end_of_the_partition_ends_it_only_behind_its_end():
    one = cursor()
    assert one.reach(9)
    assert not one.is_read
    assert not one.reach(9), "that is no progress"
    assert one.reach(14)
    assert one.is_read
    assert list(one.chunks()) == []
    assert (one.at, one.position) == (10, 14)


def test_chunks_hold_as_much_as_they_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "CHUNK_BYTES", 10)
    monkeypatch.setattr(subject, "CHUNK_MESSAGES", 3)
    sizes = [4, 6, 1, 11, 0, 0, 0, 0, 10]
    one = cursor()
    one.take(list(range(9)), [b"x" * each for each in sizes])
    found = []
    for chunk in one.chunks():
        found.append([len(each) for each in chunk.values.to_pylist()])
        assert one.at == chunk.positions[-1].as_py() + 1, "what a budget leaves begins there"
    assert found == [[4, 6], [1], [11], [0, 0, 0], [0, 10]]
    assert one.at == 9, "not read to its end yet"


def test_what_comes_twice_is_a_fault():
    one = cursor(begin=5)
    with pytest.raises(AssertionError, match="4 after 5"):
        one.take([4], [b""])
