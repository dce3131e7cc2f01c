"""Spark's ``from_avro`` on messages, in a process of its own (`from_avro_job`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.bench import Bench
from tests.benchmarks.measure import Job

_PATIENCE_S: Final = 600.0


def from_avro_rounds(
    bench: Bench, values: Sequence[bytes], skipped: int, schema: str, rounds: int
) -> Iterator[tuple[int, float]]:
    """Rows and CPU seconds of each round, without those of reading the rows. ``skipped``: the bytes
    of a message before Avro's own."""
    folder = bench.setting.folder
    messages, told = folder / "from-avro.parquet", folder / "from-avro.avsc"
    pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), messages)
    told.write_text(schema)
    command = [
        sys.executable, "-m", "tests.benchmarks.from_avro_job", "--messages", str(messages),
        "--schema", str(told), "--skip", str(skipped), "--rounds", str(rounds),
    ]  # fmt: skip
    with Job("from-avro", command, folder, bench.setting.broker_pid) as job:
        job.wait(_PATIENCE_S)
    for event in job.events("round"):
        yield event["rows"], event["decoded_s"] - event["bare_s"]
