"""Who may write a changefeed's rows: its term, stored as a transaction identity of the table.

``tidelake/<changefeed>/term`` outlives overwrites, checkpoints and log clean-up. A claim is a
commit, so each handle that was opened before it loses its next compare-and-set, looks again, and is
refused.
"""

from __future__ import annotations

from coordination.errors import TermRefused
from sinks.control_table import Change, ControlTable, TableView


def term_app_id(changefeed_id: str) -> str:
    """The identity's name in ``progress`` and ``snapshots``; its version is the term."""
    return f"tidelake/{changefeed_id}/term"


def claim_term(table: ControlTable, changefeed_id: str, term: int) -> None:
    """Commit the term to the table; TermRefused if a newer one is there."""

    def plan(view: TableView) -> Change | None:
        stored = view.transaction(term_app_id(changefeed_id)) or 0
        if stored > term:
            raise term_refused(changefeed_id, term, stored, table.uri)
        if stored == term:
            return None
        return Change(transactions={term_app_id(changefeed_id): term})

    table.commit(plan, "claim the term in")


def check_term(table: ControlTable, view: TableView, changefeed_id: str, term: int) -> None:
    """TermRefused unless the version that is about to be committed on holds exactly our term."""
    stored = view.transaction(term_app_id(changefeed_id))
    if stored != term:
        raise term_refused(changefeed_id, term, stored, table.uri)


def term_refused(changefeed_id: str, term: int, stored: int | None, uri: str) -> TermRefused:
    """The sentence that an operator reads, by what the table holds instead of our term."""
    if stored is not None and stored > term:
        return TermRefused(
            f"changefeed {changefeed_id}: our term {term} was overtaken by term {stored} in {uri}: "
            "another capture replicates it now. Nothing to repair; this capture starts again as a "
            "standby. If you did not start a second one, look for it by capture_id there."
        )
    return TermRefused(
        f"changefeed {changefeed_id}: {uri} does not hold our term {term} (it holds {stored}): it "
        "was removed or restored under a running capture, which starts again and claims a new term."
    )
