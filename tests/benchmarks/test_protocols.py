"""The messages that the bench of protocols makes are read as what they were made from."""

from __future__ import annotations

from tests.benchmarks import maxwell_messages as maxwell
from tests.benchmarks import protocol_messages as made
from tests.benchmarks.protocols import check, of_messages, of_text
from tests.benchmarks.workload import make_changes


def test_each_protocol_leads_to_the_same_rows() -> None:
    history = make_changes(1_000, 500, recent=True)
    changes = made.changes_of(history)
    topics = {**made.sent_of(history, changes), **maxwell.sent_of(changes)}
    for protocol, sent in topics.items():
        check(protocol, of_messages(protocol, sent, changes)(), changes)
    for protocol, text in made.files_of(history, changes).items():
        check(protocol, of_text(protocol, text)(), changes)
