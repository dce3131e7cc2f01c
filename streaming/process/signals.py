"""How SIGTERM and SIGINT stop the process, before the capture runs and while it does."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from coordination.errors import Stop

logger = logging.getLogger(__name__)

SignalHandler = Callable[[int, FrameType | None], None]


def stop_before_start(number: int, _frame: FrameType | None) -> None:
    """The signal handler before the capture runs. Nothing has been claimed yet, so it raises Stop
    wherever the main thread is."""
    logger.info("asked to stop before the start signal=%s", signal.Signals(number).name)
    raise Stop("asked to stop before the start")


def asking(request_stop: Callable[[], None]) -> SignalHandler:
    def asked(number: int, _frame: FrameType | None) -> None:
        logger.info("asked to stop signal=%s", signal.Signals(number).name)
        request_stop()

    return asked


@contextmanager
def handling(handler: SignalHandler) -> Iterator[None]:
    """Inside, SIGTERM and SIGINT go to the handler. (Spark's start sets a SIGINT handler of its
    own.)
    """
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
