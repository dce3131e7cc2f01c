"""The claim of a changefeed's next term in the control tables, and its row until there is more to
say in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership
from sinks.control.changefeeds import ChangefeedRow
from streaming.owner.start_point import first_row, settle
from streaming.source.positions import parsed
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)


class KeptFresh:
    """Refreshes the row of a claimed term from a thread of its own: before the owner writes more,
    it asks a broker that may be away, reads dead letters, seals tables. Else the row would look as
    if its owner were gone (rule 6). A context manager."""

    def __init__(self, context: RoleContext) -> None:
        self.term: int | None = None  # once it is claimed
        self.trouble: str | None = None  # why the claim is tried again, for the row
        self._context = context
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claim", daemon=True)

    def __enter__(self) -> KeptFresh:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()

    def say(self, trouble: str) -> None:
        """At once, and with each refresh."""
        self.trouble = trouble
        self._refresh()

    def _run(self) -> None:
        while not self._over.wait(self._context.ttl_s / 3):
            self._refresh()

    def _refresh(self) -> None:
        context, term = self._context, self.term
        if term is None:
            return
        try:
            context.trust.check()
            context.tables.changefeeds.refresh(
                context.changefeed.id, term, self.trouble, is_over=self._over.is_set
            )
        except TidelakeError as error:  # who claims meets it too, and says so
            logger.debug("the claimed row is not refreshed: %s", error)


def claimed_row(
    context: RoleContext,
    ownership: Ownership,
    closing: threading.Event,
    kept: KeptFresh,
    on_wait: Callable[[str], None],
) -> ChangefeedRow:
    """Claim the next term in the three tables of changefeeds, progress and snapshots. Returns the
    changefeed's row as this owner is to use it; it is not saved yet. ``on_wait`` gets a sentence
    where it waits for an owner that may be alive.

    Raises what ``Changefeeds.claim`` and ``settle`` raise, and SourceLost for offsets that are
    gone."""
    changefeed, start_id = context.changefeed, _start_id(context, ownership)
    failpoint(Failpoint.BEFORE_CLAIM)
    claimed = context.tables.changefeeds.claim(
        first_row(changefeed, start_id),
        ownership,
        ttl_s=context.ttl_s,
        stop=closing,
        check=context.trust.check,
        on_wait=on_wait,
    )
    kept.term = claimed.term
    context.tables.progress.claim(changefeed.id, claimed.term)
    context.tables.snapshots.claim(changefeed.id, claimed.term)
    failpoint(Failpoint.AFTER_CLAIM)
    row = settle(claimed, changefeed, context.source.shape(), context.source, start_id)
    if row.state != "finished":  # a finished one reads nothing more: Kafka may delete its data
        context.source.check_offsets(parsed(row.source_offsets), row.checkpoint_ts)
    else:
        logger.info("finished already checkpoint_ts=%d", row.checkpoint_ts)
    return row


def _start_id(context: RoleContext, ownership: Ownership) -> str | None:
    """A new ID for each time that an operator has said where to start. It holds the etcd's ID,
    since each etcd counts epochs anew. None for a `run`, whose arguments say where to start."""
    if context.start_epoch is None:
        return None
    etcd = ownership.etcd_cluster_id
    return f"{etcd}/{context.start_epoch}/{context.changefeed.start_ts}"
