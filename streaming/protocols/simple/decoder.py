"""simple, decoded in Arrow: messages in, blocks out. In JSON here, in Avro by ``avro_decoder``.

A row tells the version of its table's schema, and no types: BOOTSTRAP and DDL messages tell the
schema, and become blocks or parts of blocks. So a decoder needs none: cells stay texts, and whoever
knows the schema casts them (``contract.Cells.ENCODED``).

DDLs, watermarks and BOOTSTRAPs come in every partition of a topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.message_heads import TEXT, Heads, by_head
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes, Text
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.rows.blocks import Collector, with_clocks
from streaming.protocols.rows.side_by_side import read_table
from streaming.protocols.simple.avro_decoder import START, take_avro
from streaming.protocols.simple.row_template import HeadWalk, Template
from streaming.protocols.simple.strict_parser import read

_HEADS: Final = Heads.of(rf'\{{"version":1,"database":{TEXT},"table":{TEXT},"tableID":')
_START: Final = b'{"version":1,"database":"'


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """As `canal_json.decoder.decode`."""
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    values = messages.values
    collector = Collector(messages, wanted)
    is_avro = pc.fill_null(pc.starts_with(values, START), False).to_numpy(zero_copy_only=False)
    take_avro(values, np.flatnonzero(is_avro), collector)
    if is_avro.all():
        return collector.blocks()
    begins = pc.fill_null(pc.starts_with(values, _START), False)
    likely = are_plain(values, begins.to_numpy(zero_copy_only=False))
    groups, others = by_head(values, np.flatnonzero(likely), _HEADS)
    single = [np.flatnonzero(~likely & ~is_avro), others]
    for head, positions in groups.items():
        single.append(_read_group(values, head, positions, collector))
    at = np.sort(np.concatenate(single))
    each = (read(value.as_py()) for value in some(values, at))
    collector.keep_each(at, each)
    return collector.blocks()


def _read_group(
    values: pa.BinaryArray, head: bytes, positions: Indexes, collector: Collector
) -> Indexes:
    """Reads the plain messages; returns the positions of the rest."""
    try:
        fields = parse(head + b"0}")
    except Malformed:
        return positions
    name = TableName(fields["database"], fields["table"])
    if not name.table:
        return positions
    if name not in collector.wanted:
        return _count(values, head, name, positions, collector)

    def template_of(place: int) -> Template | None:
        return Template.of(values[place].as_py(), head)

    return read_table(values, positions, name, template_of, collector)


def _count(
    values: pa.BinaryArray, head: bytes, name: TableName, positions: Indexes, collector: Collector
) -> Indexes:
    quotes = head.count(b'"') - head.count(b'\\"')
    walk = HeadWalk(Text.of(some(values, positions)), head, quotes)
    _, commit_ts = walk.op_and_ts()
    walk.is_right &= walk.at < walk.text.ends
    if walk.is_right.any():
        collector.count(name, positions[walk.is_right], commit_ts[walk.is_right])
    return positions[~walk.is_right]
