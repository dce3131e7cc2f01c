"""How often a test looks for what it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator

SHARE = 5  # of the time, one part at most is looks: a Delta table that is opened costs some 20 ms


def looks(within_s: float, *, every_s: float = 0.05) -> Iterator[None]:
    """One for each look; ends when the last one was. Dear looks come more seldom."""
    deadline = time.monotonic() + within_s
    while (begun := time.monotonic()) < deadline:
        yield
        time.sleep(max(every_s, (SHARE - 1) * (time.monotonic() - begun)))
