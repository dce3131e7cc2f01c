"""TSOs of the far future are not believed, however their messages are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.model import TSO_LOGICAL_BITS, TableName
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.clocks import AHEAD_MS, KEPT_MS, latest_ts
from streaming.protocols.contract import FAR_WATERMARK, Block, Kind
from streaming.protocols.rows import alike
from tests.shop.canal_json import encode_watermark
from tests.streaming.protocols.canal_json.reading import NAME, chunk, message, wanted

NOW_MS = 1_800_000_000_000
MANY = 4 * alike.FEW


def tso(ms: int) -> int:
    return (NOW_MS + ms) << TSO_LOGICAL_BITS


def read(values: list[bytes], *names: TableName, start_ts: int = 0) -> list[Block]:
    messages = replace(chunk(values), latest_ts=latest_ts(NOW_MS))
    return list(decode(messages, wanted(*names), start_ts=start_ts))


def of(kind: Kind, blocks: list[Block]) -> list[Block]:
    return [each for each in blocks if each.kind is kind]


def test_a_watermark_counts_up_to_a_minute_ahead() -> None:
    far = tso(AHEAD_MS + 1)
    blocks = read([encode_watermark(ts, 0) for ts in (tso(0), far, tso(AHEAD_MS), 1 << 62)])
    (good,), (bad,) = of(Kind.WATERMARK, blocks), of(Kind.BAD, blocks)
    assert (good.max_ts, good.rows, good.last) == (tso(AHEAD_MS), 2, 106)
    letters = bad.table().to_pylist()
    assert [(each["position"], each["error_class"]) for each in letters] == [
        (103, FAR_WATERMARK),
        (109, FAR_WATERMARK),
    ]
    assert str(far) in letters[0]["error_message"]
    assert "more than a minute ahead" in letters[0]["error_message"]


def test_an_accepted_start_is_a_clock_too() -> None:
    far = tso(10 * 60_000)
    assert not of(Kind.WATERMARK, read([encode_watermark(far + 5, 0)]))
    assert of(Kind.WATERMARK, read([encode_watermark(far + 5, 0)], start_ts=far))


@pytest.mark.parametrize("names", [(), (NAME,)])
@pytest.mark.parametrize("count", [3, MANY])
def test_a_row_counts_up_to_a_day_ahead(names: tuple[TableName, ...], count: int) -> None:
    """It would be kept for as long, and all that Kafka has from it on be needed."""
    values = [message(data=[{"id": f"{n}"}], _tidb={"commitTs": tso(n)}) for n in range(count)]
    values[1] = message(data=[{"id": "1"}], _tidb={"commitTs": tso(KEPT_MS + AHEAD_MS + 1)})
    values[2] = message(data=[{"id": "2"}], _tidb={"commitTs": tso(KEPT_MS)})
    blocks = read(values, *names)
    assert sum(each.rows for each in of(Kind.ROW, blocks)) == count - 1
    (bad,) = of(Kind.BAD, blocks)
    assert (bad.name, bad.rows, bad.first, bad.has_only_rows) == (NAME, 1, 103, True)
    (letter,) = bad.table().to_pylist()
    assert (letter["error_class"], letter["value"]) == ("far-commit-ts", values[1])


def test_a_ddl_counts_up_to_a_day_ahead() -> None:
    values = [
        message(type="ALTER", isDdl=True, sql="ALTER", data=None, _tidb={"commitTs": ts})
        for ts in (tso(KEPT_MS), tso(2 * KEPT_MS))
    ]
    blocks = read(values)
    assert [each.rows for each in of(Kind.DDL, blocks)] == [1]
    (bad,) = of(Kind.BAD, blocks)
    assert (bad.first, bad.has_only_rows) == (103, False)
