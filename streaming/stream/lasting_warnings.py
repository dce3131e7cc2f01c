"""Lasting warnings: trouble that lasts but ends nothing yet, such as a source that does not answer.

source: asked every two seconds ──no answer for 10 s──────► one warning, in the log and in the
etcd:   the fence knows         ──none for half a lease──►   changefeed's row, until it is over
stream: fails, is tried again   ──for some seconds───────►
needed messages' retention      ──half of it has passed──►
owner, replica: a write fails   ──for some seconds───────►
"""

from __future__ import annotations

import logging
import threading
from typing import Final

logger = logging.getLogger(__name__)

SOURCE, ETCD, STREAM, RETENTION = "source", "etcd", "stream", "retention"
OWNER, REPLICA = "owner", "replica"  # the work of these roles
LACKS: Final = "rows of "  # the table is not copied
SOURCE_SILENT_S: Final = 10.0
SAYS_AFTER_S: Final = 45.0  # of waiting for something that comes without an operator's help


def etcd_concern(
    silent_s: float, ttl_s: float, refused_write: tuple[float, str] | None = None
) -> str | None:
    """The concern about etcd after half a lease without an answer, or in which it carries out no
    write (for so many seconds, and why); None before that. The text stays the same for as long as
    it lasts."""
    if silent_s <= ttl_s / 2:
        if refused_write is None or refused_write[0] <= ttl_s / 2:
            return None
        return (
            f"etcd carries out no write of this capture, so tables that move, DDLs and the "
            f"checkpoint wait for it: {refused_write[1]}"
        )
    return (
        f"etcd has not answered for {ttl_s / 2:g} s: this capture writes nothing any more when its "
        "lease ends, and begins anew when etcd answers"
    )


class LastingWarnings:
    """The present concerns, at most one about each subject. Thread-safe. The begin and the end of
    each are logged once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, str] = {}

    @property
    def first(self) -> str | None:
        """The concern for the changefeed's row: the oldest one, but no table that waits to be
        copied where there is another one: it may wait for good."""
        with self._lock:
            found = min(self._open, key=lambda about: about.startswith(LACKS), default=None)
            return None if found is None else self._open[found]

    def say(self, about: str, what: str | None) -> None:
        """Report a concern about a subject, or with None that it is over. A further report about a
        subject that has a concern changes nothing."""
        with self._lock:
            before = self._open.get(about)
            if what is None:
                self._open.pop(about, None)
            else:
                self._open.setdefault(about, what)
        if what is not None and before is None:
            logger.warning("%s", what)
        elif what is None and before is not None:
            logger.info("it is over: %s", before)

    def withdraw(self, about: str) -> None:
        """The reporter of the subject stops: another one reports it if it lasts."""
        with self._lock:
            self._open.pop(about, None)
