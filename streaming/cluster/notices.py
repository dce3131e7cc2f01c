"""How changefeeds stand that nobody runs, said in Delta: a thread that goes on until it is done.

put ──► waiting ──written, or no longer ours to say──► (gone)
           ▲  └──storage away──► said once in the log, and again a little later
           └── a newer one of the same changefeed takes its place; `withdraw` takes it away
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Final

from conf.settings import DeltaSink
from coordination.errors import Fenced, TermRefused, TidelakeError
from coordination.model import ChangefeedID, Ownership
from coordination.ports import Standing
from coordination.secrets import revealed_options
from sinks.changefeeds import ChangefeedRow, Changefeeds
from sinks.progress import Progress
from streaming.cluster.shown import ENDS
from streaming.cluster.trust import Trust

logger = logging.getLogger(__name__)

AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is to be said, where, and in whose name."""

    changefeed_id: ChangefeedID
    sink: DeltaSink
    ownership: Ownership
    trust: Trust
    standing: Standing

    def write(self) -> None:
        """Its state and error, and that nobody fills its tables. Nothing where a later owner is."""
        state = ENDS.get(self.standing.state)
        if state is None:
            return
        self.trust.check()
        options = revealed_options(self.sink.storage_options)
        row = Changefeeds(self.sink.warehouse, options).show(
            self.changefeed_id, state, self.standing.message or None, may=self._is_ours
        )
        if row is not None and state != "finished":
            Progress(self.sink.warehouse, options).stop(row.changefeed_id, row.term)

    def _is_ours(self, row: ChangefeedRow) -> bool:
        is_same_etcd = row.etcd_cluster_id == self.ownership.etcd_cluster_id
        return is_same_etcd and row.owner_revision <= self.ownership.election_revision


class Notices:
    """Of all changefeeds of a process. Thread-safe; nothing blocks."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._changed = threading.Condition()
        self._waiting: dict[ChangefeedID, Notice] = {}
        self._late: set[ChangefeedID] = set()  # it has been said that they are
        self._thread: threading.Thread | None = None

    def put(self, notice: Notice) -> None:
        with self._changed:
            self._waiting[notice.changefeed_id] = notice
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
                self._thread.start()
            self._changed.notify()

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        with self._changed:
            self._waiting.pop(changefeed_id, None)

    def is_waiting(self, changefeed_id: ChangefeedID) -> bool:
        with self._changed:
            return changefeed_id in self._waiting

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                now = list(self._waiting.values())
            done = [notice for notice in now if self._is_done(notice)]
            with self._changed:
                for notice in done:
                    if self._waiting.get(notice.changefeed_id) is notice:
                        del self._waiting[notice.changefeed_id]
                if len(done) < len(now):
                    self._changed.wait(self._again_s)

    def _is_done(self, notice: Notice) -> bool:
        if self._waiting.get(notice.changefeed_id) is not notice:
            return True  # withdrawn while others were written
        try:
            notice.write()
        except (Fenced, TermRefused) as error:
            logger.debug("the next owner says it: %s", error)
        except TidelakeError as error:
            if notice.changefeed_id not in self._late:
                logger.warning(
                    "changefeed %s is %s, and the control tables cannot say so yet: %s",
                    notice.changefeed_id,
                    notice.standing.state,
                    error,
                )
            self._late.add(notice.changefeed_id)
            return False
        self._late.discard(notice.changefeed_id)
        return True
