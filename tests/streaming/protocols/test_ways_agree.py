"""Whatever the messages, read many at a time or one by one they mean the same, and none is lost.
(canal-json's are in `canal_json/test_ways_agree.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest

from streaming.protocols.contract import Block, Wanted
from streaming.protocols.open import decoder as open_decoder
from streaming.protocols.rows import alike
from streaming.protocols.simple import decoder as simple_decoder
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk, plain
from tests.streaming.protocols.open import reading as open_rows
from tests.streaming.protocols.simple import reading as simple_rows

BOTH = pytest.mark.parametrize(
    ("decoder", "rows", "slow", "size"),
    [(open_decoder, open_rows, "event", 60), (simple_decoder, simple_rows, "read", 200)],
    ids=["open", "simple"],
)


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "FEW", 2)


def read(decoder: ModuleType, values: Sequence[bytes | None], tables: Wanted) -> list[Block]:
    return list(decoder.decode(chunk(values), tables))


def check(decoder: ModuleType, rows: ModuleType, values: list[bytes | None], number: int) -> None:
    tables = EveryTable((None, ("id",), ())[number % 3])
    blocks = read(decoder, values, tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "FEW", 1 << 40)
        one_by_one = read(decoder, values, tables)
    assert plain(blocks) == plain(one_by_one), number
    assert sum(b.message_bytes for b in blocks) == sum(len(v or b"") for v in values)
    rows.assert_accounted(blocks, len(values))
    rows.assert_accounted(read(decoder, values, {}), len(values))


@BOTH
@pytest.mark.seeds(1, 1)
def test_random_messages(
    decoder: ModuleType, rows: ModuleType, slow: str, size: int, seed: int
) -> None:
    reading, calls, count = getattr(decoder, slow), 0, 0

    def counting(*message: bytes | None) -> object:
        nonlocal calls
        calls += 1
        return reading(*message)

    for number in range(seed * 100, seed * 100 + 5):
        values = rows.RandomRows(number).messages(size)
        check(decoder, rows, values, number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decoder, slow, counting)
            count += sum(block.rows for block in read(decoder, values, EveryTable(None)))
    assert calls < 0.4 * count


@BOTH
@pytest.mark.seeds(1, 1)
def test_garbage(decoder: ModuleType, rows: ModuleType, slow: str, size: int, seed: int) -> None:
    del slow
    for number in range(seed * 100, seed * 100 + 12):
        source = rows.RandomRows(number)
        share = (0.05, 0.3, 1.0)[number % 3]
        values = [
            source.mutated(each or b"") if source.random.random() < share else each
            for each in source.messages(size)
        ]
        check(decoder, rows, values, number)
