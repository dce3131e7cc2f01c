"""Rows that TiCDC writes as it always does, many at a time; those of other tables are counted."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from streaming.protocols.canal_json.row_template import Template
from streaming.protocols.json_text.message_heads import TEXT, Heads, by_head
from streaming.protocols.json_text.plain_text import are_plain, some
from streaming.protocols.json_text.quote_scanner import Indexes, Mask
from streaming.protocols.json_text.strict_json import Malformed, parse
from streaming.protocols.rows.side_by_side import Taking, read_table

_HEADS: Final = Heads.of(
    rf'\{{"id":0,"database":{TEXT},"table":{TEXT},'
    rf'"pkNames":(?:null|\[(?:{TEXT}(?:,{TEXT})*)?\]),"isDdl":false,"type":"'
)
_START: Final = b'{"id":0,"database":"'
_OPS: Final = pa.array([b'INSERT"', b'UPDATE"', b'DELETE"'], pa.binary())
_COMMIT_TS: Final = r'"_tidb":\{"commitTs":(?P<ts>[1-9][0-9]{0,17})\}\}$'
_END_BYTES: Final = 48  # of a message in which its commit-ts stands


def read_plain(values: pa.BinaryArray, taking: Taking) -> Indexes:
    """Returns the places of the messages that are left, in order."""
    begins = pc.fill_null(pc.starts_with(values, _START), False)
    likely = are_plain(values, begins.to_numpy(zero_copy_only=False))
    groups, others = by_head(values, np.flatnonzero(likely), _HEADS)
    single = [np.flatnonzero(~likely), others]
    for head, positions in groups.items():
        single.append(_read_group(values, head, positions, taking))
    return np.sort(np.concatenate(single))


def _read_group(values: pa.BinaryArray, head: bytes, positions: Indexes, taking: Taking) -> Indexes:
    """Reads the plain messages; returns the positions of the rest."""
    try:
        fields = parse(head + b'"}')
    except Malformed:
        return positions
    name = TableName(fields["database"], fields["table"])
    if not name.table:
        return positions
    if name not in taking.wanted:
        return _count(values, len(head), name, positions, taking)

    def template_of(place: int) -> Template | None:
        return Template.of(values[place].as_py(), len(head))

    return read_table(values, positions, name, template_of, taking)


def _count(
    values: pa.BinaryArray, head: int, name: TableName, positions: Indexes, taking: Taking
) -> Indexes:
    here = some(values, positions)
    is_row = pc.is_in(pc.binary_slice(here, head, head + 7), _OPS)
    found = pc.extract_regex(pc.binary_slice(here, -_END_BYTES, 1 << 30), _COMMIT_TS)
    counted = pc.and_(is_row, found.is_valid())
    at: Mask = counted.to_numpy(zero_copy_only=False)
    if at.any():
        commit_ts = found.filter(counted).field("ts").cast(pa.string()).cast(pa.int64())
        taking.count(name, positions[at], commit_ts.to_numpy())
    return positions[~at]
