"""The driver's side of a read: which slices of files are next, and the job that reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import groupby
from typing import Final

from coordination.model import SEALED_TS
from sinks.storage.open_storage import StorageOpener, store_variables
from streaming.jobs.port import Jobs
from streaming.protocols.contract import Block, Kind, Wanted
from streaming.protocols.csv.table_head import TableHead
from streaming.source.block_job import BlockJob, ReadFailed
from streaming.source.contract import Identities, ReadOrder
from streaming.source.positions import Positions
from streaming.source.storage.layout import (
    OFFSET_BITS,
    SCHEMAS,
    schema_position,
)
from streaming.source.storage.part_log import Slice
from streaming.source.storage.slices_task import RowDecoder, RowWork, SchemaWork, SlicesTask
from streaming.source.storage.survey import Survey
from streaming.source.storage.table_heads import NOTHING_TOLD, TableHeads, ToldColumns
from streaming.source.task_results import ReadFailure

TASK_BYTES: Final = 64 << 20  # of files
FEW_BYTES: Final = 1 << 20  # one task reads so few as fast as several tasks would
SCHEMA_FILES: Final = 1_000  # of a read
# If more than this waits, it is read in the order of its commit-ts, so that not all of it waits for
# the checkpoint-ts: files are read twice then, the first time for the least commit-ts of each.
BACKLOG_BYTES: Final = 256 << 20
LARGEST_BYTES: Final = 2 * TASK_BYTES  # a larger file is not read so


class StorageReader:
    """See `contract.Reader`."""

    def __init__(
        self,
        jobs: Jobs,
        survey: Survey,
        decode: RowDecoder,
        *,
        start_ts: int,
        name: str,
        told: ToldColumns = NOTHING_TOLD,
    ) -> None:
        self._survey = survey
        self._decode = decode
        self._start_ts = start_ts
        csv = survey.settings.csv
        self._heads = None if csv is None else TableHeads(csv, survey.texts_of, told)
        self._head_of: dict[str, TableHead] = {}  # by part
        self._opener = survey.opener
        if not jobs.are_within:  # executors elsewhere have no environment of ours
            self._opener = StorageOpener({**store_variables(), **survey.opener.options})
        self._job = BlockJob(jobs, name=name, source=survey.settings.folder)

    def close(self) -> None:
        self._job.close()

    def cancel(self) -> None:
        self._job.cancel()

    def read(self, order: ReadOrder) -> list[Block]:
        there, ends = order.there, order.ends
        if not there:
            return []
        most_rows = min(order.messages, order.first_messages or order.messages)
        with self._survey.lock:
            self._survey.refuse_gone(order.begin)
            self._check(there, order.identities)
            empty = [part for part in sorted(there) if self._is_empty(part, there, ends)]
            full = {p: at for p, at in there.items() if p not in empty}
            unnoted = self._unnoted(full, ends)
            works = [] if unnoted else self._works(full, ends, most_rows)
        if unnoted:
            self._note_ts(unnoted)
            return []
        passed = [Block(kind=Kind.DONE, part=p, first=there[p], last=ends[p]) for p in empty]
        if not works:
            return passed
        blocks = self._run(works, order.wanted, most_rows)
        return [*passed, *self._in_order(works, blocks, most_rows)]

    def _run(
        self, works: Sequence[RowWork | SchemaWork], wanted: Wanted, most_rows: int
    ) -> list[Block]:
        lists = packed(works, self._job.tasks)
        task = SlicesTask(
            opener=self._opener,
            folder=self._survey.settings.folder,
            lists=lists,
            decode=self._decode,
            wanted=wanted,
            most_rows=most_rows,
            start_ts=self._start_ts,
            bodies=self._job.folder,
        )
        what = f"{len(works)} files of {self._survey.settings.folder}"
        blocks = []
        for each in self._job.run(task, len(lists), what):
            if isinstance(each, ReadFailure):
                error = self._survey.lost if each.is_unreadable else ReadFailed
                raise error(f"{self._survey.settings.folder} cannot be read: {each.reason}")
            blocks.append(each)
        return blocks

    def _unnoted(self, there: Positions, ends: Positions) -> list[RowWork]:
        """Files of a large backlog whose least commit-ts is not known yet, as many as a job
        reads."""
        survey, works = self._survey, list[RowWork]()
        logs = {part: survey.logs[part] for part in sorted(there.keys() - {SCHEMAS})}
        waiting = (
            log.bytes_before(ends[p]) - log.bytes_before(there[p]) for p, log in logs.items()
        )
        if sum(waiting) <= BACKLOG_BYTES:
            return []
        room = self._job.tasks * TASK_BYTES
        for part, log in logs.items():
            unnoted = set() if log.least_ts(there[part]) else set(log.unnoted(there[part]))
            head = self._head(part) if unnoted else None
            for each in log.slices(log.beginning, ends[part]) if unnoted else ():
                if each.place in unnoted and each.size <= LARGEST_BYTES:
                    base = survey.packing.position(each.place, 0)
                    works.append(RowWork(part, each, base, head))
                    room -= each.size
                    if room <= 0:
                        return works
        return works

    def _note_ts(self, works: Sequence[RowWork]) -> None:
        """The rows are read and left; what they need most of, their cells, is not made."""
        least = {(work.part, work.slice.place): SEALED_TS for work in works}
        for block in self._run(works, {}, 1 << 30):
            if block.min_ts is not None:
                at = block.part, self._survey.packing.place(block.first)[0]
                least[at] = min(least[at], block.min_ts)
        with self._survey.lock:
            for work in works:
                of = work.slice
                if (log := self._survey.logs.get(work.part)) is not None:
                    log.note_ts(of.place, of.size, least[work.part, of.place])

    def _check(self, there: Positions, identities: Identities) -> None:
        known = self._survey.last.identities
        for part in there:
            recorded = identities.get(part)
            if recorded and part in known and known[part].told(recorded) != recorded:
                raise self._survey.lost(f"{part} was made again while it was read")
            log = self._survey.logs.get(part)
            if log is None and part != SCHEMAS:
                raise self._survey.lost(f"{part} is gone before it was read")
            gone = None if log is None else log.missing(there[part])
            if gone is not None:
                raise self._survey.lost(f"{part}: file {gone.index} is gone before it was read")

    def _is_empty(self, part: str, there: Positions, ends: Positions) -> bool:
        """Whether no byte lies between, as before a part's first file."""
        log = self._survey.logs.get(part)
        return log is not None and next(log.slices(there[part], ends[part]), None) is None

    def _works(
        self, there: Positions, ends: Positions, most_rows: int
    ) -> list[RowWork | SchemaWork]:
        """Whole files, and the beginning of one where they are too many. Files with rows of the
        least commit-ts come first, where that is known."""
        survey, works = self._survey, list[RowWork | SchemaWork]()
        room = min(self._job.tasks * TASK_BYTES, max(1, int(most_rows * survey.row_bytes)))
        if SCHEMAS in there:
            works.append(self._schema_work(there[SCHEMAS], ends[SCHEMAS]))
        waiting = list[tuple[int, str, Slice, Iterator[Slice]]]()

        def wait(part: str, slices: Iterator[Slice]) -> None:
            if (each := next(slices, None)) is not None:
                at = survey.packing.position(each.place, each.begin)
                heappush(waiting, (survey.logs[part].least_ts(at), part, each, slices))

        for part in there.keys() - {SCHEMAS}:
            wait(part, survey.logs[part].slices(there[part], ends[part]))
        rows = list[RowWork]()
        while waiting and room > 0:
            _, part, each, slices = heappop(waiting)
            end = min(each.end, each.begin + max(TASK_BYTES, 1))
            base = survey.packing.position(each.place, 0)
            rows.append(RowWork(part, replace(each, end=end), base, self._head(part)))
            room -= end - each.begin
            if end == each.end:
                wait(part, slices)
        return [*works, *sorted(rows, key=_part)]

    def _head(self, part: str) -> TableHead | None:
        if self._heads is None:
            return None
        if part in self._head_of:
            return self._head_of[part]
        texts = self._survey.schema_texts(part)
        if not texts:
            raise self._survey.lost(
                f"{self._survey.settings.folder}/{part} has rows, and the schema file of this "
                "version is not there: bring it back"
            )
        if len({(each.name, each.columns) for each in texts}) > 1:
            raise self._survey.lost(
                f"{self._survey.settings.folder}/{part} has several schema files of this version, "
                "as an EXCHANGE PARTITION writes them with use-table-id-as-path: which table the "
                "rows are of is not known. Load the tables anew"
            )
        head = self._head_of[part] = self._heads.of(texts[0])
        return head

    def _schema_work(self, begin: int, end: int) -> SchemaWork:
        files = [
            (each, path)
            for each, path in self._survey.schema_files.items()
            if begin <= schema_position(each.version) < end
        ]
        files.sort(key=lambda each: (each[0].version, each[1]))
        if len(files) > SCHEMA_FILES:
            end = schema_position(files[SCHEMA_FILES][0].version)
            files = [each for each in files if schema_position(each[0].version) < end]
        return SchemaWork(begin, end, files)

    def _in_order(
        self,
        works: Sequence[RowWork | SchemaWork],
        found: Sequence[Block],
        most_rows: int,
    ) -> Iterator[Block]:
        """The blocks of each part up to the first row that was not read, and its DONE block.

        Files are left out that come behind ``most_rows``: rows were smaller than it was thought."""
        blocks, done = defaultdict[str, list[Block]](list), dict[tuple[str, int], Block]()
        for block in found:
            if block.kind is Kind.DONE:
                done[block.part, block.first] = block
            else:
                blocks[block.part].append(block)
        of_rows = [each for (part, _), each in done.items() if part != SCHEMAS]
        if every := sum(each.rows for each in of_rows):
            size = sum(each.message_bytes for each in of_rows)
            self._survey.row_bytes = max(1.0, size / every)
        room = most_rows
        for part, of in groupby(works, key=_part):
            if room <= 0:
                return
            joined = self._joined(done, list(of), room, most_rows)
            here = sorted(blocks[part], key=lambda block: block.first)
            yield from (block for block in here if block.first < joined.last)
            yield joined
            room -= 0 if part == SCHEMAS else joined.rows

    def _joined(
        self,
        done: Mapping[tuple[str, int], Block],
        works: Sequence[RowWork | SchemaWork],
        room: int,
        most_rows: int,
    ) -> Block:
        """One DONE block for those of a part that were read without a hole."""
        ends = []
        for work in works:
            ends.append(done[_part(work), _begin(work)])
            if isinstance(work, RowWork) and ends[-1].last < work.base + work.slice.end:
                self._note_tail(work, ends[-1], most_rows)
                break
            if sum(each.rows for each in ends) >= room:
                break
        return replace(
            ends[-1],
            rows=sum(each.rows for each in ends),
            first=ends[0].first,
            message_bytes=sum(each.message_bytes for each in ends),
        )

    def _note_tail(self, work: RowWork, done: Block, most_rows: int) -> None:
        of = work.slice
        is_to_end = of.end == of.size or not done.rows  # as `SlicesTask.blocks` reads
        if of.is_last and is_to_end and done.rows < most_rows:
            at = done.last & ((1 << OFFSET_BITS) - 1)
            self._survey.cut_at(work.part, of.place, of.size, at)


def _part(work: RowWork | SchemaWork) -> str:
    return work.part if isinstance(work, RowWork) else SCHEMAS


def _begin(work: RowWork | SchemaWork) -> int:
    return work.base + work.slice.begin if isinstance(work, RowWork) else work.begin


def packed(works: Sequence[RowWork | SchemaWork], tasks: int) -> list[list[RowWork | SchemaWork]]:
    """Lists of about the same size. Large ones are dealt out first."""
    sizes = [
        each.slice.end - each.slice.begin if isinstance(each, RowWork) else 1 for each in works
    ]
    count = min(tasks, len(works)) if sum(sizes) > FEW_BYTES else 1
    lists, loads = [list[RowWork | SchemaWork]() for _ in range(count)], [0] * count
    for number in sorted(range(len(works)), key=lambda at: -sizes[at]):
        least = loads.index(min(loads))
        lists[least].append(works[number])
        loads[least] += sizes[number]
    return lists
