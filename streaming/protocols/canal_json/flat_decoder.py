"""canal-json without the TiDB extension, and Alibaba Canal's own flat messages: messages that their
reader has numbered, blocks out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.canal_json.flat_parser import read
from streaming.protocols.compressed import begin_as_texts, texts_of
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.own_times import numbers_in
from streaming.protocols.rows.blocks import Collector, Parts, with_clocks

_ES = r'"es":(?P<ms>[0-9]{1,15})'
_CREATE = r'"isDdl":true,(?:.*,)?"type":"CREATE"'
_SECOND = 1_000
_ES_OF = re.compile(_ES.encode())


def own_ms(values: pa.Array) -> pa.Int64Array:
    """When each change was made, by ``es``. Part of what numbers depend on: it must stay as it is.

    Canal has whole seconds. Rows of the second of their CREATE TABLE would be older than the table
    where they are in another partition: so that comes a second before."""
    found = _es(values)
    is_create = pc.fill_null(pc.match_substring_regex(values, _CREATE), False)
    is_whole = pc.equal(pc.multiply(pc.divide(found, _SECOND), _SECOND), found)
    earlier = pc.and_(is_create, pc.fill_null(is_whole, False))
    return pc.if_else(earlier, pc.subtract(found, _SECOND), found)


def _es(values: pa.Array) -> pa.Int64Array:
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
    numbers = messages.commit_ts.to_pylist()
    found = [read(each.as_py(), ts) for each, ts in zip(messages.values, numbers, strict=True)]
    counts = np.array([len(each) for each in found], np.int64)
    sizes = pc.fill_null(pc.binary_length(messages.values), 0).to_numpy().astype(np.int64)
    collector = Collector(messages, wanted, Parts.of(counts, sizes))
    events = [event for each in found for event in each]
    collector.keep_each(np.arange(len(events)), events)
    return collector.blocks()
