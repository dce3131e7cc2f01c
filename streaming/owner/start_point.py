"""Where a start begins: for a new changefeed, a resumed or rewound one, and one whose configuration
has changed. Pure, but for the questions to ``Source``.

A changefeed that has a row *resumes*, whatever ``--start-ts`` says. ``--overwrite-checkpoint-ts``
and a changed fingerprint (filter, zone, casts) make a new incarnation, under which every table is
sealed against writers of the old one (rule 4)."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace
from typing import Any

from conf.settings import Changefeed
from sinks.control.changefeeds import ChangefeedRow, ChangefeedState
from streaming.changefeed.earlier_filters import filters_after, filters_of
from streaming.changefeed.far_ts import refuse_far_ahead
from streaming.source.kafka.broker import Source, SourceShape, check_topic_ids
from streaming.source.kafka.deleted_messages import refuse_a_hole

logger = logging.getLogger(__name__)


def fingerprint(changefeed: Changefeed) -> str:
    """A hash of all settings that decide which rows are applied and what values they have. If it
    changes, a new incarnation begins."""
    parts: dict[str, Any] = {
        "filter": asdict(changefeed.filter),
        "time-zone": changefeed.source.time_zone,
        "zero-date": changefeed.zero_date,
    }
    # Defaults are left out, so that the fingerprints of changefeeds from before the setting stay.
    if changefeed.on_unknown_column != "dead-letter":
        parts["on-unknown-column"] = changefeed.on_unknown_column
    if changefeed.on_add_default != "rewrite":
        parts["on-add-default"] = changefeed.on_add_default
    if changefeed.ddl_time_zone not in (None, changefeed.source.time_zone):
        parts["ddl-time-zone"] = changefeed.ddl_time_zone
    if changefeed.sink.tables:
        parts["tables"] = [rule.told() for rule in changefeed.sink.tables]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def row_rules(changefeed: Changefeed) -> str:
    """What a replay of dead letters needs, which knows the warehouse alone."""
    return json.dumps(
        {
            "time_zone": changefeed.source.time_zone,
            "zero_date": changefeed.zero_date,
            "ddl_time_zone": changefeed.ddl_time_zone,
            "on_unknown_column": changefeed.on_unknown_column,
            "on_add_default": changefeed.on_add_default,
            "case_sensitive": changefeed.filter.case_sensitive,
            "tables": [asdict(rule) for rule in changefeed.sink.tables],
        }
    )


def first_row(changefeed: Changefeed, start_id: str | None = None) -> ChangefeedRow:
    """The row of a changefeed that has never run."""
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
    """The row with which this start goes on, from the claimed one. Raises SourceLost if a topic was
    made again, or if a partition that was not read yet no longer has everything. Asks the broker.

    ``start_id``: in a cluster, the ID of the creation or resume that said where to start; each has
    its own. With one that the row does not have yet, the changefeed goes to its start-ts."""
    is_new = not stored.source_offsets  # claimed, but reading never began
    row = _begun(stored, changefeed, start_id)
    if not row.source_offsets:  # where it begins, an operator has said
        refuse_far_ahead("start-ts", row.checkpoint_ts, log)
    check_topic_ids(row.topic_ids, shape.topic_ids)
    state = _state(row, changefeed)
    unknown = [p for p in shape.partitions if str(p) not in row.source_offsets]
    first = log.beginnings(unknown) if unknown else {}  # for partitions without recorded offsets
    if state != "finished":  # a finished one reads nothing more, so nothing can be missing
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
        row_rules=row_rules(changefeed),
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
    """The row of a first start. An earlier try may have left a claimed row, but was refused or died
    before it began to read; so this try's settings count."""
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
    """The ts to which the changefeed is rewound; None if it resumes. A rewind or start-ts that is
    given but not followed is logged."""
    if start_id is not None:
        if stored.start_id is None:  # a row of a `run` or an earlier release: it goes on
            is_known = stored.start_ts == changefeed.start_ts
        else:
            is_known = stored.start_id == start_id
        return None if is_known else changefeed.start_ts
    rewind = changefeed.overwrite_checkpoint_ts
    # A job that is retried gives the same arguments again, and must not be rewound again. The row
    # has a max_published_ts if its start_ts comes from a rewind, not from a first start.
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
