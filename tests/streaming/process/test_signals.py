from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from coordination.errors import Stop
from streaming.process.signals import asking, handling, stop_before_start


def test_a_stop_that_a_library_swallows_is_asked_of_what_runs_next() -> None:
    asked: list[str] = []
    with handling(stop_before_start):
        with suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)
        with handling(asking(lambda: asked.append("the capture"))):
            assert asked == ["the capture"]
    with handling(stop_before_start), handling(asking(lambda: asked.append("a later one"))):
        pass
    assert asked == ["the capture"]


def test_a_stop_before_the_start_ends_where_the_program_is() -> None:
    with pytest.raises(Stop), handling(stop_before_start):
        os.kill(os.getpid(), signal.SIGINT)
