"""How long a stream that fails is tried again."""

from __future__ import annotations

import logging

import pytest

from coordination.errors import TidelakeError
from streaming.patience import Patience


def test_it_ends_after_half_a_minute_without_progress_and_begins_anew_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    patience, error = Patience(), ConnectionError("no broker")
    waits = [patience.lost(error) for _ in range(6)]
    with pytest.raises(TidelakeError, match="again and again: no broker"):
        patience.lost(error)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert patience.is_worn
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "INFO", "INFO", "WARNING", "INFO", "INFO"]  # once, when it lasts
    patience.regained()
    assert not patience.is_worn
    assert patience.lost(error) == 0.5
