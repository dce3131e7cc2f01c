"""The driver's side of a read of a recording: which lines are next, and the job that reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from coordination.errors import ConfigError
from streaming.jobs.port import Jobs
from streaming.protocols.contract import Block, Decoder, Kind
from streaming.protocols.decoders import DdlMask, OwnTimes
from streaming.source.block_job import BlockJob, ReadFailed
from streaming.source.contract import ReadOrder, SourceLost
from streaming.source.positions import Positions
from streaming.source.recording.file import RecordingFile, recording_file
from streaming.source.recording.lines_task import Lines, LinesTask
from streaming.source.resolved.numbering import NumberedDecoder, lead
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.source.task_results import ReadFailure

TASK_BYTES: Final = 64 << 20  # of the file
FEW_BYTES: Final = 1 << 20  # one task reads so few as fast as several tasks would


class RecordingReader:
    """See `contract.Reader`."""

    def __init__(
        self,
        jobs: Jobs,
        path: str,
        decode: Decoder,
        *,
        name: str,
        own_ms: OwnTimes | None = None,
        are_ddls: DdlMask | None = None,
    ) -> None:
        if not jobs.are_within:
            raise ConfigError(
                f"source-uri: {path} is a file on this machine, and Spark's executors are on "
                "others: replay a recording with a local master"
            )
        self._path = path
        self._decode = decode
        self._own_ms = own_ms  # None: the messages have a commit-ts
        self._are_ddls = are_ddls
        self._job = BlockJob(jobs, name=name, source=path)

    def close(self) -> None:
        self._job.close()

    def use(self, decode: Decoder) -> None:
        """From the next read on."""
        self._decode = decode

    def beginnings(self, parts: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(parts, 0)

    def cancel(self) -> None:
        self._job.cancel()

    def read(self, order: ReadOrder) -> list[Block]:
        """Lines of all parts lie in one file, so all parts are read up to the same line."""
        there, ends, messages = order.there, order.ends, order.messages
        if not there:
            return []
        file = recording_file(self._path)
        if file.identity not in order.identities.values():
            raise SourceLost(f"{self._path} has changed while it was read: start again")
        first = min(there.values())
        end = max(ends[part] for part in there)
        if order.first_messages and end - first > 2 * order.first_messages:
            messages = min(messages, order.first_messages)
        last = _reached(file, first, min(end, first + messages), self._job.tasks)
        until = {part: min(last, ends[part]) for part, at in there.items() if at < last}
        decode: Decoder | NumberedDecoder = self._decode
        positions, tasks = {p: there[p] for p in until}, self._job.tasks
        if self._own_ms is not None:  # in order, from the pins on
            assert isinstance(order.limits, PinnedLimits)
            pins = {part: order.limits.numbering(part) for part in positions}
            decode = NumberedDecoder(
                self._decode, self._own_ms, pins, positions, are_ddls=self._are_ddls
            )
            positions, tasks = lead(pins, positions), 1
            first = min(positions.values())
        lists = list(_lists(file, first, last, tasks))
        task = LinesTask(file.plain, lists, positions, decode, order.wanted, self._job.folder)
        found = self._job.run(task, len(lists), f"lines {first + 1} to {last} of {self._path}")
        return list(_in_order(file, found, there, until))


def _reached(file: RecordingFile, first: int, last: int, tasks: int) -> int:
    """The line before which a read ends, so that its tasks hold no more than they may."""
    room = int(file.starts[first]) + tasks * TASK_BYTES
    return min(last, max(first + 1, int(np.searchsorted(file.starts, room, side="right")) - 1))


def _lists(file: RecordingFile, first: int, last: int, tasks: int) -> Iterator[Lines]:
    begin, end = int(file.starts[first]), int(file.starts[last])
    count = tasks if end - begin > FEW_BYTES else 1
    cuts = np.searchsorted(file.starts, np.linspace(begin, end, count + 1)[1:-1])
    bounds = sorted({first, *(int(each) for each in cuts if first < each < last), last})
    for low, high in pairwise(bounds):
        yield Lines(low, high, int(file.starts[low]), int(file.starts[high]))


def _in_order(
    file: RecordingFile, found: list[Block | ReadFailure], begin: Positions, until: Positions
) -> Iterator[Block]:
    by_part: defaultdict[str, list[Block]] = defaultdict(list)
    for each in found:
        if isinstance(each, ReadFailure):
            error = SourceLost if each.is_unreadable else ReadFailed
            raise error(f"{file.path} cannot be read: {each.reason}")
        by_part[each.part].append(each)
    for part, end in sorted(until.items()):
        yield from by_part[part]
        yield Block(
            kind=Kind.DONE,
            part=part,
            rows=file.count(part, begin[part], end),
            first=begin[part],
            last=end,
            message_bytes=sum(each.message_bytes for each in by_part[part]),
        )
