"""maxwell: messages that their reader has numbered, blocks out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.compressed import begin_as_texts, texts_of
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.own_times import numbers_in
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.maxwell.plain_rows import Objects, read_plain
from streaming.protocols.maxwell.strict_parser import FIRST_TSO, read
from streaming.protocols.rows.blocks import Collector, Parts, with_clocks
from streaming.protocols.rows.side_by_side import Kept

LOSS: Final = (
    "protocol=maxwell: messages have no types, so each table needs its CREATE TABLE from the "
    "stream, or --schema-file. TiCDC's encoder fails at UPDATEs of tables with binary columns, at "
    "a VECTOR that is NULL and at CREATE DATABASE: what it did not send is not here. Maxwell's "
    "daemon sends no TRUNCATE and no CREATE INDEX, DDLs with output_ddl=true alone, and NULL for "
    "an ENUM's empty text and for the JSON document null. canal-json has them all"
)
_TS = r'"ts": ?(?P<ms>[0-9]{1,18})'
_TS_OF = re.compile(_TS.encode())
_FIRST_MS: Final = 100_000_000_000  # in 1973; below it are seconds, up to the year 5138
_TSO_MS: Final = 1 << 18


def own_ms(values: pa.Array) -> pa.Int64Array:
    """When each change was made: ``ts``, seconds of a row, ms of a DDL of the daemon's, a commit-ts
    of one of TiCDC's. Part of what numbers depend on: it must stay as it is."""
    if begin_as_texts(values).all():
        told = numbers_in(values, _TS)
    else:
        found = (each and _TS_OF.search(each) for each in texts_of(values.to_pylist()))
        told = pa.array([int(each["ms"]) if each else None for each in found], pa.int64())
    is_tso = pc.greater_equal(told, FIRST_TSO)
    seconds = pc.multiply(pc.min_element_wise(told, _FIRST_MS, skip_nulls=False), 1_000)
    ms = pc.if_else(pc.less(told, _FIRST_MS), seconds, told)
    return pc.if_else(is_tso, pc.divide(told, _TSO_MS), ms)


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position. What is about no table is in none, and so is a
    DDL's message beyond the first partition."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    assert messages.commit_ts is not None
    numbers, kept = messages.commit_ts.to_numpy(), Kept(wanted)
    objects = Objects.of(messages.values)
    of = objects.message
    is_plain = np.ones(len(messages), np.bool_)
    is_plain[of[read_plain(objects.values, numbers[of], kept)]] = False
    alone = np.flatnonzero(~is_plain)  # with all their objects
    is_first_part = messages.part.rpartition("/")[2] in ("", "0")
    found = [
        read(value.as_py(), number, is_first_part=is_first_part)
        for value, number in zip(some(messages.values, alone), numbers[alone].tolist(), strict=True)
    ]
    counts = np.bincount(of, minlength=len(messages))
    counts[alone] = [len(each) for each in found]
    sizes = pc.fill_null(pc.binary_length(messages.values), 0).to_numpy().astype(np.int64)
    collector = Collector(messages, wanted, Parts.of(counts, sizes))
    first = np.cumsum(counts) - counts  # the place of each message's first event
    for name, shape, rows in kept.rows:
        rows = rows.take(np.flatnonzero(is_plain[of[rows.positions]]))
        at = rows.positions
        collector.take(name, shape, replace(rows, positions=first[of[at]] + objects.index[at]))
    for name, at, commit_ts in kept.counted:
        good = is_plain[of[at]]
        if good.any():
            at, commit_ts = at[good], commit_ts[good]
            collector.count(name, first[of[at]] + objects.index[at], commit_ts)
    told = [
        (first[at] + n, event)
        for at, events in zip(alone.tolist(), found, strict=True)
        for n, event in enumerate(events)
        if event is not None
    ]
    collector.keep_each(np.array([at for at, _ in told], np.int64), [each for _, each in told])
    return collector.blocks()
