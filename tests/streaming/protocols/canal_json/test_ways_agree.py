"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost.

``CANAL_JSON_MESSAGES`` is how many the seeds have in all; a million takes some minutes.
"""

from __future__ import annotations

import os

import pytest

from streaming.protocols.canal_json import blocks as collect
from streaming.protocols.canal_json import decoder
from tests.streaming.protocols.canal_json.random_messages import RandomMessages
from tests.streaming.protocols.canal_json.reading import (
    EveryTable,
    accounted,
    one_by_one,
    plain,
    read,
    rows_like,
)

MESSAGES = int(os.environ.get("CANAL_JSON_MESSAGES", "20000"))
FIRST_SEED = int(os.environ.get("CANAL_JSON_SEED", "0"))
SIZE = 250
PARTS = 4


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "FEW", 2)


def seeds(part: int) -> range:
    """Half of the messages are for one test, half for the other."""
    first = FIRST_SEED + part * 10_000_000
    return range(first, first + max(1, MESSAGES // 2 // PARTS // SIZE))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_messages(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = collect.read
    calls = 0

    def reading(value: bytes | None) -> object:
        nonlocal calls
        calls += 1
        return slow(value)

    at_once = 0
    for seed in seeds(part):
        values = RandomMessages(seed).chunk(SIZE)
        key = (None, ("id",), ("k", "id"))[seed % 3]
        tables = EveryTable(key)
        with monkeypatch.context() as patch:
            patch.setattr(collect, "read", reading)
            blocks = read(values, tables)
        at_once += len(values)
        assert accounted(blocks, len(values)), seed
        assert plain(blocks) == plain(one_by_one(values, tables)), seed
        assert accounted(read(values, {}), len(values)), seed
    assert calls < 0.7 * at_once


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_with_the_same_change(part: int) -> None:
    """What is odd in all is odd in the one that the others are read like."""
    for seed in range(seeds(part).start, seeds(part).start + 10 * len(seeds(part))):
        mutate = RandomMessages(seed).mutation(300)
        values: list[bytes | None] = [mutate(row) for row in rows_like(10)]
        tables = EveryTable((None, ("id",))[seed % 2])
        blocks = read(values, tables)
        assert accounted(blocks, len(values)), seed
        assert plain(blocks) == plain(one_by_one(values, tables)), seed
        assert accounted(read(values, {}), len(values)), seed


@pytest.mark.parametrize("part", range(PARTS))
def test_garbage(part: int) -> None:
    """Rows of one table, each with something wrong, or each tenth."""
    for seed in seeds(part):
        source = RandomMessages(seed)
        share = (0.02, 0.1, 1.0)[seed % 3]
        values: list[bytes | None] = [
            source.mutated(row) if source.random.random() < share else row
            for row in rows_like(SIZE)
        ]
        tables = EveryTable((None, ("id",))[seed % 2])
        blocks = read(values, tables)
        assert accounted(blocks, len(values)), seed
        assert plain(blocks) == plain(one_by_one(values, tables)), seed
        assert accounted(read(values, {}), len(values)), seed
