"""What a data file is like that the engine writes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from sinks.merge_on_write.data_files import _parquet


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
