"""A database that is away is asked again, and not for ever."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError, TryAgain
from streaming.operations.diff.patience import KeptSession, Patience
from tests.streaming.operations.diff.test_passing import QuickClock


class Session:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_an_error_that_passes_opens_a_new_session() -> None:
    opened: list[Session] = []

    def new() -> Session:
        opened.append(Session())
        return opened[-1]

    def ask(session: Session) -> int:
        if len(opened) < 3:
            raise TryAgain("away")
        return opened.index(session)

    kept = KeptSession(new, Patience(60, QuickClock()))  # type: ignore[arg-type]
    assert kept.asked(ask) == 2  # type: ignore[arg-type]
    assert kept.asked(ask) == 2  # type: ignore[arg-type]
    assert [each.is_open for each in opened] == [False, False, True]


def test_it_is_not_asked_for_ever() -> None:
    clock, asked = QuickClock(), []

    def ask() -> None:
        asked.append(clock.monotonic())
        raise TryAgain("away")

    with pytest.raises(TryAgain, match="away"):
        Patience(10, clock).asked(ask)
    assert asked[-1] - asked[0] == pytest.approx(10)


def test_other_errors_come_at_once() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        Patience(10, QuickClock()).asked(ask)
    assert asked == [1]
