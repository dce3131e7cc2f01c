"""Debezium's JSON, of TiCDC or of its own connectors: messages in, blocks out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.compressed import texts_of
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.debezium.envelope import keyed, opened
from streaming.protocols.debezium.frames import Sides
from streaming.protocols.debezium.plain_rows import read_plain
from streaming.protocols.debezium.strict_parser import read
from streaming.protocols.json_text.own_times import numbers_in
from streaming.protocols.json_text.quote_scanner import Mask
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.rows.blocks import Collector, with_clocks

# When the connector has read it: later than the database's own time, but in the order of the log
# over all topics, and finer than a binlog's seconds. It stands behind ``source``, which is found as
# a whole: a row's columns may have any names.
_READ_MS = (
    r'(?s)"source":\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\},'
    r'(?:"transaction":(?:null|\{[^{}]*\}),)?(?:"op":"[a-z]",)?"ts_ms":(?P<ms>[0-9]{1,15})'
)
# Else the database's time, behind the connector's name.
_SOURCE_MS = r'"source":\{(?:"(?:version|connector|name)":"[^"\\]*",)*"ts_ms":(?P<ms>[0-9]{1,15})'


_SENDER: Final = re.compile(
    rb'"connector": ?"(?:mysql|mariadb)", ?"name": ?"(?P<name>(?:[^"\\]|\\.)*+)"'
)
_DDL = r'(?s)"ddl"|"op": ?"t"'
LOSS: Final = (
    "protocol=debezium: the connectors send a TRUNCATE TABLE with skipped.operations=none alone, "
    "and not by default, so that rows of a truncated table stay; rows that were deleted between "
    "two snapshots of a connector stay too. `tidelake diff` finds them"
)


def own_ms(values: pa.Array) -> pa.Int64Array:
    """When each change was read from its log, or made. Part of what numbers depend on: it must stay
    as it is.

    A tombstone goes on from the DELETE before it: by the later time that Kafka has for it, it would
    bring the rows behind it above a DDL of another topic."""
    found = numbers_in(values, _READ_MS)
    if not found.null_count:
        return found
    untold = found.is_null()
    found = pc.replace_with_mask(found, untold, numbers_in(values.filter(untold), _SOURCE_MS))
    untold = pc.indices_nonzero(found.is_null())
    if not len(untold):
        return found
    is_none = np.zeros(len(values), np.bool_)
    is_none[untold] = list(map(_is_tombstone, values.take(untold).to_pylist()))
    return pc.if_else(pa.array(is_none), 0, found)


def _is_tombstone(message: bytes | None) -> bool:
    try:
        return message is None or not keyed(message)[1]
    except Malformed:
        return False


def are_ddls(values: pa.Array) -> Mask:
    """Which messages are DDLs, as `strict_parser` has it; not one that is compressed."""
    found = np.zeros(len(values), np.bool_)
    told = pc.indices_nonzero(pc.match_substring_regex(values, _DDL))
    found[told] = list(map(_is_ddl, values.take(told).to_pylist()))
    return found


def _is_ddl(message: bytes) -> bool:
    try:
        payload = opened(keyed(message)[1]).payload
        return "ddl" in payload or payload.get("op") == "t"
    except Malformed:
        return False


def are_texts(messages: pa.Array) -> Mask:
    """Messages whose value is not compressed, those without one too."""
    if not pa.types.is_binary(messages.type):
        messages = messages.cast(pa.binary())
    sides = Sides.of(messages)
    first = np.frombuffer(sides.buffer, np.uint8).take(sides.values, mode="clip")
    found: Mask = ~sides.is_whole | (first == ord("{"))
    return found


def texts(messages: Sequence[bytes | None]) -> Iterator[bytes | None]:
    """The messages with the text of their value. One that cannot be inflated stays as it is."""
    cut = [_cut(message) for message in messages]
    for (head, _), text in zip(cut, texts_of(value for _, value in cut), strict=True):
        yield text if head is None else head + (text or b"")


def _cut(message: bytes | None) -> tuple[bytes | None, bytes | None]:
    """What stands before the value, and the value; None and the message, if it is not framed."""
    try:
        if message is not None:
            _, value = keyed(message)
            return message[: len(message) - len(value)], value
    except Malformed:
        pass
    return None, message


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position. Tombstones and heartbeats are in none."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    collector = Collector(messages, wanted)
    at, events = [], []
    numbers = messages.commit_ts
    for place in read_plain(messages, collector).tolist():
        value = messages.values[place].as_py()
        if value is not None:
            event = read(value, None if numbers is None else numbers[place].as_py())
            if event is not None:
                at.append(place)
                events.append(event)
    collector.keep_each(np.array(at, np.int64), events)
    if numbers is None:
        return collector.blocks()
    sender = sender_of(messages.values)
    if sender is None and len(messages) > 1:  # of two: each half by itself
        half = len(messages) // 2
        parts = (messages.part_of(0, half), messages.part_of(half, len(messages) - half))
        return chain.from_iterable(decode(each, wanted, start_ts=start_ts) for each in parts)
    return (replace(each, sender=sender or "") for each in collector.blocks())


def sender_of(values: pa.BinaryArray) -> str | None:
    """The ``topic.prefix`` of the connector that has written these messages; "": they do not tell;
    None: there are two. Messages of one connector have the same bytes there."""
    told = next((found for each in values if (found := _SENDER.search(each.as_py() or b""))), None)
    if told is None:
        return ""
    has = pc.match_substring(values, told[0])
    others = values.filter(pc.invert(pc.fill_null(has, True)))
    names = {found["name"] for each in others if (found := _SENDER.search(each.as_py()))}
    return told["name"].decode(errors="replace") if names <= {told["name"]} else None
