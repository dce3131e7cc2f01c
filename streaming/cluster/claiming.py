"""A term, from the claim to the row that says where its owner begins."""

from __future__ import annotations

import threading
from dataclasses import replace

from conf.settings import Changefeed
from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership
from sinks.changefeeds import ChangefeedRow
from streaming.cluster.workshop import Workshop
from streaming.events import TopicPartition
from streaming.start_point import first_row, settle


def claimed_row(
    workshop: Workshop, ownership: Ownership, closing: threading.Event
) -> ChangefeedRow:
    """The next term in all three control tables, and the row as this owner uses it (not saved).

    Raises what ``Changefeeds.claim`` and ``settle`` raise, and SourceLost for offsets that are
    gone."""
    tables = workshop.tables
    workshop.trust.check()
    failpoint(Failpoint.BEFORE_CLAIM)
    changefeed = _rewound(workshop.changefeed, tables.changefeeds.read(workshop.changefeed.id))
    claimed = tables.changefeeds.claim(
        first_row(changefeed),
        ownership,
        ttl_s=workshop.settings.session.ttl_s,
        stop=closing,
    )
    tables.progress.claim(changefeed.id, claimed.term)
    tables.snapshots.claim(changefeed.id, claimed.term)
    failpoint(Failpoint.AFTER_CLAIM)
    shape = workshop.source.shape()
    row = settle(claimed, changefeed, shape, workshop.source.beginnings)
    if row.state != "finished":  # it reads nothing more: Kafka may forget what it read
        offsets = {TopicPartition.parse(text): at for text, at in row.source_offsets.items()}
        workshop.source.check_offsets(offsets)
    return row


def _rewound(changefeed: Changefeed, stored: ChangefeedRow | None) -> Changefeed:
    """A changefeed that was resumed from another checkpoint has that for its start-ts."""
    if stored is None or stored.start_ts == changefeed.start_ts:
        return changefeed
    return replace(changefeed, overwrite_checkpoint_ts=changefeed.start_ts)
