from __future__ import annotations

import pytest

from coordination.errors import CaptureSuicide
from coordination.trust.close_deadlines import Closings


class Role:
    def __init__(self) -> None:
        self.closed: list[bool] = []
        self.is_over = False

    def close(self, *, drop: bool) -> None:
        self.closed.append(drop)

    def is_closed(self) -> bool:
        return self.is_over


def test_what_ends_in_time_is_forgotten() -> None:
    closings, role = Closings("the replica", 60.0), Role()
    closings.begin("shop", role, drop=False)
    closings.check(1000.0)
    assert closings.names() == {"shop"}
    closings.close(drop=True)
    assert role.closed == [False, True]
    role.is_over = True
    assert closings.names() == set()
    closings.check(2000.0)


def test_what_does_not_end_in_time_ends_with_its_capture() -> None:
    closings = Closings("the replica", 60.0)
    closings.begin("shop", Role(), drop=False)
    closings.check(1000.0)
    closings.check(1060.0)
    with pytest.raises(CaptureSuicide, match=r"the replica of changefeed shop .* within 60 s"):
        closings.check(1061.0)


def test_each_has_its_own_time() -> None:
    closings, one = Closings("the replica", 60.0), Role()
    closings.begin("shop", one, drop=False)
    closings.check(1000.0)
    one.is_over = True
    closings.begin("shop", Role(), drop=False)
    closings.check(1050.0)
    closings.check(1100.0)
    with pytest.raises(CaptureSuicide):
        closings.check(1111.0)
