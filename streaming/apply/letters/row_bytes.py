"""The bytes of a row's dead letter: as much of its message as tells this one row.

what lies at its position ──its index, its commit-ts, the head of its block──► bytes that stand
                                                                               for themselves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streaming.protocols.decoders import has_messages, one_message_each


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row of a message, by its index. ``head``: of its block (`contract.LETTER_HEAD`)."""

    index: int
    commit_ts: int
    head: bytes | None


Alone = Callable[[bytes, Sequence[FailedRow]], Sequence[bytes]]  # of a message, for each row


def whole_messages(message: bytes, rows: Sequence[FailedRow]) -> list[bytes]:
    return [message] * len(rows)


def rows_alone(protocol: str) -> Alone:
    """How the messages of a protocol are cut to one row each."""

    if not has_messages(protocol):
        return whole_messages

    def alone(message: bytes, rows: Sequence[FailedRow]) -> Sequence[bytes]:
        return one_message_each(protocol, message, [row.index for row in rows])

    return alone
