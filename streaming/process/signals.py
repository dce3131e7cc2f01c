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

_asked_before: set[int] = set()  # signals


def stop_before_start(number: int, _frame: FrameType | None) -> None:
    """The signal handler before the capture runs. Nothing has been claimed yet, so it raises Stop
    wherever the main thread is. A library may swallow it there (while it is imported, or in a
    finalizer): then the next handler is asked as soon as it is set."""
    logger.info("asked to stop before the start signal=%s", signal.Signals(number).name)
    _asked_before.add(number)
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
        for number in sorted(_asked_before):
            handler(number, None)
        yield
    finally:
        if handler is stop_before_start:
            _asked_before.clear()
        for number, earlier in before.items():
            signal.signal(number, earlier)
