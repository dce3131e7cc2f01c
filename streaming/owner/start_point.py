"""Where a start begins: for a new changefeed, a resumed or rewound one, and one whose configuration
has changed. Pure, except for the questions to the source.

A changefeed that has a row *resumes*, whatever ``--start-ts`` says. ``--overwrite-checkpoint-ts``
and a changed fingerprint (filter, zone, casts) make a new incarnation, under which every table is
sealed against writers of the old one (rule 4). So does another server of the source, with which the
changefeed goes on by GTID: its log may lack what a writer of before still has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from conf.rows.row_filter import texts_of
from conf.settings import Changefeed, DeltaSink
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import AT_LEAST_ONCE
from conf.sources.source_uri import is_at_least_once, lost_text_of
from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import Ownership
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import ChangefeedState
from streaming.changefeed.earlier_filters import (
    filters_after,
    filters_of,
    refuse_other_numbers,
    refuse_other_routes,
)
from streaming.changefeed.preflight import refuse_far_ahead
from streaming.source.contract import RecordedPlace, Source, SourceShape
from streaming.source.resolved.pinned_limits import begun_again
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)


def fingerprint(changefeed: Changefeed) -> str:
    """A hash of all settings that decide which rows are applied and what values they have. If it
    changes, a new incarnation begins."""
    parts = {
        "filter": asdict(changefeed.filter),
        "time-zone": changefeed.source.time_zone,
        "zero-date": changefeed.zero_date,
        "on-unknown-column": changefeed.on_unknown_column,
        "on-add-default": changefeed.on_add_default,
        "ddl-time-zone": changefeed.ddl_time_zone or changefeed.source.time_zone,
        "tables": [asdict(rule) for rule in changefeed.sink.tables],
        **({"integrity": level} if (level := changefeed.integrity_check_level) != "none" else {}),
        **routes_told(changefeed),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def row_rules(changefeed: Changefeed) -> str:
    """The rules that a replay of dead letters needs, which knows the warehouse alone."""
    return json.dumps(
        {
            "protocol": changefeed.source.protocol,
            "time_zone": changefeed.source.time_zone,
            "zero_date": changefeed.zero_date,
            "ddl_time_zone": changefeed.ddl_time_zone,
            "on_unknown_column": changefeed.on_unknown_column,
            "on_add_default": changefeed.on_add_default,
            "integrity_check_level": changefeed.integrity_check_level,
            "case_sensitive": changefeed.filter.case_sensitive,
            "tables": [asdict(rule) for rule in changefeed.sink.tables],
            **({"delivery": AT_LEAST_ONCE} if is_at_least_once(changefeed.source) else {}),
            **({} if (lost := lost_text_of(changefeed.source)) is None else {"lost_text": lost}),
            **routes_told(changefeed),
            **conditions_told(changefeed),
            **_claims_told(changefeed),
            **columns_told(changefeed.sink),
        }
    )


def routes_told(changefeed: Changefeed) -> dict[str, Any]:
    """Nothing where there are none, as before there were routes."""
    routes = [asdict(rule) for rule in changefeed.sink.routes]
    return {"routes": routes} if routes else {}


def conditions_told(changefeed: Changefeed) -> dict[str, Any]:
    """The event filters by values that are asked here. Nothing where there are none, as before
    there were any."""
    if changefeed.filter.dml_filters != "here":
        return {}
    found = [asdict(each) for each in changefeed.filter.event_filters if texts_of(each)]
    return {"event_filters": found} if found else {}


def _claims_told(changefeed: Changefeed) -> dict[str, Any]:
    """Where large rows are. Nothing where none are read."""
    source = changefeed.source
    told = source.large.told() if isinstance(source, KafkaSettings | RecordingSettings) else None
    return {} if told is None else {"claims": told}


def columns_told(sink: DeltaSink) -> dict[str, Any]:
    """As ``conditions_told``, of column selectors and masks; the salt is a reference."""
    found = {
        "column_selectors": [asdict(each) for each in sink.column_selectors],
        "column_masks": [asdict(each) for each in sink.column_masks],
        "mask_salt": sink.mask_salt,
    }
    return {name: each for name, each in found.items() if each}


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
        filters=filters_of(changefeed),
        start_id=start_id,
    )


def settled_row(
    stored: ChangefeedRow,
    changefeed: Changefeed,
    shape: SourceShape,
    source: Source,
    start_id: str | None = None,
) -> ChangefeedRow:
    """The row with which this start goes on, from the claimed one. Raises SourceLost if a part has
    another identity, or if one that was not read yet no longer has everything. Asks the source.

    ``start_id``: in a cluster, the ID of the creation or resume that said where to start; each has
    its own. With one that the row does not have yet, the changefeed goes to its start-ts."""
    row = _begun(stored, changefeed, start_id)
    if not row.source_positions:  # where it begins, an operator has said
        refuse_far_ahead("start-ts", row.checkpoint_ts, source)
    state = _state(row, changefeed)
    if state != "finished" and _is_elsewhere(row, shape, source):
        return replace(
            row,
            state=state,
            # While tables are loaded an incarnation more would look like a rewind.
            incarnation=row.incarnation + (state != "loading"),
            target_ts=changefeed.target_ts,
            row_rules=row_rules(changefeed),
            start_id=start_id or row.start_id,
        )
    unknown = shape.parts - row.source_positions.keys()
    first = source.beginnings(unknown) if unknown else {}
    if state != "finished":  # a finished one reads nothing more, so nothing can be missing
        reached = stored.checkpoint_ts if stored.source_positions else None  # None: just claimed
        source.refuse_a_hole(first, checkpoint_ts=row.checkpoint_ts, reached_ts=reached)
    positions = {**first, **row.source_positions}
    if is_at_least_once(changefeed.source) and not row.source_positions:  # perhaps rewound
        is_same = shape.identities.items() & stored.source_identities.items()
        row = replace(row, watermarks=begun_again(stored.watermarks, dict(is_same), first))
    # The positions of a finished one stay, whatever the source is by now: so do their identities.
    known = row.source_identities if state == "finished" else {}
    return replace(
        row,
        state=state,
        target_ts=changefeed.target_ts,
        source_positions={part: positions[part] for part in shape.identities},
        source_identities=dict(known or shape.identities),
        error=None,
        error_code=None,
        row_rules=row_rules(changefeed),
        start_id=start_id or row.start_id,
    )


def _is_elsewhere(row: ChangefeedRow, shape: SourceShape, source: Source) -> bool:
    """Whether the positions are of another source, with which it can go on (`gone_on`). Raises what
    ``Source.goes_on`` raises."""
    place = recorded_place(row)
    return source.goes_on(place, shape, 0).identities != place.identities


def recorded_place(row: ChangefeedRow) -> RecordedPlace:
    return RecordedPlace(
        positions=row.source_positions, identities=row.source_identities, marks=row.watermarks
    )


def gone_on(row: ChangefeedRow, source: Source, reached_ts: int) -> ChangefeedRow:
    """The row with its place in the source as it is now; the same object if it is there. To be
    called when the tables are sealed: ``reached_ts`` is the highest ts of one. Tables that were
    copied may show changes up to the end of the copy. Raises what ``Source.goes_on`` raises."""
    if row.state == "finished":
        return row
    place = recorded_place(row)
    found = source.goes_on(place, source.shape(), max(reached_ts, row.loaded_ts or 0))
    if found is place:
        return row
    return replace(
        row,
        source_positions=found.positions,
        source_identities=found.identities,
        watermarks=found.marks,
        read_positions={},
        end_positions={},
        messages_behind=None,
        error=None,
        error_code=None,
    )


def _begun(stored: ChangefeedRow, changefeed: Changefeed, start_id: str | None) -> ChangefeedRow:
    if not stored.has_begun:
        return _begun_first(stored, changefeed, start_id)
    refuse_other_routes(stored, changefeed)
    refuse_other_numbers(stored, changefeed)
    wanted = fingerprint(changefeed)
    rewind = _rewind_ts(stored, changefeed, start_id)
    if rewind is not None:
        logger.info("rewinding checkpoint_ts=%d to_ts=%d", stored.checkpoint_ts, rewind)
        return replace(
            stored,
            incarnation=stored.incarnation + 1,
            fingerprint=wanted,
            filters=filters_of(changefeed),
            state="rewinding",
            start_ts=rewind,
            checkpoint_ts=rewind,
            resolved_ts=rewind,
            max_published_ts=max(stored.max_published_ts, stored.checkpoint_ts),
            loaded_ts=None,
            source_positions={},
            watermarks={},
            source_identities={},
        )
    if stored.fingerprint != wanted and stored.source_positions:
        logger.info("the configuration changed: a new incarnation goes on where the old one was")
        return replace(
            stored,
            incarnation=stored.incarnation + 1,
            fingerprint=wanted,
            filters=filters_after(stored, changefeed),
        )
    # Of a copy nobody but the load has written, which is over.
    return replace(stored, fingerprint=wanted, filters=filters_after(stored, changefeed))


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
        if not stored.source_positions:  # its tables were copied, and it goes on there
            return None
        if stored.start_id is None:  # a row of a `run`: it goes on
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
    if row.checkpoint_ts >= row.max_published_ts:
        return "running"
    return "loading" if row.checkpoint_ts < (row.loaded_ts or 0) else "rewinding"


class KeptFresh:
    """Refreshes the row of a claimed term from a thread of its own: before the owner writes more,
    it asks a source that may be away, reads dead letters, seals tables. Else the row would look as
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


def claim_term(
    context: RoleContext,
    ownership: Ownership,
    closing: threading.Event,
    kept: KeptFresh,
    on_wait: Callable[[str], None],
) -> ChangefeedRow:
    """Claim the next term in the three tables of changefeeds, progress and snapshots. Returns the
    changefeed's row as this owner is to use it; it is not saved yet. ``on_wait`` gets a sentence
    where it waits for an owner that may be alive.

    Raises what ``Changefeeds.claim`` and ``settled_row`` raise, and SourceLost for positions
    that are gone."""
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
    context.source.keep_to(claimed.source_identities)
    shape = context.source.shape()
    row = settled_row(claimed, changefeed, shape, context.source, start_id)
    if row.state == "finished":  # it reads nothing more: its data may be deleted
        logger.info("finished already checkpoint_ts=%d", row.checkpoint_ts)
    elif row.source_identities == shape.identities:
        context.source.check(row.source_positions, row.checkpoint_ts)
    return row


def _start_id(context: RoleContext, ownership: Ownership) -> str | None:
    """A new ID for each time that an operator has said where to start. It holds the etcd's ID,
    since each etcd counts epochs anew. None for a `run`, whose arguments say where to start."""
    if context.start_epoch is None:
        return None
    etcd = ownership.etcd_cluster_id
    return f"{etcd}/{context.start_epoch}/{context.changefeed.start_ts}"
