"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost."""

from __future__ import annotations

import pytest

from streaming.protocols.canal_json import decoder
from streaming.protocols.rows import alike
from tests.streaming.protocols.canal_json.random_messages import RandomMessages
from tests.streaming.protocols.canal_json.reading import (
    EveryTable,
    accounted,
    one_by_one,
    plain,
    read,
    rows_like,
)

SIZE = 250
CHUNKS = 10  # of a seed
SEEDS = 1, 2  # in make test, and further ones in make test-more


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "FEW", 2)


def numbers(seed: int, count: int = CHUNKS) -> range:
    """Each of other messages than any other one."""
    return range(seed * 10_000, seed * 10_000 + count)


@pytest.mark.seeds(*SEEDS)
def test_random_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = decoder.read
    calls = 0

    def reading(value: bytes | None) -> object:
        nonlocal calls
        calls += 1
        return slow(value)

    at_once = 0
    for number in numbers(seed):
        values = RandomMessages(number).chunk(SIZE)
        key = (None, ("id",), ("k", "id"))[number % 3]
        tables = EveryTable(key)
        with monkeypatch.context() as patch:
            patch.setattr(decoder, "read", reading)
            blocks = read(values, tables)
        at_once += len(values)
        assert accounted(blocks, len(values)), number
        assert plain(blocks) == plain(one_by_one(values, tables)), number
        assert accounted(read(values, {}), len(values)), number
    assert calls < 0.7 * at_once


@pytest.mark.seeds(*SEEDS)
def test_rows_with_the_same_change(seed: int) -> None:
    """What is odd in all is odd in the one that the others are read like."""
    for number in numbers(seed, 10 * CHUNKS):
        mutate = RandomMessages(number).mutation(300)
        values: list[bytes | None] = [mutate(row) for row in rows_like(10)]
        tables = EveryTable((None, ("id",))[number % 2])
        blocks = read(values, tables)
        assert accounted(blocks, len(values)), number
        assert plain(blocks) == plain(one_by_one(values, tables)), number
        assert accounted(read(values, {}), len(values)), number


@pytest.mark.seeds(*SEEDS)
def test_garbage(seed: int) -> None:
    """Rows of one table, each with something wrong, or each tenth."""
    for number in numbers(seed):
        source = RandomMessages(number)
        share = (0.02, 0.1, 1.0)[number % 3]
        values: list[bytes | None] = [
            source.mutated(row) if source.random.random() < share else row
            for row in rows_like(SIZE)
        ]
        tables = EveryTable((None, ("id",))[number % 2])
        blocks = read(values, tables)
        assert accounted(blocks, len(values)), number
        assert plain(blocks) == plain(one_by_one(values, tables)), number
        assert accounted(read(values, {}), len(values)), number
