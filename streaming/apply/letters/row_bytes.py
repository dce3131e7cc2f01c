"""The bytes of a row's dead letter: as much of its message as tells this one row.

what lies at its position ──its index, its commit-ts, the head of its block──► bytes that stand
                                                                               for themselves
bytes ──letter_decoder──► blocks
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from conf.sources.binlog_uri import BINLOG
from conf.sources.large_messages import LargeMessages
from streaming.protocols.contract import (
    BAD_BODY,
    Block,
    Decoder,
    Kind,
    Messages,
    Wanted,
    ipc,
)
from streaming.protocols.decoders import (
    ProtocolDecoder,
    letter_decoder_of,
    letter_of,
    one_message_each,
    reads_messages,
)
from streaming.protocols.rows.parsed_message import CLAIM_CHECK
from streaming.source.binlog.format.letters import letter_blocks, letters_of
from streaming.source.outside.claimed_rows import with_claimed_rows


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row of a message, by its index. ``head``: of its block (`contract.LETTER_HEAD`)."""

    index: int
    commit_ts: int
    head: bytes | None


LARGE: Final = CLAIM_CHECK  # the error class of rows whose file was not there
Options = tuple[tuple[str, str], ...]
Alone = Callable[[bytes, Sequence[FailedRow]], Sequence[bytes]]  # of a message, for each row


def whole_messages(message: bytes, rows: Sequence[FailedRow]) -> list[bytes]:
    return [message] * len(rows)


def rows_alone(protocol: str) -> Alone:
    """How the messages of a protocol are cut to one row each."""
    if protocol == BINLOG:
        return _binlog_rows
    if not reads_messages(protocol):
        return whole_messages

    def alone(message: bytes, rows: Sequence[FailedRow]) -> Sequence[bytes]:
        found = one_message_each(protocol, message, [row.index for row in rows])
        return [
            each if row.head is None else letter_of(protocol, row.head, each, row.commit_ts)
            for row, each in zip(rows, found, strict=True)
        ]

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
    """Decodes what `rows_alone` has cut, and whole messages. Nothing else is read: rows in
    claim-check storage have their key alone."""
    if protocol == BINLOG:
        return letter_blocks
    return letter_decoder_of(protocol) if reads_messages(protocol) else Unread(protocol)


def whole_row_decoder(protocol: str, large: LargeMessages, options: Options) -> Decoder:
    """The same, with rows from claim-check storage (``options``: as `with_claimed_rows` has them).
    Raises ConfigError; and the decoder raises OSError where that storage does not answer."""
    decode = letter_decoder(protocol)
    if not isinstance(decode, ProtocolDecoder):
        return decode
    return with_claimed_rows(decode, large, options)


@dataclass(frozen=True, slots=True)
class Unread:
    """The decoder of a protocol whose letters cannot be read once more: it says so of each."""

    protocol: str

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:  # noqa: ARG002
        count = len(messages)
        if not count:
            return
        why = f"dead letters of protocol={self.protocol} are not replayed: rewind to below it"
        columns = [messages.positions, [0] * count, ["unread"] * count, [why] * count]
        numbers = messages.positions.to_pylist()
        yield Block(
            kind=Kind.BAD,
            part=messages.part,
            rows=count,
            first=numbers[0],
            last=numbers[-1],
            body=ipc(pa.table([*columns, messages.values], schema=BAD_BODY)),
        )
