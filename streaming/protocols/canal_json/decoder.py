"""canal-json with the TiDB extension, decoded in Arrow: messages in, blocks out.

Each message takes one of three ways. Rows of a wanted table that are written as TiCDC writes them
are read many at a time (``row_template.py``). Rows of other tables are counted by their head and
their end alone. Everything else, and whatever does not turn out to be plain, is read one by one
(``strict_parser.py``), which says what a message means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from streaming.protocols.canal_json.flat_decoder import decode as decode_flat
from streaming.protocols.canal_json.row_template import Template
from streaming.protocols.canal_json.strict_parser import read
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.message_heads import TEXT, Heads, by_head
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes, Mask
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.rows.alike import read_alike
from streaming.protocols.rows.blocks import Collector, key_of, with_clocks

_HEADS: Final = Heads.of(
    rf'\{{"id":0,"database":{TEXT},"table":{TEXT},'
    rf'"pkNames":(?:null|\[(?:{TEXT}(?:,{TEXT})*)?\]),"isDdl":false,"type":"'
)
_START: Final = b'{"id":0,"database":"'
_OPS: Final = pa.array([b'INSERT"', b'UPDATE"', b'DELETE"'], pa.binary())
_COMMIT_TS: Final = r'"_tidb":\{"commitTs":(?P<ts>[1-9][0-9]{0,17})\}\}$'
_END_BYTES: Final = 48  # of a message in which its commit-ts stands


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position; rows at or below a table's ``above_ts`` are in
    none. A watermark block ends (``last``) where its greatest watermark stands last. ``start_ts``:
    where an operator had the changefeed begin, which is as good a clock as the messages'."""
    if messages.commit_ts is not None:
        return decode_flat(messages, wanted, start_ts=start_ts)
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    values = messages.values
    collector = Collector(messages, wanted)
    begins = pc.fill_null(pc.starts_with(values, _START), False)
    likely = are_plain(values, begins.to_numpy(zero_copy_only=False))
    groups, others = by_head(values, np.flatnonzero(likely), _HEADS)
    single = [np.flatnonzero(~likely), others]
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
        fields = parse(head + b'"}')
    except Malformed:
        return positions
    name = TableName(fields["database"], fields["table"])
    if not name.table:
        return positions
    if name not in collector.wanted:
        return _count(values, len(head), name, positions, collector)

    def take(template: Template, part: Indexes) -> Indexes:
        here = some(values, part)
        fits: Indexes = np.flatnonzero(template.fits(here))
        if not len(fits):
            return fits
        key = key_of(template.shape, collector.wanted[name])
        rows, plain = template.read(some(here, fits), part[fits], key)
        collector.take(name, template.shape, rows)
        return fits[plain]

    def template_of(place: int) -> Template | None:
        return Template.of(values[place].as_py(), len(head))

    return read_alike(values, positions, template_of, take)


def _count(
    values: pa.BinaryArray, head: int, name: TableName, positions: Indexes, collector: Collector
) -> Indexes:
    here = some(values, positions)
    is_row = pc.is_in(pc.binary_slice(here, head, head + 7), _OPS)
    found = pc.extract_regex(pc.binary_slice(here, -_END_BYTES, 1 << 30), _COMMIT_TS)
    counted = pc.and_(is_row, found.is_valid())
    at: Mask = counted.to_numpy(zero_copy_only=False)
    if at.any():
        commit_ts = found.filter(counted).field("ts").cast(pa.string()).cast(pa.int64())
        collector.count(name, positions[at], commit_ts.to_numpy())
    return positions[~at]
