"""The result of one Spark job that reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordination.model import TableName, Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind
from streaming.source.positions import Positions
from streaming.source.resolved.limits import NOTHING_READ, Limits, Marks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """The result of one Spark job: complete, in order, and beginning where the read before ended.

    Positions name the next message to read: ``begin`` is included, ``end`` is not.
    """

    begin: Positions  # of the parts that were read
    end: Positions
    position: Positions  # of all parts, after this read
    watermarks: Limits  # after this read
    blocks: tuple[Block, ...]
    messages: int  # how many it covers, about
    rows_wait: bool  # whether there was more to read than this
    job_ms: float
    ends_ms: float = 0.0  # time to ask the source for the ends, before the job
    owner: object | None = None  # whose limits number it; None: those that are stored

    @property
    def has_more_than_watermarks(self) -> bool:
        return any(each.kind not in (Kind.WATERMARK, Kind.DONE) for each in self.blocks)

    def first_ts(
        self, above: int = 0, ended: Mapping[TableName, Ts] | None = None
    ) -> dict[TableName, Ts]:
        """The least commit-ts of each table's rows, wanted or not. If a block begins at or below
        ``above`` and ends beyond, its rows may begin later than this says.

        ``ended``: by table name; rows up to this ts belong to a dropped table. A block that also
        has later rows counts by its last row."""
        first: dict[TableName, Ts] = {}
        for block in self.blocks:
            if block.kind is Kind.ROW and block.min_ts is not None and (block.max_ts or 0) > above:
                ts, old_ts = max(block.min_ts, above + 1), (ended or {}).get(block.name, 0)
                if ts <= old_ts:
                    ts = block.max_ts or 0
                if ts > old_ts:
                    first[block.name] = Ts(min(ts, first.get(block.name, ts)))
        return first

    def last_ts(self) -> Ts:
        """The greatest commit-ts of its rows; 0 without any."""
        rows = [block.max_ts or 0 for block in self.blocks if block.kind is Kind.ROW]
        return Ts(max(rows, default=0))


def nothing_read(position: Positions) -> Read:
    """A read without a message, for other news."""
    return Read(
        begin={},
        end={},
        position=position,
        watermarks=NOTHING_READ,
        blocks=(),
        messages=0,
        rows_wait=False,
        job_ms=0.0,
    )


def reached(blocks: Iterable[Block]) -> dict[str, int]:
    """Where the next read of each part begins, as its DONE block says."""
    return {block.part: block.last for block in blocks if block.kind is Kind.DONE}


def marks_of(blocks: tuple[Block, ...]) -> Marks:
    """The greatest watermark of each part, with the position of its last one."""
    marks: dict[str, RecordedWatermark] = {}
    for block in blocks:
        if block.kind is Kind.WATERMARK and block.max_ts is not None:
            before = marks.get(block.part)
            if before is None or before.ts <= block.max_ts:
                marks[block.part] = RecordedWatermark(
                    ts=block.max_ts, position=block.last, token=block.token
                )
    return marks
