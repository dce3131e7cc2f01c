"""At which ts the Delta version of each table is known exactly: what a cut may be made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordination.model import TableName, Ts
from coordination.scheduler.coordinator import SpanProgress
from sinks.changefeeds import ChangefeedRow
from sinks.progress import ProgressRow
from sinks.snapshots import SnapshotRow
from streaming.cluster.progress_rows import cut
from streaming.sink_tables import SinkTable


class KnownVersions:
    """One term's. A progress row alone does not say it: its parts only rise, each by itself."""

    def __init__(self, tables: Iterable[SinkTable] = ()) -> None:
        """``tables`` as they were resumed: identity and version of each are from one handle."""
        self._known: dict[TableName, tuple[Ts, int | None]] = {}
        self._last_ts = 0
        self.made(tables)

    def made(self, tables: Iterable[SinkTable]) -> None:
        """By the owner: nothing has been written to them since."""
        self._known |= {table.name: (table.checkpoint, table.version) for table in tables}

    def told(self, spans: Iterable[SpanProgress]) -> None:
        """By who writes them: checkpoint and version of one moment."""
        for each in spans:
            status = each.status
            if status is not None and status.delta_version is not None:
                self._known[each.span.name] = (status.checkpoint_ts, status.delta_version)

    def new_cut(
        self,
        row: ChangefeedRow,
        progress: Mapping[TableName, ProgressRow],
        floor_ts: int,
        dead_letters: int,
    ) -> SnapshotRow | None:
        """The cut at the changefeed's checkpoint, where every table was seen exactly there and that
        is above ``floor_ts`` (rule 7); once."""
        at_ts = Ts(row.checkpoint_ts)
        if at_ts <= max(floor_ts, self._last_ts) or row.state == "rewinding":
            return None
        tables = [each for each in progress.values() if each.delta_version is not None]
        if any(self._known.get(each.name) != (at_ts, each.delta_version) for each in tables):
            return None
        self._last_ts = at_ts
        return cut(row.changefeed_id, tables, at_ts, dead_letters) if tables else None
