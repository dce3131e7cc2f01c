"""When a DELETE of avro was that has no commit-ts (TiCDC up to 8.5). Pure.

It is later than the last row of its table in its partition, and than the last watermark there. It
gets the ts right above both. So it comes behind the row that it deletes, and before any later row
of that key. A part counts as resolved by the watermarks of others too, and what is read behind that
is above those. Where nothing was read before it, it is above the table's checkpoint. Where the next
row of its table in its chunk has a lower ts, TiCDC has begun again: it is not above that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from coordination.model import TableName
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import BELOW, UNTIMED, Block, ChunkState, Kind, Wanted, ipc


@dataclass(slots=True)
class PartTimes:
    """The last ts of a part up to where it was read."""

    position: int = -1
    watermark: int = 0
    watermark_by: int = -1  # it is at or before this position
    tables: dict[TableName, int] = field(default_factory=dict)

    def told(self, state: ChunkState, last: int) -> None:
        if state.watermark:
            self.watermark, self.watermark_by = state.watermark, last
        for schema, table, ts in state.tables:
            self.tables[TableName(schema, table)] = ts


def timed(
    blocks: Sequence[Block],
    parts: dict[str, PartTimes],
    wanted: Wanted,
    marks: Mapping[str, RecordedWatermark],
) -> Iterator[Block]:
    """The blocks of a read, which come by rising position in each part, without STATE blocks.
    ``parts`` is brought to the end of the read; what it has is of the messages right before.
    ``marks``: the limits' of each part, which a part may have without a watermark of its own."""
    for block in blocks:
        times = parts.setdefault(block.part, PartTimes())
        if block.kind is Kind.STATE:
            times.told(ChunkState.of(block), block.last)
            continue
        if block.kind is Kind.DONE:
            times.position = block.last
        if block.token == UNTIMED and block.kind is Kind.ROW:
            yield _timed(block, times, wanted, marks.get(block.part))
        else:
            yield block


def _timed(block: Block, times: PartTimes, wanted: Wanted, mark: RecordedWatermark | None) -> Block:
    body = block.table()
    above = times.tables.get(block.name, wanted[block.name].above_ts)
    told = body["commit_ts"].to_numpy()  # the watermark before it in its chunk; 0: none
    before = np.full(len(told), times.watermark)
    if mark is not None and mark.position >= times.watermark_by:
        is_later = body["position"].to_numpy() > mark.position
        before = np.where(is_later, np.maximum(before, mark.ts), before)
    above_ts = np.maximum(np.where(told > 0, told, before), above)
    commit_ts = np.minimum(above_ts, body[BELOW].to_numpy()) + 1
    body = body.drop_columns([BELOW])
    at = body.schema.get_field_index("commit_ts")
    body = body.set_column(at, body.schema.field(at), pa.array(commit_ts, pa.int64()))
    times.tables[block.name] = int(commit_ts[-1])
    return replace(
        block,
        token="",
        min_ts=int(commit_ts.min()),
        max_ts=int(commit_ts.max()),
        body=ipc(body),
    )
