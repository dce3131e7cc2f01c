"""A term, from the claim to the row that says where its owner begins."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership, TermNumber, Ts
from coordination.ports import Claim, RegisteredTable
from sinks.changefeeds import ChangefeedRow
from streaming.cluster.progress_rows import span_of
from streaming.cluster.role_context import RoleContext
from streaming.sink_tables import SinkTable
from streaming.source.ranges import TopicPartition
from streaming.start_point import first_row, settle

logger = logging.getLogger(__name__)


def claimed_row(
    context: RoleContext, ownership: Ownership, closing: threading.Event
) -> ChangefeedRow:
    """The next term in all three control tables, and the row as this owner uses it (not saved).

    Raises what ``Changefeeds.claim`` and ``settle`` raise, and SourceLost for offsets that are
    gone."""
    tables = context.tables
    failpoint(Failpoint.BEFORE_CLAIM)
    changefeed, start_id = context.changefeed, _start_id(context, ownership)
    claimed = tables.changefeeds.claim(
        first_row(changefeed, start_id),
        ownership,
        ttl_s=context.settings.session.ttl_s,
        stop=closing,
        check=context.trust.check,
    )
    tables.progress.claim(changefeed.id, claimed.term)
    tables.snapshots.claim(changefeed.id, claimed.term)
    failpoint(Failpoint.AFTER_CLAIM)
    shape = context.source.shape()
    row = settle(claimed, changefeed, shape, context.source, start_id)
    if row.state != "finished":  # it reads nothing more: Kafka may forget what it read
        offsets = {TopicPartition.parse(text): at for text, at in row.source_offsets.items()}
        context.source.check_offsets(offsets, row.checkpoint_ts)
    else:
        logger.info("finished already checkpoint_ts=%d", row.checkpoint_ts)
    return row


def claim_of(
    context: RoleContext, row: ChangefeedRow, tables: Iterable[SinkTable], floor_ts: int
) -> Claim:
    """What the owner hears of it; nothing at or below ``floor_ts`` is published again."""
    latest = context.tables.snapshots.latest(row.changefeed_id)
    published = max(floor_ts, latest.primary_ts if latest is not None else 0)
    return Claim(
        term=TermNumber(row.term),
        checkpoint_ts=Ts(row.checkpoint_ts),
        tables=tuple(registered(table, row.incarnation) for table in tables),
        published_ts=Ts(published),
    )


def registered(table: SinkTable, incarnation: int) -> RegisteredTable:
    return RegisteredTable(span=span_of(table, incarnation), start_ts=table.checkpoint)


def _start_id(context: RoleContext, ownership: Ownership) -> str | None:
    """Another one for each time that an operator has said where to start. Epochs are counted by
    each etcd anew; what an earlier release wrote has none. None: a `run`'s arguments say it."""
    if context.start_epoch is None:
        return None
    start_ts = context.changefeed.start_ts
    return f"{ownership.etcd_cluster_id}/{context.start_epoch}/{start_ts}"
