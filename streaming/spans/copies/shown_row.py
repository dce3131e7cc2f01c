"""What a changefeed's row says while its tables are copied."""

from __future__ import annotations

from conf.settings import Changefeed
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.earlier_owner import ChangefeedState
from sinks.control.warehouse import ControlTables
from streaming.owner.start_point import first_row


def show_in_row(
    changefeed: Changefeed,
    state: ChangefeedState,
    fresh_for_s: float | None,
    error: str | None = None,
) -> None:
    """Say that the tables are copied (``loading``), for so many seconds, or that nobody does it now
    (``stopped``, or ``failed`` with the error). A row that has been read from stays as it is."""
    table, id_ = ControlTables.of(changefeed.sink).changefeeds, changefeed.id

    def may(row: ChangefeedRow) -> bool:
        return not row.term and not row.source_positions

    def shown(row: ChangefeedRow) -> ChangefeedRow:
        return row.showing(state, error)

    if table.read(id_) is None:
        table.begin(first_row(changefeed))
    table.show(id_, shown, may=may, fresh_for_s=fresh_for_s)
