"""The state and error of a changefeed in its row in Delta, where users read them.

While an owner runs the changefeed, it writes them with each row that it saves (`as_running`,
`as_ended`). For a changefeed that no owner runs (pending, failed, stopped, finished) a thread
writes them, and tries until it is done:

put ──► waiting ──written──► pending: written again and again, so that it is known to be true
           ▲  │     └──────► failed, stopped, finished: (gone)
           │  ├── a later owner has the row ──► (gone)
           │  └── storage away ──► one line in the log, and another try a little later
           └── a newer update of the same changefeed replaces it; `withdraw` removes it
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from conf.settings import DeltaSink
from coordination.errors import Fenced, TermRefused, TidelakeError
from coordination.metadata.records import FeedState
from coordination.model import ChangefeedID, Ownership
from coordination.ports import ShownState, Wake
from coordination.trust.fence import Trust
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import ENDED, ChangefeedState
from sinks.control.warehouse import ControlTables

logger = logging.getLogger(__name__)

AGAIN_S: Final = 5.0  # between two tries
REFRESH_S: Final = 20.0  # of the row of a changefeed that is pending: it may be so for ten minutes
FRESH_REFRESHES: Final = 3  # where so many have not come, nobody is there who would try it again
ENDS: Final[Mapping[FeedState, ChangefeedState]] = {
    FeedState.PENDING: "pending",
    FeedState.FAILED: "failed",
    FeedState.STOPPED: "stopped",
    FeedState.FINISHED: "finished",
}


def as_running(row: ChangefeedRow, shown: ShownState, concern: str | None) -> ChangefeedRow:
    """The row of a changefeed that an owner runs: `warning` if ``shown`` or ``concern`` says so.
    ``concern``: the owner's own one; etcd may be away and not know it."""
    if row.state in ENDED:
        return row
    if concern is not None:
        return row.showing("warning", concern)
    return _showing(row, "warning", shown) if shown.state is FeedState.WARNING else row


def as_ended(row: ChangefeedRow, shown: ShownState) -> ChangefeedRow:
    """The row of a changefeed that no owner runs any more. If another owner is to run it next, it
    is `stopped` until then."""
    if row.state == "finished":
        return row
    state = ENDS.get(shown.state)
    return replace(row, state="stopped") if state is None else _showing(row, state, shown)


def _showing(row: ChangefeedRow, state: ChangefeedState, shown: ShownState) -> ChangefeedRow:
    return row.showing(state, shown.message or None, shown.code or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate:
    """The standing of a changefeed that is to be written: to which warehouse, and by which
    owner. ``wake`` is called when it is written or cannot be."""

    changefeed_id: ChangefeedID
    sink: DeltaSink
    ownership: Ownership
    trust: Trust
    shown: ShownState
    wake: Wake

    @property
    def refresh_s(self) -> float | None:
        """How often it is to be written; None: once."""
        return REFRESH_S if self.shown.state is FeedState.PENDING else None

    def write(self, *, is_refresh: bool = False) -> bool:
        """Write state and error into the changefeed's row and, unless it has finished, `stopped`
        into its progress rows. Writes nothing and returns False where a later owner, or one of
        another etcd, has the row; with ``is_refresh`` also where it shows another state by now.
        Raises Fenced, TermRefused, and TidelakeError when the storage does not answer."""
        state = ENDS.get(self.shown.state)
        if state is None:
            return False
        self.trust.check()
        tables = ControlTables.of(self.sink)
        row = tables.changefeeds.show(
            self.changefeed_id,
            lambda row: _showing(row, state, self.shown),
            may=lambda row: self._is_ours(row) and (not is_refresh or row.state == state),
            fresh_for_s=self.refresh_s and self.refresh_s * FRESH_REFRESHES,
        )
        if row is not None and state != "finished" and not is_refresh:
            tables.progress.stop(row.changefeed_id, row.term)
        return row is not None

    def _is_ours(self, row: ChangefeedRow) -> bool:
        is_same_etcd = row.etcd_cluster_id == self.ownership.etcd_cluster_id
        return is_same_etcd and row.owner_revision <= self.ownership.election_revision


class StateUpdates:
    """The updates of all changefeeds of a process. Thread-safe; nothing blocks: each update is
    written on a thread of its own."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._lock = threading.Lock()  # of `_waiting`
        # One update is written at a time, so that a changefeed's newest is also written last.
        self._writing = threading.Lock()
        self._waiting: dict[ChangefeedID, StateUpdate] = {}
        self._refreshed: dict[ChangefeedID, StateUpdate] = {}

    def put(self, update: StateUpdate) -> None:
        with self._lock:
            self._waiting[update.changefeed_id] = update
            self._refreshed.pop(update.changefeed_id, None)
        threading.Thread(target=self._write, args=(update,), name="standing", daemon=True).start()

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        with self._lock:
            self._waiting.pop(changefeed_id, None)
            self._refreshed.pop(changefeed_id, None)

    def is_waiting(self, changefeed_id: ChangefeedID) -> bool:
        with self._lock:
            return changefeed_id in self._waiting

    def _write(self, update: StateUpdate) -> None:
        """Try until it is written, refused, withdrawn or replaced by a newer update."""
        again, is_late, is_written = threading.Event(), False, False
        while self._waiting.get(update.changefeed_id) is update:
            try:
                with self._writing:
                    if self._waiting.get(update.changefeed_id) is update:
                        is_written = update.write()
                break
            except (Fenced, TermRefused) as error:
                logger.debug("the next owner writes it: %s", error)
                break
            except TidelakeError as error:
                if not is_late:
                    logger.warning(
                        "changefeed %s is %s, and the control tables cannot say so yet: %s",
                        *(update.changefeed_id, update.shown.state, error),
                    )
                is_late = True
            again.wait(self._again_s)
        with self._lock:
            if self._waiting.get(update.changefeed_id) is update:
                del self._waiting[update.changefeed_id]
                if is_written and update.refresh_s is not None:
                    self._refreshed[update.changefeed_id] = update
        update.wake()
        self._refresh(update)

    def _refresh(self, update: StateUpdate) -> None:
        """Write it again, each time when it is due, while it is the newest one."""
        again = threading.Event()
        while self._refreshed.get(update.changefeed_id) is update:
            again.wait(update.refresh_s)
            with self._writing, suppress(TidelakeError):  # storage is away: a little later
                if self._refreshed.get(update.changefeed_id) is not update:
                    return
                try:
                    is_ours = update.write(is_refresh=True)
                except (Fenced, TermRefused):
                    is_ours = False
                if not is_ours:
                    self.withdraw(update.changefeed_id)
