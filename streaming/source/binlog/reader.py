"""The driver's side of a read of a binlog: the next whole transactions, as blocks."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from streaming.protocols.contract import DDL_BODY, Block, Kind, Wanted, ipc
from streaming.source.binlog.database import Database
from streaming.source.binlog.failover.log_search import LogSearch
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.control.statements import query
from streaming.source.binlog.format.events import event_at
from streaming.source.binlog.format.faults import BadEvent, Refused
from streaming.source.binlog.format.type_codes import EventType
from streaming.source.binlog.log_scan import XaLog
from streaming.source.binlog.log_tail import LogTail, Stretch
from streaming.source.binlog.position import BinlogPosition
from streaming.source.binlog.slice_task import SliceTask
from streaming.source.binlog.statement_effect import ddl_of
from streaming.source.binlog.walk.log_walk import Damaged, RefusedAt, Walked
from streaming.source.block_job import BlockJob, ReadFailed
from streaming.source.contract import ReadOrder
from streaming.source.resolved.commit_clock import Pin, pin_at, to_token
from streaming.source.resolved.gtid_sets import Trail
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.source.task_results import ReadFailure

if TYPE_CHECKING:
    from streaming.jobs.port import Jobs

logger = logging.getLogger(__name__)

STRETCH_BYTES: Final = 16 << 20
READ_BYTES: Final = 64 << 20
FEW_BYTES: Final = 1 << 20
EVENT_BYTES: Final = 100  # about


class BinlogReader:
    """See `contract.Reader`."""

    def __init__(
        self,
        database: Database,
        jobs: Jobs,
        *,
        part: str,
        start_ts: int,
        name: str,
    ) -> None:
        self._database = database
        self._part = part
        self._start_ts = start_ts
        self._tail: LogTail | None = None
        self._pins: list[Pin] = []  # of the tail, since the last end of a whole transaction
        self._xa = XaLog(database)
        self._job = BlockJob(jobs, name=name, source="the binlog")

    def close(self) -> None:
        self._end_tail()
        self._job.close()

    def _end_tail(self) -> None:
        tail, self._tail, self._pins = self._tail, None, []
        if tail is not None:
            tail.close()

    def cancel(self) -> None:
        self._job.cancel()
        self._xa.cancel()
        tail = self._tail
        if tail is not None:
            tail.cancel()

    def read(self, order: ReadOrder) -> list[Block]:
        part = self._part
        first, end = order.begin[part], order.ends[part]
        if end <= first:
            return []
        assert isinstance(order.limits, PinnedLimits)
        pins, most = order.limits.numbering(part), order.first_messages or order.messages
        try:
            return list(self._blocks(first, end, order.wanted, pins, most))
        except BadEvent as error:
            self._end_tail()
            at = error.position if isinstance(error, Damaged) else first
            where = self._database.name_of(at)
            raise ReadFailed(f"the binlog from {where} on cannot be read: {error}") from error
        except RefusedAt as error:
            self._end_tail()
            where = self._database.name_of(error.position)
            raise Refused(f"the binlog has at {where} {error.what}") from error
        except BaseException:
            self._end_tail()  # what it has taken from its connection is not handed over
            raise

    def _blocks(
        self, first: int, end: int, wanted: Wanted, known: Sequence[Pin], messages: int
    ) -> Iterator[Block]:
        tail = self._tail_at(first, known)
        most = min(READ_BYTES, messages * EVENT_BYTES)
        slices: list[Slice] = []
        seen = size = 0
        while tail.place.position <= first or (size < most and tail.place.position < end):
            stretch = tail.next(end, known, STRETCH_BYTES)
            if stretch is None:
                break
            walked = stretch.walked
            self._pins += walked.pins
            size += len(stretch.data)
            seen += len(walked.at) + len(walked.statements)
            slices += self._slices(stretch, first)
            for each in self._xa.committed(stretch, known, first=first, above_ts=self._start_ts):
                slices.append(each)
                if sum(len(slice_.data) for slice_ in slices) >= READ_BYTES:  # a large transaction
                    yield from self._decoded(slices, wanted)
                    slices = []
            yield from self._ddls(stretch, first)
            self._tell_of_rolled_back(walked)
        yield from self._decoded(slices, wanted)
        place = tail.place
        if not place.open_ts:
            pin = Pin(place.position, place.after_ts, made_s=place.made_s, trail=place.trail)
            pins, self._pins = [*self._pins, pin], []
            yield Block(
                kind=Kind.WATERMARK,
                part=self._part,
                rows=1,
                min_ts=place.after_ts + 1,
                max_ts=place.after_ts + 1,
                first=place.position,
                last=place.position,
                token=to_token(pins),
            )
        yield Block(
            kind=Kind.DONE,
            part=self._part,
            rows=seen,
            first=first,
            last=place.position,
            message_bytes=size,
        )

    def _tail_at(self, first: int, known: Sequence[Pin]) -> LogTail:
        """The tail that stands at this position; or a new one, before it. The rows of an XA
        transaction may be from before the first reading: it began at the first pin."""
        if self._tail is not None:
            if self._tail.place.position == first:
                return self._tail
            self._end_tail()
        before = int(BinlogPosition(self._database.facts().files.lift + 1, 0))
        here = [pin for pin in known if pin.position >= before]  # of this server's log
        pin = pin_at(here, first) or here[0]
        self._xa.begin_at(pin.position)
        if pin.trail is None:
            gtids = LogSearch(self._database).before(pin.position)
            pin = pin._replace(trail=None if gtids is None else Trail(gtids))
            self._pins.append(pin._replace(is_needed=False))  # it is stored, but for the trail
        self._tail = LogTail(self._database.settings, self._database.facts(), pin)
        return self._tail

    def _slices(self, stretch: Stretch, first: int) -> list[Slice]:
        """The stretch's events about rows from the position ``first`` on, if there are any."""
        walked, facts = stretch.walked, self._database.facts()
        is_ours = walked.position >= first
        if not is_ours.all():  # TABLE_MAPs hold for the events behind them
            kinds = np.frombuffer(stretch.data, np.uint8)[walked.at + 4]
            is_ours |= kinds == EventType.TABLE_MAP
        if not is_ours.any():
            return []
        return [
            Slice(
                data=stretch.data,
                at=walked.at[is_ours],
                position=walked.position[is_ours],
                commit_ts=walked.commit_ts[is_ours],
                maps=walked.maps,
                checksum=walked.checksum,
                is_mariadb=facts.is_mariadb,
                charsets=facts.charsets,
            )
        ]

    def _decoded(self, slices: Sequence[Slice], wanted: Wanted) -> Iterator[Block]:
        """A few bytes here: a job takes longer to start. More by the executors, side by side."""
        if sum(len(each.data) for each in slices) < FEW_BYTES:
            for each in slices:
                yield from row_blocks(each, self._part, wanted)
            return
        files = [self._spooled(each) for each in slices]
        sent = [
            each if file is None else replace(each, data=b"")
            for each, file in zip(slices, files, strict=True)
        ]
        task = SliceTask(
            slices=sent, files=files, part=self._part, wanted=wanted, folder=self._job.folder
        )
        size = sum(len(each.data) for each in slices)
        for found in self._job.run(task, len(slices), f"{size >> 20} MiB of the binlog"):
            if isinstance(found, ReadFailure):
                raise (Refused if found.is_unreadable else ReadFailed)(found.reason)
            yield found

    def _spooled(self, slice_: Slice) -> str | None:
        """The file with the slice's bytes; None where executors do not see it, or it cannot be
        written. It goes with the job."""
        if self._job.folder is None:
            return None
        try:
            handle, path = tempfile.mkstemp(prefix="binlog-", dir=self._job.folder)
            with open(handle, "wb") as file:
                file.write(slice_.data)
        except OSError:  # a full disk: the bytes go with the task
            return None
        return path

    def _tell_of_rolled_back(self, walked: Walked) -> None:
        if walked.rolled_back:
            logger.warning(
                "%d transactions before %s were rolled back after they had written to tables "
                "without transactions (MyISAM, say): those rows are not replicated",
                *(walked.rolled_back, self._database.name_of(walked.place.position)),
            )

    def _ddls(self, stretch: Stretch, first: int) -> Iterator[Block]:
        walked, facts = stretch.walked, self._database.facts()
        found = []
        for at, position, commit_ts in walked.statements:
            if position >= first and commit_ts > self._start_ts:
                event = event_at(stretch.data, at, checksum=walked.checksum)
                told = query(event, facts.charsets)
                ddl = ddl_of(
                    told,
                    is_mariadb=facts.is_mariadb,
                    lower_names=facts.lower_names,
                    omits_generated=facts.omits_generated,
                )
                if ddl is not None:
                    row = (position, 0, ddl.name.schema, ddl.name.table, ddl.kind, ddl.text)
                    found.append((commit_ts, *row))
        if not found:
            return
        columns = [list(column) for column in zip(*found, strict=True)]
        stamps = columns[0]
        yield Block(
            kind=Kind.DDL,
            part=self._part,
            rows=len(found),
            min_ts=min(stamps),
            max_ts=max(stamps),
            first=min(columns[1]),
            last=max(columns[1]),
            body=ipc(pa.table([*columns, [None] * len(found)], schema=DDL_BODY)),
        )
