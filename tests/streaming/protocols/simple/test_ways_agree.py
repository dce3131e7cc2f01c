"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost."""

from __future__ import annotations

import pytest

from streaming.protocols.simple import decoder
from tests.streaming.protocols.canal_json.reading import EveryTable, accounted, plain
from tests.streaming.protocols.simple.reading import RandomRows, one_by_one, read

SIZE = 200


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "FEW", 2)


def check(values: list[bytes | None], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = EveryTable((None, ("id",), ())[number % 3])
    blocks = read(values, tables)
    assert plain(blocks) == plain(one_by_one(values, tables, monkeypatch)), number
    assert sum(b.message_bytes for b in blocks) == sum(len(v or b"") for v in values)
    assert accounted(blocks, len(values))
    assert accounted(read(values, {}), len(values))


@pytest.mark.seeds(4)
def test_random_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = decoder.read
    calls = 0

    def reading(value: bytes | None) -> object:
        nonlocal calls
        calls += 1
        return slow(value)

    count = 0
    for number in range(seed * 100, seed * 100 + 5):
        values = RandomRows(number).messages(SIZE)
        check(values, number, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(decoder, "read", reading)
            count += sum(block.rows for block in read(values, EveryTable(None)))
    assert calls < 0.4 * count


@pytest.mark.seeds(4)
def test_garbage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(seed * 100, seed * 100 + 12):
        source = RandomRows(number)
        share = (0.05, 0.3, 1.0)[number % 3]
        values = [
            source.mutated(each or b"") if source.random.random() < share else each
            for each in source.messages(SIZE)
        ]
        check(values, number, monkeypatch)


@pytest.mark.soak
def test_a_million_mutated_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one in exactly one block; now and then also as one by one."""
    for number in range(1_000):
        source = RandomRows(number)
        good = source.messages(200)
        values = [source.mutated(each or b"") for each in good for _ in range(5)]
        assert accounted(read(values, EveryTable(None)), len(values))
        if number % 50 == 0:
            check(values, number, monkeypatch)
