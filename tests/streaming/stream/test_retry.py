"""How long a stream that fails is tried again."""

from __future__ import annotations

import logging

import pytest

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from streaming.stream.retry import RetryBackoff
from tests.own_lines import own_records


def test_it_ends_after_half_a_minute_without_progress_and_begins_anew_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    backoff, error = RetryBackoff(), ConnectionError("no broker")
    waits = [backoff.next_s(error) for _ in range(6)]
    with pytest.raises(TidelakeError, match="again and again: no broker"):
        backoff.next_s(error)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert backoff.is_long
    levels = [record.levelname for record in own_records(caplog)]
    assert levels == ["INFO", "INFO", "INFO", "WARNING", "INFO", "INFO"]  # once, when it lasts
    backoff.reset()
    assert not backoff.is_long
    assert backoff.next_s(error) == 0.5


A, B = TableName("shop", "a"), TableName("shop", "b")


@pytest.mark.parametrize(
    ("before", "now", "is_progress"),
    [
        ({A: 5, B: 5}, {A: 5, B: 6}, True),
        ({A: 5, B: 5}, {A: 6}, True),  # the other one went to another capture
        ({A: 5, B: 5}, {A: 5}, False),
        ({A: 5}, {A: 5, B: 9}, False),
        ({}, {A: 5}, False),  # a writer that begins again and again
    ],
)
def test_it_begins_anew_when_any_table_has_got_on(
    before: dict[TableName, Ts], now: dict[TableName, Ts], is_progress: bool
) -> None:
    """Failures that lie weeks apart would add up to one that has lasted too long."""
    backoff, error = RetryBackoff(), ConnectionError("no broker")
    backoff.look(before)
    backoff.next_s(error)
    backoff.look(now)
    assert backoff.next_s(error) == (0.5 if is_progress else 1.0)
