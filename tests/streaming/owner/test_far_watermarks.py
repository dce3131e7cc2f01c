"""A far watermark is a warning for a minute at least, however many good ones come behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.model import TSO_LOGICAL_BITS
from streaming.owner import far_watermarks
from streaming.owner.far_watermarks import SHOWN_S, FarWatermarks
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.clocks import AHEAD_MS, latest_ts
from streaming.protocols.contract import Block
from streaming.stream.lasting_warnings import LastingWarnings
from tests.shop.canal_json import encode_watermark
from tests.streaming.protocols.canal_json.reading import chunk, wanted

NOW_MS = 1_800_000_000_000


def blocks(*ahead_ms: int) -> list[Block]:
    values = [encode_watermark((NOW_MS + ms) << TSO_LOGICAL_BITS, 0) for ms in ahead_ms]
    messages = replace(chunk(values), latest_ts=latest_ts(NOW_MS))
    return list(decode(messages, wanted()))


def test_it_is_over_with_a_good_one_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(far_watermarks.time, "monotonic", lambda: now_s)
    concerns = LastingWarnings()
    watch = FarWatermarks(concerns, lambda part, at: f"message {at} of {part}")
    watch.look(blocks(AHEAD_MS + 1))
    assert concerns.first is not None
    assert "Is the clock of TiDB's PD right" in concerns.first
    now_s += SHOWN_S - 1
    good = blocks(0, 1, 2)
    watch.look(good)
    assert concerns.first is not None
    now_s += 1
    watch.look([])
    assert concerns.first is not None, "nothing came that says it is over"
    watch.look(good)
    assert concerns.first is None
