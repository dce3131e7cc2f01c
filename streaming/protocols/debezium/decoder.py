"""Debezium's JSON, of TiCDC or of its own connectors: messages in, blocks out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.debezium.strict_parser import read
from streaming.protocols.json_text.own_times import numbers_in
from streaming.protocols.rows.blocks import Collector, with_clocks

# Where Debezium writes it: behind the connector's name.
_SOURCE_MS = r'"source":\{(?:"(?:version|connector|name)":"[^"\\]*",)*"ts_ms":(?P<ms>[0-9]{1,15})'


def own_ms(values: pa.Array) -> pa.Int64Array:
    """When each change was made, by ``source.ts_ms``. Part of what numbers depend on: it must stay
    as it is."""
    return numbers_in(values, _SOURCE_MS)


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position. Tombstones and heartbeats are in none."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    numbers = messages.commit_ts
    at, events = [], []
    for place, value in enumerate(messages.values.to_pylist()):
        if value is not None:
            event = read(value, None if numbers is None else numbers[place].as_py())
            if event is not None:
                at.append(place)
                events.append(event)
    collector = Collector(messages, wanted)
    collector.keep_each(np.array(at, np.int64), events)
    return collector.blocks()
