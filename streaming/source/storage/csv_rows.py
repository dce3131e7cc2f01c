"""csv in files. Imports neither Spark nor gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from streaming.protocols.clocks import latest_ts
from streaming.protocols.contract import Block, Wanted
from streaming.protocols.csv.decoder import Text, decode_text
from streaming.source.storage.slices_task import SliceText


@dataclass(frozen=True, slots=True)
class CsvRows:
    """See `slices_task.RowDecoder`."""

    start_ts: int

    def __call__(self, of: SliceText, wanted: Wanted, *, most_rows: int) -> Iterator[Block]:
        assert of.head is not None, "the columns of csv"
        text = Text(
            part=of.part,
            text=of.text,
            position=of.position,
            head=of.head,
            is_first=of.is_first,
            is_whole=of.is_whole,
        )
        return decode_text(
            text,
            wanted,
            latest_ts=latest_ts(time.time() * 1e3),
            start_ts=self.start_ts,
            most_rows=most_rows,
        )
