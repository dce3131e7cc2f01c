"""Tables that another writer has brought back to an older state, as a start finds them (rule 5).

``row``: the table's progress row, ``feed``: the changefeed's, ``state``: the table at ``uri``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from coordination.errors import TidelakeError
from coordination.model import NO_TS, TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import BLOCKED, ProgressRow
from sinks.merge_on_write.log.brought_back import BroughtBack, LogNow, look
from sinks.storage.errors import one_sentence
from sinks.storage.open_storage import open_storage
from sinks.target.engine_port import LastSeen, TableBroughtBack, Target
from sinks.target.target_table import TargetState, inspect
from streaming.changefeed.replicated_table import NO_DDL, ReplicatedTable


class BroughtBackTables:
    """Looks into their logs. A finding is kept as long as the table stays as it is."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._found: dict[str, tuple[LastSeen, LogNow, BroughtBack | None]] = {}

    def find(
        self, uri: str, row: ProgressRow, state: TargetState, app_id: str
    ) -> BroughtBack | None:
        """The hold on a table that was right as the row says. Reads the commits since."""
        if row.delta_version is None:
            return None
        was = None if row.identity_ts is None else Ts(row.identity_ts)
        last = LastSeen(row.delta_version, was)
        identity = state.identity(app_id)
        if last.version == state.version and (identity or NO_TS) >= (was or NO_TS):
            return None
        now = LogNow(version=state.version, identity=identity, properties=state.properties)
        known_last, known_now, found = self._found.get(uri, (None, None, None))
        if (known_last, known_now) != (last, now):
            with one_sentence("read the Delta log of", uri):
                found = look(open_storage(uri, self._options), last, now)
            self._found[uri] = last, now, found
        return found

    def before(
        self, uri: str, row: ProgressRow, found: BroughtBack, state: TargetState
    ) -> TargetState:
        """The table as the row knows it: the DDL that made it tells its span from others of its
        name. The present ``state`` if its log does not have that version any more."""
        if found.known_version is not None:
            return state
        with suppress(TidelakeError):
            return inspect(uri, self._options, row.delta_version) or state
        return state

    def refuse(self, uri: str, row: ProgressRow, state: TargetState, span: ReplicatedTable) -> None:
        """Raises TableBroughtBack, also where that was since ``span`` was opened."""
        known = max(filter(None, (span.version, row.delta_version)), default=None)
        if span.target is not None:
            row = replace(row, delta_version=known)
            if (found := self.find(uri, row, state, span.target.app_id)) is not None:
                raise TableBroughtBack(found.sentence(span.name))


def blocked_table(
    why: str, row: ProgressRow, state: TargetState, target: Target | None
) -> ReplicatedTable:
    """The table as its row knows it; nothing of it moves. ``why``: the sentence for an operator."""
    return ReplicatedTable(
        name=row.name,
        checkpoint=Ts(row.checkpoint_ts),
        target=target,
        version=row.delta_version,
        identity=None if row.identity_ts is None else Ts(row.identity_ts),
        created_ts=state.ddl.commit_ts if state.ddl else NO_DDL,
        state=BLOCKED,
        error=why,
        null_dates=row.null_dates,
        dropped=row.dropped_columns,
    )


def refuse_unless_healed(
    name: TableName, found: BroughtBack, row: ProgressRow, feed: ChangefeedRow
) -> None:
    """For a table that begins a new incarnation: only a rewind that is low enough may pass, since
    no later start would see the older state."""
    is_rewinding = feed.state == "rewinding" and row.incarnation < feed.incarnation
    if not is_rewinding or feed.checkpoint_ts > (found.whole_ts or feed.checkpoint_ts):
        raise TidelakeError(found.sentence(name))
