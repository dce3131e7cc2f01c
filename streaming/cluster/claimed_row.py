"""The claim of a changefeed's next term in the control tables."""

from __future__ import annotations

import logging
import threading

from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership
from sinks.changefeeds import ChangefeedRow
from streaming.cluster.reads import parsed
from streaming.cluster.role_context import RoleContext
from streaming.start_point import first_row, settle

logger = logging.getLogger(__name__)


def claimed_row(
    context: RoleContext, ownership: Ownership, closing: threading.Event
) -> ChangefeedRow:
    """Claim the next term in the three tables of changefeeds, progress and snapshots. Returns the
    changefeed's row as this owner is to use it; it is not saved yet.

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
    )
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
