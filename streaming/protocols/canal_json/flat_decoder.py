"""canal-json without the TiDB extension, and Alibaba Canal's own flat messages: messages that their
reader has numbered, blocks out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.canal_json.flat_parser import read
from streaming.protocols.canal_json.plain_rows import read_plain
from streaming.protocols.compressed import begin_as_texts, texts_of
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.own_times import numbers_in
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.rows.blocks import Collector, Parts, with_clocks
from streaming.protocols.rows.side_by_side import Kept

_ES = r'"es":(?P<ms>[0-9]{1,15})'
_EXTENSION: Final = b',"_tidb":{"commitTs":'
_ES_OF = re.compile(_ES.encode())


def own_ms(values: pa.Array) -> pa.Int64Array:
    """When each change was made, by ``es``. Part of what numbers depend on: it must stay as it
    is."""
    if begin_as_texts(values).all():
        return numbers_in(values, _ES)
    found = (each and _ES_OF.search(each) for each in texts_of(values.to_pylist()))
    return pa.array([int(each["ms"]) if each else None for each in found], pa.int64())


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    assert messages.commit_ts is not None
    values, kept = messages.values, Kept(wanted)
    rest = read_plain(_with_extension(values, messages.commit_ts), kept)
    numbers = messages.commit_ts.to_numpy()
    found = [
        read(value.as_py(), int(numbers[at]))
        for at, value in zip(rest.tolist(), some(values, rest), strict=True)
    ]
    counts = np.ones(len(messages), np.int64)
    counts[rest] = [len(each) for each in found]
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    collector = Collector(messages, wanted, Parts.of(counts, sizes))
    first = np.cumsum(counts) - counts  # the place of each message's first event
    for name, shape, rows in kept.rows:
        collector.take(name, shape, replace(rows, positions=first[rows.positions]))
    for name, positions, commit_ts in kept.counted:
        collector.count(name, first[positions], commit_ts)
    places = [first[at] + n for at, each in zip(rest, found, strict=True) for n in range(len(each))]
    events = [event for each in found for event in each]
    collector.keep_each(np.array(places, np.int64), events)
    return collector.blocks()


def _with_extension(values: pa.BinaryArray, commit_ts: pa.Int64Array) -> pa.BinaryArray:
    """As TiCDC would have written them with its extension. What is no such message, or has an
    extension already, is none then either, and is read as it is."""
    numbers = commit_ts.cast(pa.string()).cast(pa.binary())
    heads = pc.binary_slice(values, 0, -1)
    return pc.binary_join_element_wise(
        heads, pa.scalar(_EXTENSION, pa.binary()), numbers, pa.scalar(b"}}", pa.binary()), b""
    )
