"""Orders to load a table anew, seen while the changefeed is replicated: its stream is ended in
order, the order is carried out, and another stream goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from sinks.control.warehouse import ControlTables

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 3.0


class ReloadWatch:
    """Looks on a thread of its own, while it is a context; ``request_stop`` ends the stream."""

    def __init__(self, changefeed: Changefeed, request_stop: Callable[[], None]) -> None:
        self._changefeed = changefeed
        self._request_stop = request_stop
        self._over = threading.Event()
        self._is_found = False
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="reload-watch", daemon=True)

    @property
    def interrupts(self) -> bool:
        """Whether the stream was ended for an order, and nobody has asked the program to end."""
        return self._is_found and not self._is_stopped

    def stop(self) -> None:
        """The program was asked to end. From signal handlers too."""
        self._is_stopped = True
        self._request_stop()

    def __enter__(self) -> Self:
        if isinstance(self._changefeed.source, BinlogSettings):
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()

    def _run(self) -> None:
        reloads = ControlTables.of(self._changefeed.sink).reloads
        while not self._over.wait(LOOK_EVERY_S):
            try:
                order = reloads.next_open(self._changefeed.id)
            except TidelakeError as error:  # the stream meets it too, and says so
                logger.debug("orders of reloads are not read: %s", error)
                continue
            if order is not None and not self._over.is_set():
                logger.info("the stream ends, since a table is to be loaded anew: %s", order.name)
                self._is_found = True
                self._request_stop()
                return
