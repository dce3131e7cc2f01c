"""Where a start begins: a new changefeed, a resumed one, a rewound one, a changed configuration.
Pure.

A changefeed that has a row *resumes*, whatever ``--start-ts`` says. ``--overwrite-checkpoint-ts``
and a changed fingerprint (filter, zone, casts) make a new incarnation, under which every table is
sealed against writers of the old one (rule 4)."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace

from conf.settings import Changefeed
from sinks.changefeeds import ChangefeedRow, ChangefeedState
from streaming.passed import filters_after, filters_of
from streaming.retained import refuse_a_hole
from streaming.source.kafka import Source, SourceShape, check_topic_ids

logger = logging.getLogger(__name__)


def fingerprint(changefeed: Changefeed) -> str:
    """Of all settings that decide which rows come and what their cells look like."""
    parts = {
        "filter": asdict(changefeed.filter),
        "time-zone": changefeed.source.time_zone,
        "zero-date": changefeed.zero_date,
    }
    if changefeed.on_unknown_column != "dead-letter":  # else every changefeed of old would be new
        parts["on-unknown-column"] = changefeed.on_unknown_column
    if changefeed.on_add_default != "rewrite":
        parts["on-add-default"] = changefeed.on_add_default
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def first_row(changefeed: Changefeed, start_id: str | None = None) -> ChangefeedRow:
    """The row of a changefeed that nobody has run yet."""
    start = changefeed.overwrite_checkpoint_ts or changefeed.start_ts
    return ChangefeedRow(
        changefeed_id=changefeed.id,
        start_ts=start,
        target_ts=changefeed.target_ts,
        checkpoint_ts=start,
        resolved_ts=start,
        max_published_ts=changefeed.overwrite_checkpoint_ts or 0,
        fingerprint=fingerprint(changefeed),
        filters=filters_of(changefeed.filter),
        start_id=start_id,
    )


def settle(
    stored: ChangefeedRow,
    changefeed: Changefeed,
    shape: SourceShape,
    log: Source,
    start_id: str | None = None,
) -> ChangefeedRow:
    """The claimed row as this start uses it. Raises SourceLost when a topic is not the one of
    before, or where a new one no longer has everything.

    ``start_id``: of a cluster, in which a creation or a resume said where to start; each has
    another one, and one that the row does not know yet begins anew."""
    is_new = not stored.source_offsets  # claimed, and never begun
    row = _begun(stored, changefeed, start_id)
    check_topic_ids(row.topic_ids, shape.topic_ids)
    state = _state(row, changefeed)
    unknown = [p for p in shape.partitions if str(p) not in row.source_offsets]
    first = log.beginnings(unknown) if unknown else {}  # Kafka's, where none is recorded
    if state != "finished":  # it reads nothing more: Kafka may forget what it read
        reached = None if is_new else stored.checkpoint_ts
        refuse_a_hole(first, log, checkpoint_ts=row.checkpoint_ts, reached_ts=reached)
    offsets = {str(p): at for p, at in first.items()} | dict(row.source_offsets)
    return replace(
        row,
        state=state,
        target_ts=changefeed.target_ts,
        source_offsets={str(p): offsets[str(p)] for p in sorted(shape.partitions)},
        topic_ids=dict(shape.topic_ids),
        error=None,
        start_id=start_id or row.start_id,
    )


def _begun(stored: ChangefeedRow, changefeed: Changefeed, start_id: str | None) -> ChangefeedRow:
    if not stored.source_offsets:
        return _begun_first(stored, changefeed, start_id)
    wanted = fingerprint(changefeed)
    rewind = _rewind_ts(stored, changefeed, start_id)
    if rewind is not None:
        logger.info("rewinding checkpoint_ts=%d to_ts=%d", stored.checkpoint_ts, rewind)
        return replace(
            stored,
            incarnation=stored.incarnation + 1,
            fingerprint=wanted,
            filters=filters_of(changefeed.filter),
            state="rewinding",
            start_ts=rewind,
            checkpoint_ts=rewind,
            resolved_ts=rewind,
            max_published_ts=max(stored.max_published_ts, stored.checkpoint_ts),
            source_offsets={},
            watermarks={},
            topic_ids={},
        )
    if stored.fingerprint != wanted:
        logger.info("the configuration changed: a new incarnation goes on where the old one was")
        return replace(
            stored,
            incarnation=stored.incarnation + 1,
            fingerprint=wanted,
            filters=filters_after(stored, changefeed.filter),
        )
    return replace(stored, filters=filters_after(stored, changefeed.filter))


def _begun_first(
    stored: ChangefeedRow, changefeed: Changefeed, start_id: str | None
) -> ChangefeedRow:
    """Nothing was made of what an earlier try may have said: it was refused, or died too early."""
    first = first_row(changefeed, start_id)
    falls = first.checkpoint_ts < stored.checkpoint_ts
    return replace(
        stored,
        incarnation=stored.incarnation + falls,
        fingerprint=first.fingerprint,
        filters=first.filters,
        start_ts=first.start_ts,
        checkpoint_ts=first.checkpoint_ts,
        resolved_ts=first.resolved_ts,
        max_published_ts=first.max_published_ts,
    )


def _rewind_ts(stored: ChangefeedRow, changefeed: Changefeed, start_id: str | None) -> int | None:
    """To where the changefeed goes back, or None: it resumes, and says what it does not do."""
    if start_id is not None:
        if stored.start_id is None:  # a run's, or of an earlier release: taken up where it is
            is_known = stored.start_ts == changefeed.start_ts
        else:
            is_known = stored.start_id == start_id
        return None if is_known else changefeed.start_ts
    rewind = changefeed.overwrite_checkpoint_ts
    # The same arguments come again when a job is retried: what is published tells a rewind that
    # was made from a first start at the same ts.
    if rewind is not None and (stored.start_ts != rewind or not stored.max_published_ts):
        return rewind
    if rewind is not None:
        logger.warning(
            "the rewind to %d was made already checkpoint_ts=%d: it goes on. The same arguments "
            "come again when a job is retried; to rewind once more give another ts, as %d",
            rewind,
            stored.checkpoint_ts,
            max(rewind - 1, 1),
        )
    elif changefeed.start_ts not in (0, stored.start_ts):
        logger.info(
            "resuming where it was checkpoint_ts=%d: start-ts %d is of a first start only",
            stored.checkpoint_ts,
            changefeed.start_ts,
        )
    return None


def _state(row: ChangefeedRow, changefeed: Changefeed) -> ChangefeedState:
    target = changefeed.target_ts
    if target is not None and row.checkpoint_ts >= target:
        return "finished"
    return "rewinding" if row.checkpoint_ts < row.max_published_ts else "running"
