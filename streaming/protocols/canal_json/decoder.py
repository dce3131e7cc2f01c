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
from streaming.protocols.rows.blocks import Collector, key_of, with_clocks

_HEADS: Final = Heads.of(
    rf'\{{"id":0,"database":{TEXT},"table":{TEXT},'
    rf'"pkNames":(?:null|\[(?:{TEXT}(?:,{TEXT})*)?\]),"isDdl":false,"type":"'
)
_START: Final = b'{"id":0,"database":"'
_OPS: Final = pa.array([b'INSERT"', b'UPDATE"', b'DELETE"'], pa.binary())
_COMMIT_TS: Final = r'"_tidb":\{"commitTs":(?P<ts>[1-9][0-9]{0,17})\}\}$'
_END_BYTES: Final = 48  # of a message in which its commit-ts stands
FEW: Final = 48  # so many are read sooner one by one
PART_BYTES: Final = 4 << 20  # of messages that are read at once: larger ones leave the caches
_MAX_TEMPLATES: Final = 16
_MAX_SAMPLES: Final = 16


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
    rest = positions
    skipped: list[Indexes] = []
    for _ in range(_MAX_TEMPLATES):
        if len(rest) < FEW:
            break
        template, samples = _template(values, rest, len(head))
        skipped.append(rest[:samples])
        rest = rest[samples:]
        if template is None:
            break
        key = key_of(template.shape, collector.wanted[name])
        is_left = np.ones(len(rest), np.bool_)
        size = max(FEW, len(values) * PART_BYTES // max(1, values.nbytes))
        for first in range(0, len(rest), size):
            part = rest[first : first + size]
            here = some(values, part)
            fits = np.flatnonzero(template.fits(here))
            if len(fits):
                rows, plain = template.read(some(here, fits), part[fits], key)
                collector.take(name, template.shape, rows)
                is_left[first + fits[plain]] = False
        if is_left[0]:
            skipped.append(rest[:1])
            is_left[0] = False
        rest = rest[is_left]
    return np.concatenate([*skipped, rest])


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


def _template(values: pa.BinaryArray, rest: Indexes, head: int) -> tuple[Template | None, int]:
    """The template of the first plain message, and the number of messages before it."""
    for samples, position in enumerate(rest[:_MAX_SAMPLES].tolist()):
        template = Template.of(values[position].as_py(), head)
        if template is not None:
            return template, samples
    return None, 0
