"""The right to write a changefeed's rows in a control table: its term, which the table stores as a
transaction identity.

The identity ``tidelake/<changefeed>/term`` outlives overwrites, checkpoints and log clean-up. A
claim is a commit. So a writer that opened the table before the claim loses its next
compare-and-set, looks again, and is refused. ``tidelake/<changefeed>/incarnation`` does the same
for writers without a term.
"""

from __future__ import annotations

from coordination.errors import TermRefused
from sinks.control.control_table import Change, ControlTable, TableView


def term_app_id(changefeed_id: str) -> str:
    """The identity's name in ``progress`` and ``snapshots``; its version is the term."""
    return f"tidelake/{changefeed_id}/term"


def incarnation_app_id(changefeed_id: str) -> str:
    """The identity's name in ``dead_letters``; its version is the incarnation."""
    return f"tidelake/{changefeed_id}/incarnation"


def claim(
    table: ControlTable, changefeed_id: str, term: int, incarnation: int | None = None
) -> None:
    """Commit the term to the table, and the incarnation with it. Makes the table if there is none.
    Raises TermRefused if the table holds a newer term."""
    identities = {term_app_id(changefeed_id): term}
    if incarnation is not None:
        identities[incarnation_app_id(changefeed_id)] = incarnation

    def plan(view: TableView) -> Change | None:
        stored = view.transaction(term_app_id(changefeed_id)) or 0
        if stored > term:
            raise term_refused(changefeed_id, term, stored, table.uri)
        if all(view.transaction(app) == version for app, version in identities.items()):
            return None
        return Change(transactions=identities)

    table.commit(plan, "claim the term in")


def check_term(table: ControlTable, view: TableView, changefeed_id: str, term: int) -> None:
    """For plans: raises TermRefused unless the version that the commit follows holds exactly our
    term."""
    stored = view.transaction(term_app_id(changefeed_id))
    if stored != term:
        raise term_refused(changefeed_id, term, stored, table.uri)


def incarnation_refused(changefeed_id: str, incarnation: int, stored: int, uri: str) -> TermRefused:
    """The error of a process that still works for an incarnation that is over."""
    return TermRefused(
        f"changefeed {changefeed_id}: incarnation {incarnation} is over, {uri} belongs to "
        f"incarnation {stored}: it was rewound, or its configuration changed. Nothing to repair; "
        "this one begins anew."
    )


def term_refused(changefeed_id: str, term: int, stored: int | None, uri: str) -> TermRefused:
    """The error that tells an operator why our term is refused. ``stored``: the term that the table
    holds instead, None for nothing."""
    if stored is not None and stored > term:
        return TermRefused(
            f"changefeed {changefeed_id}: our term {term} was overtaken by term {stored} in {uri}: "
            "another capture replicates it now. Nothing has to be repaired: this capture stands "
            "by, and claims the changefeed when the other one is gone. If you did not start a "
            "second capture, look for it by capture_id there."
        )
    return TermRefused(
        f"changefeed {changefeed_id}: {uri} does not hold our term {term} (it holds {stored}): it "
        "was removed or restored under a running capture, which claims a new term."
    )
