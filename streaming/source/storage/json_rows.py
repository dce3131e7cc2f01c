"""canal-json in files: a message a line. Imports neither Spark nor gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sinks.types.casts.base64_texts import cut_out
from streaming.protocols.clocks import latest_ts
from streaming.protocols.contract import Block, Decoder, Kind, Messages, Wanted
from streaming.protocols.json_text.byte_places import places_of
from streaming.source.storage.slices_task import SliceText

CHUNK_BYTES: Final = 16 << 20
_LF, _CR = b"\n\r"


@dataclass(frozen=True, slots=True)
class JsonRows:
    """See `slices_task.RowDecoder`."""

    decode: Decoder

    def __call__(self, of: SliceText, wanted: Wanted, *, most_rows: int) -> Iterator[Block]:
        part, position = of.part, of.position
        data = np.frombuffer(of.text, np.uint8)
        nexts = places_of(data, _LF) + 1
        if of.is_whole and len(data) and (not len(nexts) or nexts[-1] < len(data)):
            nexts = np.append(nexts, len(data))  # a row that was cut off
        nexts = nexts[:most_rows]
        begins = np.concatenate([[0], nexts[:-1]]) if len(nexts) else nexts
        ends = nexts.copy()
        for end_of_line in (_LF, _CR):
            ends -= (data[ends - 1] == end_of_line) & (ends > begins)
        first = 0
        while first < len(nexts):
            last = int(np.searchsorted(nexts, begins[first] + CHUNK_BYTES, side="right"))
            some = slice(first, max(last, first + 1))
            yield from self.decode(
                Messages(
                    part=part,
                    positions=pa.array(begins[some] + position, pa.int64()),
                    values=cut_out(data, begins[some], ends[some], None),
                    latest_ts=latest_ts(time.time() * 1e3),
                ),
                wanted,
            )
            first = some.stop
        used = int(nexts[-1]) if len(nexts) else 0
        yield Block(
            kind=Kind.DONE,
            part=part,
            rows=len(nexts),
            first=position,
            last=position + used,
            message_bytes=used,
        )
