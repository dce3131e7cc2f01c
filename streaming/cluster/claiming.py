"""A term, from the claim to the row that says where its owner begins."""

from __future__ import annotations

import threading

from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership
from sinks.changefeeds import ChangefeedRow
from streaming.cluster.workshop import Workshop
from streaming.events import TopicPartition
from streaming.protocols.canal_json_sql import watermark_of
from streaming.retained import KafkaLog
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
    changefeed, start_id = workshop.changefeed, _start_id(workshop, ownership)
    claimed = tables.changefeeds.claim(
        first_row(changefeed, start_id),
        ownership,
        ttl_s=workshop.settings.session.ttl_s,
        stop=closing,
    )
    tables.progress.claim(changefeed.id, claimed.term)
    tables.snapshots.claim(changefeed.id, claimed.term)
    failpoint(Failpoint.AFTER_CLAIM)
    shape = workshop.source.shape()
    log = KafkaLog(workshop.source, watermark_of)
    row = settle(claimed, changefeed, shape, log, start_id)
    if row.state != "finished":  # it reads nothing more: Kafka may forget what it read
        offsets = {TopicPartition.parse(text): at for text, at in row.source_offsets.items()}
        workshop.source.check_offsets(offsets, row.checkpoint_ts)
    return row


def _start_id(workshop: Workshop, ownership: Ownership) -> str:
    """Another one for each time that an operator has said where to start. Epochs are counted by
    each etcd anew; what an earlier release wrote has none."""
    start_ts = workshop.changefeed.start_ts
    return f"{ownership.etcd_cluster_id}/{workshop.start_epoch}/{start_ts}"
