"""All live rows of a table as new files of a new shape, a part of the table at a time.

A part is some small data files or a large one. Its result depends on nothing but the part. So parts
can be done anywhere, and again: the names of the files are new each time. No commit names these
files yet. Files of a part that fails, or whose result nobody took, are orphans, which upkeep
deletes. A part holds a slice of its rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter.new_metadata import NewMetadata, RewrittenColumn
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import DeletedRows
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.files.statistics import rows_in
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import NotForThisEngine, PhysicalSchema
from sinks.storage.table_storage import TableStorage
from sinks.target.write_mode import ROW_DELETED
from sinks.types.text_arrays import CastRules
from sinks.types.type_changes import CannotConvert

Part = TypeVar("Part")
Result = TypeVar("Result")


class PartMapper(Protocol):
    def __call__(
        self, work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int, /
    ) -> Generator[Result]:
        """The results in the order of the parts. Raises the error of the first part for which
        ``work`` raises one. Close it if not all results are taken: that ends the work.

        ``work`` and ``parts`` can be pickled. A part may be done more than once, also side by side,
        and one result of it counts. ``size_bytes``: the size of all data files that the whole work
        reads.
        """
        ...


def one_by_one(
    work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
) -> Generator[Result]:
    """A `PartMapper` that does them on the caller's thread, as their results are asked for."""
    yield from map(work, parts)


SLICE_BYTES = 128 << 20  # of rows in memory, before they are converted
SLICE_ROWS = 1_000_000
PART_BYTES = 64 << 20  # of data files; with `SLICE_ROWS` some seconds of work


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRewrite:
    """Writes the live rows of some data files anew. Can be pickled.

    CannotConvert names the column and the first value that has no place in its new type.
    ``ddl_ms``: when the DDL was, for a column that old rows get its time in.
    """

    uri: str
    open_place: Callable[[str], TableStorage]  # a `StorageOpener`, so that it can be pickled
    new: NewMetadata
    key: tuple[str, ...]  # the new files are sorted by it, each slice by itself
    rules: CastRules
    ddl_ms: int
    null_dates: frozenset[str] = frozenset()  # as of ``TableDdl``

    def __call__(self, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        storage = self.open_place(self.uri)
        located, shape = FileLocations(storage, self.open_place), self.new.shape
        order_by = self.key or (_any_column(shape),)
        written: list[DataFile] = []
        try:
            for rows in in_slices(self._live(located, files)):
                columns = [self._column(each, rows) for each in self.new.columns]
                made = pa.Table.from_arrays(columns, schema=shape.schema)
                made = self._keyed(made)
                written += [each.file for each in write_sorted(storage, made, order_by, shape)]
        except BaseException:
            with suppress(OSError):  # it would hide what went wrong
                storage.delete(each.path for each in written)
            raise
        return tuple(written)

    def _live(self, located: FileLocations, files: Iterable[DataFile]) -> Iterator[pa.Table]:
        """The live rows, by physical names."""
        sources = [each.source for each in self.new.columns if each.source is not None]
        wanted = list(dict.fromkeys(sources))
        for file in files:
            dead = DeletedRows.read(located, file, data_files.count_rows(located, file)).mask
            yield from data_files.read_live_pieces(located, file, dead, wanted, SLICE_ROWS)

    def _keyed(self, rows: pa.Table) -> pa.Table:
        """Without the rows that were deleted and have no new key. Raises where others have none."""
        if not self.new.key_changes:
            return rows
        by_name = {column.name: column.physical for column in self.new.shape.columns}
        full = [name for name in self.key if name not in self.new.zero_dates]
        keys = [rows[by_name[name]] for name in full]
        if not any(each.null_count for each in keys):
            return rows
        if ROW_DELETED in by_name:
            is_whole = reduce(pc.and_, (each.is_valid() for each in keys))
            rows = rows.filter(pc.or_(is_whole, pc.invert(rows[by_name[ROW_DELETED]])))
        if any(rows[by_name[name]].null_count for name in full):
            raise TidelakeError(
                f"its key becomes ({', '.join(self.key)}), and some rows have NULL in it, or a "
                "date that is NULL here (zero-date): replicate the table anew, or keep it as it is "
                "with [filter] rules"
            )
        return rows

    def _had_dates(self, of: RewrittenColumn) -> bool:
        """Whether its NULLs may be dates that have a value again in another type."""
        return of.origin.source in self.null_dates and not pa.types.is_temporal(of.column.arrow)

    def _column(self, of: RewrittenColumn, rows: pa.Table) -> pa.Array:
        source = None
        if of.source is not None:
            source = data_files.one_array(rows[of.source.physical], of.source.arrow)
        how = of.column.arrow, self.rules, self.ddl_ms
        if source is not None and source.null_count and self._had_dates(of):
            raise TidelakeError(
                f"column {of.origin.name}: dates that Delta does not have are NULL in it "
                "(zero-date), and the database's new value of each is not known: replicate the "
                "table anew"
            )
        try:
            return of.origin.values(source, rows.num_rows, *how)
        except CannotConvert:
            mark = next(
                (each for each in self.new.columns if each.column.name == ROW_DELETED), None
            )
            if source is None or mark is None or mark.source is None:
                raise
            # TiDB had no deleted rows to convert: their values need no place, as when they come
            # again after a rewind.
            alive = pc.invert(data_files.one_array(rows[mark.source.physical], pa.bool_()))
            there = source.filter(alive)
            of.origin.values(there, len(there), *how)
            return of.origin.values(source, rows.num_rows, *how, is_strict=False)


def rewrite(
    work: PartRewrite, files: Sequence[DataFile], map_parts: PartMapper
) -> Iterator[DataFile]:
    """The new files of these, as their parts are done."""
    parts = parts_of(files)
    with closing(map_parts(work, parts, sum(each.size for each in files))) as found:
        for _, made in zip(parts, found, strict=True):  # none without its result: lost rows
            yield from made


def parts_of(files: Iterable[DataFile]) -> list[tuple[DataFile, ...]]:
    """In order: small files together, until they are as many rows or bytes as a part has."""
    parts: list[tuple[DataFile, ...]] = []
    part: list[DataFile] = []
    rows = size = 0
    for each in files:
        part.append(each)
        rows, size = rows + (rows_in(each.stats) or 0), size + each.size
        if rows >= SLICE_ROWS or size >= PART_BYTES:
            parts.append(tuple(part))
            part, rows, size = [], 0, 0
    return [*parts, tuple(part)] if part else parts


def _any_column(shape: PhysicalSchema) -> str:
    """A column by which rows without a key are sorted."""
    for column in shape.columns:
        if not pa.types.is_list(column.arrow):
            return column.name
    raise NotForThisEngine("it has no column that rows can be sorted by")


def in_slices(parts_of_rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, small parts together."""
    parts: list[pa.Table] = []
    rows = size = 0
    for part in parts_of_rows:
        parts.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= SLICE_ROWS or size >= SLICE_BYTES:
            yield pa.concat_tables(parts)
            parts, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(parts)
