import logging
from pathlib import Path

import pytest

from coordination.model import Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.apply.carry import Carry
from streaming.source.resolved.watermarks import Watermarks
from streaming.spans import log_lines
from streaming.spans.log_lines import SpanLogLines
from tests.own_lines import own_lines
from tests.streaming.apply.blocks import Row, block_of

P0, P1 = "t/0", "t/1"
MARKS = Watermarks(parts=frozenset((P0, P1)), live={P0: RecordedWatermark(ts=50, position=1)})


def test_many_waiting_rows_are_a_warning_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(log_lines, "LOOK_EVERY_S", 0.0)
    carry, log = Carry(tmp_path), SpanLogLines("stream", carry_warn_rows=2)
    with caplog.at_level(logging.INFO):
        log.look_at_carry(carry, Ts(10), MARKS)
        carry.add(block_of([Row(op="INSERT", ts=ts, data={"id": "1"}) for ts in (20, 21, 22)]))
        for _ in range(2):
            log.look_at_carry(carry, Ts(10), MARKS)
        log.look_at_carry(carry, Ts(30), MARKS)
    carry.close()
    first, over = own_lines(caplog)
    assert first.endswith("rows=3 watermark_ts=0 held_back_by=t/1")
    assert over == "the carry is no longer large rows=0"
