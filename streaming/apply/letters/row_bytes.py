"""The bytes of a row's dead letter: as much of its message as tells this one row.

what lies at its position ──its index, its commit-ts, the head of its block──► bytes that stand
                                                                               for themselves
bytes ──letter_decoder──► blocks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conf.sources.binlog_uri import BINLOG
from streaming.protocols.contract import Decoder
from streaming.protocols.decoders import decoder_of, one_message_each
from streaming.source.binlog.format.letters import letter_blocks, letters_of


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
    if protocol == BINLOG:
        return _binlog_rows

    def alone(message: bytes, rows: Sequence[FailedRow]) -> Sequence[bytes]:
        return one_message_each(protocol, message, [row.index for row in rows])

    return alone


def _binlog_rows(event: bytes, rows: Sequence[FailedRow]) -> list[bytes]:
    """The rows of an event are of one table, and of one shape but in a compressed transaction."""
    found = dict[int, bytes]()
    for head in {row.head for row in rows}:
        ours = [(row.index, row.commit_ts) for row in rows if row.head == head]
        made = [event] * len(ours) if head is None else letters_of(event, head, ours)
        found |= {index: letter for (index, _), letter in zip(ours, made, strict=True)}
    return [found[row.index] for row in rows]


def letter_decoder(protocol: str) -> Decoder:
    """Decodes what `rows_alone` has cut, and whole messages."""
    return letter_blocks if protocol == BINLOG else decoder_of(protocol)
