"""Parquet files of a table: writes rows, and reads keys and rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordination.errors import TidelakeError
from sinks.merge_on_write.files.statistics import rows_in, statistics_text
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn, PhysicalSchema
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_port import OP_COLUMN

OURS = "tidelake-"  # how the names of our files begin
ROW_GROUP_ROWS = 128 * 1024
SMALL_BYTES = 16 * 1024  # of rows: for fewer zstd takes as long to begin as all else of a file


def write_file(
    storage: TableStorage, rows: pa.Table, shape: PhysicalSchema, now_ms: int
) -> DataFile:
    """Write rows, which have physical column names, into a new file, in their order.

    The file is durable when this returns; no reader sees it until a commit names it.
    """
    path = f"{OURS}{uuid.uuid4()}.parquet"
    data = _parquet(rows)
    storage.write(path, data)
    return DataFile.new(
        path=path,
        size=data.size,
        modification_time_ms=now_ms,
        stats=statistics_text(rows, shape),
    )


def _parquet(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    is_small = rows.get_total_buffer_size() < SMALL_BYTES
    pq.write_table(
        rows,
        sink,
        compression="snappy" if is_small else "zstd",
        compression_level=None if is_small else 1,
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=_repeating(rows),
        store_schema=False,  # Arrow's copy of the schema would hide the column IDs
        coerce_timestamps=None,
        version="2.6",
    )
    return sink.getvalue()


def _repeating(rows: pa.Table) -> list[str] | bool:
    """The columns to write with a dictionary: those whose first values repeat, as in all others it
    costs more than it saves.

    For a large file the sample is larger: it is read more often than it is written.
    """
    sample = rows.slice(0, max(2048, rows.num_rows // 16))
    if sample.num_rows < 64:
        return False
    found = []
    for name in rows.column_names:
        column = sample[name]
        if pa.types.is_nested(column.type):
            continue
        if pc.count_distinct(column).as_py() * 4 <= sample.num_rows:
            found.append(name)
    return found or False


def physical_rows(changes: pa.Table, shape: PhysicalSchema) -> pa.Table:
    """The rows with the physical names and types of the table's files; columns are matched by name.

    A column that the rows lack is NULL: a user has just added it to the table by hand, and the
    table is refused when it is opened next. A column that the table lacks raises TidelakeError: its
    values would be lost silently.
    """
    given = dict(zip(changes.column_names, changes.columns, strict=True))
    known = {column.name for column in shape.columns}
    lost = [name for name in given if name not in known and name != OP_COLUMN]
    if lost:
        raise TidelakeError(
            f"the table has no column {', '.join(lost)} any more: it was altered by hand while it"
            " was written"
        )
    arrays = [
        given[column.name]
        if column.name in given
        else pa.chunked_array([pa.nulls(changes.num_rows, column.arrow)])
        for column in shape.columns
    ]
    return pa.Table.from_arrays(arrays, schema=shape.schema)  # casts those of another type


def read_columns(
    files: FileLocations, file: DataFile, columns: Sequence[PhysicalColumn]
) -> tuple[list[pa.Array], int]:
    """These columns of all rows, in file order and in the table's types, and the number of rows.

    A column that the file lacks is NULL: it was added to the table later.
    """
    with _opened(files, file) as parquet:
        groups = range(parquet.metadata.num_row_groups)
        return _read(parquet, groups, columns), int(parquet.metadata.num_rows)


def read_pieces(
    files: FileLocations, file: DataFile, columns: Sequence[PhysicalColumn], most_rows: int
) -> Iterator[pa.Table]:
    """Like `read_columns`, but gives tables with physical names, each of some row groups: at most
    ``most_rows`` rows, or one row group."""
    with _opened(files, file) as parquet:
        count = parquet.metadata.num_row_groups
        rows = [parquet.metadata.row_group(number).num_rows for number in range(count)]
        begin = 0
        while begin < count:
            end = begin + 1
            while end < count and sum(rows[begin : end + 1]) <= most_rows:
                end += 1
            arrays = _read(parquet, range(begin, end), columns)
            yield pa.table(arrays, names=[column.physical for column in columns])
            begin = end


def read_live_pieces(
    files: FileLocations,
    file: DataFile,
    dead: npt.NDArray[np.bool_],
    columns: Sequence[PhysicalColumn],
    most_rows: int,
) -> Iterator[pa.Table]:
    """Like `read_pieces`, without the dead rows."""
    for part in read_pieces(files, file, columns, most_rows):
        yield part.filter(pa.array(~dead[: part.num_rows]))
        dead = dead[part.num_rows :]


def read_rows(
    files: FileLocations,
    file: DataFile,
    ordinals: npt.NDArray[np.int64],
    columns: Sequence[PhysicalColumn],
) -> Iterator[pa.Table]:
    """These rows, whose ordinals rise, as tables with physical names: one for each row group that
    has some of them; other row groups are not read."""
    with _opened(files, file) as parquet:
        begin = 0
        for group in range(parquet.metadata.num_row_groups):
            end = begin + parquet.metadata.row_group(group).num_rows
            low, high = np.searchsorted(ordinals, (begin, end))
            if high > low:
                at = pa.array(ordinals[low:high] - begin)
                arrays = [
                    values.take(at) for values in _read(parquet, range(group, group + 1), columns)
                ]
                yield pa.table(arrays, names=[column.physical for column in columns])
            begin = end


def _opened(files: FileLocations, file: DataFile) -> pq.ParquetFile:
    """Spark writes timestamps as INT96: as nanoseconds, Arrow's default, the year 9999 wraps."""
    return pq.ParquetFile(files.open_input(file.path), coerce_int96_timestamp_unit="us")


def _read(
    parquet: pq.ParquetFile, groups: range, columns: Sequence[PhysicalColumn]
) -> list[pa.Array]:
    have = set(parquet.schema_arrow.names)
    rows = sum(parquet.metadata.row_group(number).num_rows for number in groups)
    wanted = [column.physical for column in columns if column.physical in have]
    table = parquet.read_row_groups(list(groups), columns=wanted, use_threads=True)
    return [
        one_array(table[column.physical], column.arrow)
        if column.physical in have
        else pa.nulls(rows, column.arrow)
        for column in columns
    ]


def one_array(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The values as one array in the table's type. A file may have another type: INT96 has no zone,
    and other writers' timestamps may have another one."""
    if values.type != kind:
        values = values.cast(kind, safe=not pa.types.is_timestamp(kind))
    found = values.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def read_live_rows(
    files: FileLocations, file: DataFile, dead: npt.NDArray[np.bool_], shape: PhysicalSchema
) -> pa.Table:
    """The rows of a file that are not ``dead``, with physical names, in file order."""
    arrays, rows = read_columns(files, file, shape.columns)
    table = pa.Table.from_arrays(arrays, schema=shape.schema)
    assert rows == len(dead), f"{file.path} has {rows} rows, its statistics say {len(dead)}"
    return table.filter(pa.array(~dead))


def count_rows(files: FileLocations, file: DataFile) -> int:
    """How many rows the file has, deleted ones included: from its statistics, or else from its
    Parquet footer."""
    rows = rows_in(file.stats)
    if rows is None:
        with _opened(files, file) as parquet:
            rows = int(parquet.metadata.num_rows)
    return rows
