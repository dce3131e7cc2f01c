"""One version of a table, read without Spark: rows as Arrow, by the column names of that version.

Deletion vectors and column mapping are taken care of. Rows come as they are stored: a generated
column has the values that MySQL computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

from coordination.errors import TidelakeError
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import DeletedRows
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations, files_of, is_in_table
from sinks.merge_on_write.log.physical_schema import (
    NotForThisEngine,
    PhysicalColumn,
    PhysicalSchema,
)
from sinks.merge_on_write.log.reader import VersionGone, cleaned_up, read_log
from sinks.storage.errors import one_sentence
from sinks.storage.open_storage import open_storage
from sinks.types.delta_types import sql_type

MOST_ROWS = 128 * 1024  # in memory at a time; a row group is read as a whole


@dataclass(frozen=True, slots=True, eq=False)
class TableVersion:
    """Made by ``open_version``. Its files are read when rows are asked for; VersionGone where they
    were deleted meanwhile."""

    uri: str
    version: int
    types: Mapping[str, str]  # by column, in the order of the table: Delta's SQL types
    _shape: PhysicalSchema
    _files: Sequence[DataFile]
    _located: FileLocations

    @property
    def schema(self) -> pa.Schema:
        return _schema(self._shape.columns)

    def count_rows(self) -> int:
        """By the log, without a look at the files; at their footers where a writer did not say."""
        dead = (each.deletion_vector.cardinality for each in self._files if each.deletion_vector)
        return sum(data_files.count_rows(self._located, each) for each in self._files) - sum(dead)

    def batches(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows in no order, a part of a file in memory at a time. TidelakeError for a column
        that the version has not."""
        chosen = self._shape.columns if columns is None else tuple(map(self._column, columns))
        schema = _schema(chosen)
        return pa.RecordBatchReader.from_batches(schema, self._read(chosen, schema))

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self.batches(columns).read_all()

    def dataset(self) -> ds.Dataset:
        """For what takes a dataset, to filter or to join: all rows in memory."""
        return ds.dataset(self.to_table())

    def _column(self, name: str) -> PhysicalColumn:
        try:
            return self._shape.column(name)
        except KeyError:
            raise TidelakeError(
                f"version {self.version} of {self.uri} has no column {name}, but "
                f"{', '.join(self.types)}"
            ) from None

    def _read(
        self, columns: Sequence[PhysicalColumn], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        try:
            with one_sentence("read", self.uri):
                for file in self._files:
                    rows = data_files.count_rows(self._located, file)
                    dead = DeletedRows.read(self._located, file, rows).mask
                    for part in data_files.read_live_pieces(
                        self._located, file, dead, columns, MOST_ROWS
                    ):
                        yield from part.rename_columns(schema.names).to_batches()
        except TidelakeError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise cleaned_up(self.uri, self.version, "files") from error
            raise


def open_version(uri: str, version: int, storage_options: Mapping[str, str]) -> TableVersion:
    """Raises VersionGone if the version's log or a file of it is gone, TidelakeError if this reader
    does not know a feature of the table."""
    with one_sentence("read the Delta log of", uri):
        storage = open_storage(uri, storage_options)
        state = read_log(storage, version=version)
        if state is None:
            raise VersionGone(f"there is no Delta table any more at {uri}: its folder was removed")
        paths = {path for each in state.files.values() for path in files_of(each)}
        if any(storage.size(path) is None for path in paths if is_in_table(path)):
            raise cleaned_up(uri, version, "files")
    assert state.protocol is not None
    assert state.metadata is not None
    try:
        shape = PhysicalSchema.of(state.protocol, state.metadata)
    except NotForThisEngine as error:
        raise TidelakeError(f"{uri} is read by Spark alone: {error}") from error
    types = {each["name"]: sql_type(each["type"]) for each in state.metadata.schema["fields"]}
    located = FileLocations(storage, lambda place: open_storage(place, storage_options))
    return TableVersion(uri, version, types, shape, tuple(state.files.values()), located)


def _schema(columns: Sequence[PhysicalColumn]) -> pa.Schema:
    return pa.schema([(column.name, column.arrow) for column in columns])
