"""One turn of the reading thread, as ``StreamRun.foreach_batch`` makes it."""

from __future__ import annotations

from streaming.stream.stream_run import StreamRun


def one_turn(run: StreamRun) -> None:
    """What a read raises comes to the caller."""
    wanted = run._wanted()
    if wanted is not None:
        run._hand_over(run._next(wanted))
