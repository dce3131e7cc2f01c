"""What a data file is like that the engine writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.merge_on_write.files.data_files import _parquet, read_columns
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.file_locations import FileLocations
from sinks.merge_on_write.log.physical_schema import PhysicalColumn
from sinks.storage.local_storage import LocalStorage


def test_a_large_file_has_dictionaries_for_thousands_of_values_that_repeat():
    count = 100_000
    rows = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": pa.array([f"name {number % 1500}" for number in range(count)]),
        }
    )
    group = pq.ParquetFile(pa.BufferReader(_parquet(rows))).metadata.row_group(0)
    has = {group.column(at).path_in_schema: group.column(at).has_dictionary_page for at in range(2)}
    assert has == {"id": False, "name": True}


def test_timestamps_of_spark_may_be_of_any_year(local: LocalStorage):
    kind = pa.timestamp("us", tz="UTC")
    column = PhysicalColumn(name="t", physical="p", field_id=1, arrow=kind, has_statistics=True)
    values = [datetime(1000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC)]
    sink = pa.BufferOutputStream()
    rows = pa.table({"p": pa.array(values, kind)})
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True)
    local.write("a.parquet", sink.getvalue())
    (found,), _ = read_columns(
        FileLocations(local, LocalStorage), DataFile({"path": "a.parquet"}), [column]
    )
    assert (found.type, found.to_pylist()) == (kind, values)
