"""(g) Files of TiCDC's storage sink, from end to end: a folder that is finished, read by executors
side by side.

    bare    a Spark job that reads the bytes of the same files, a task for each core: the floor
    read    Tidelake's own jobs: files to blocks, which the driver has in its memory
    whole   ``tidelake run`` from the folder into a Delta table, whose every cell is checked; *at
            work* from when Spark is up

Rows a second of the clock, so others on the machine count; CPU-µs a row of all processes beside.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from streaming.source.storage.schema_files import read_schema_text
from tests.benchmarks import messages
from tests.benchmarks import protocol_messages as made
from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import rows_text
from tests.benchmarks.contenders import CHANGEFEED_ID
from tests.benchmarks.feed import START_TS
from tests.benchmarks.measure import Cost, Job
from tests.benchmarks.printing import COST_COLUMNS, cost_cells, grouped, middle, new_table, number
from tests.benchmarks.protocol_messages import NAME
from tests.benchmarks.targets import check
from tests.benchmarks.workload import DEAD, Changes, make_changes

FILES: Final = 16
ROUNDS: Final = 3  # of the whole
PARAMETERS: Final = {
    "csv": "protocol=csv&include-commit-ts=true",
    "json": "protocol=canal-json&enable-tidb-extension=true",
}
_BASE_ROWS: Final = 1_000
_VERSION: Final = messages.tso(messages.FIRST_TS_MS - 5_000)
_PATIENCE_S: Final = 900.0
# As TiCDC writes a type in a schema file.
_COLUMNS: Final = {
    "id": ("BIGINT", "20", ""), "cust": ("BIGINT", "20", ""), "amount": ("DECIMAL", "18", "2"),
    "name": ("VARCHAR", "64", ""), "ts": ("DATETIME", "", "6"), "status": ("VARCHAR", "16", ""),
    "note": ("VARCHAR", "128", ""), "flag": ("TINYINT", "1", ""), "x": ("DOUBLE", "", ""),
    "ver": ("INT", "11", ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRun:
    """One way through a folder, once."""

    form: str  # of PARAMETERS
    way: str  # bare, read, whole
    rows: int
    size: int  # bytes of all files
    wall_s: float
    work_s: float
    cost: Cost


def run(bench: Bench, results: list[StorageRun]) -> None:
    history = make_changes(_BASE_ROWS, bench.size.garbage_changes, recent=True)
    for form in PARAMETERS:

        def work(form: str = form) -> None:
            folder = bench.setting.folder / f"cdc-{form}"
            bench.say(f"storage: {rows_text(len(history))} rows of {form} in {FILES} files")
            try:
                size = write_folder(folder, form, history)
                results.extend(_jobs(bench, folder, form, len(history), size))
                for _ in range(ROUNDS):
                    results.append(_whole(bench, folder, form, history, size))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        bench.attempt(f"storage, {form}", work)


def write_folder(folder: Path, form: str, history: Changes) -> int:
    """The folder of a table whose changes are all there; returns the bytes of its rows."""
    rows = folder / NAME.schema / NAME.table / str(_VERSION) / "2026-11-18"
    (rows / "meta").mkdir(parents=True)
    _write_schema(rows.parents[1] / "meta")
    bounds = np.linspace(0, len(history), FILES + 1).astype(int).tolist()
    size = 0
    for number_, (first, last) in enumerate(pairwise(bounds), 1):
        ids, vers, ops = (each[first:last] for each in (history.ids, history.vers, history.ops))
        part = replace(history, ids=ids, vers=vers, ops=ops)
        text = (
            made.csv(made.changes_of(part, first))
            if form == "csv"
            else made.lines_of(made.canal_json(part, first))
        )
        name = f"CDC{number_:020}.{form}"
        (rows / name).write_bytes(text)
        (rows / "meta" / "CDC.index").write_text(f"{name}\n")
        size += len(text)
    told = {"checkpoint-ts": _end_ts(len(history))}
    (folder / "metadata").write_text(json.dumps(told))
    return size


def _end_ts(changes: int) -> int:
    return messages.tso(messages.FIRST_TS_MS + changes // messages.CHANGES_PER_MS + 1_000)


def _write_schema(folder: Path) -> None:
    columns = []
    for name, (kind, precision, scale) in _COLUMNS.items():
        told = {"ColumnPrecision": precision, "ColumnScale": scale}
        key = {"ColumnNullable": "false", "ColumnIsPk": "true"} if name == "id" else {}
        filled = {each: text for each, text in told.items() if text}
        columns.append({"ColumnName": name, "ColumnType": kind, **filled, **key})
    fields = {
        "Table": NAME.table, "Schema": NAME.schema, "Version": 1, "TableVersion": _VERSION,
        "Query": messages.create_text(NAME.schema, NAME.table), "Type": 3,
        "TableColumns": columns, "TableColumnsTotal": len(columns),
    }  # fmt: skip
    text = json.dumps(fields, indent=4).encode()
    folder.mkdir(parents=True)
    checksum = read_schema_text(text).checksum
    (folder / f"schema_{_VERSION}_{checksum:010}.json").write_bytes(text)


def _uri(folder: Path, form: str) -> str:
    return f"file://{folder}?{PARAMETERS[form]}&read-to-end=true"


def _jobs(bench: Bench, folder: Path, form: str, rows: int, size: int) -> Iterator[StorageRun]:
    command = [
        sys.executable, "-m", "tests.benchmarks.read_job", "--source-uri", _uri(folder, form),
        "--tables", f"{NAME.schema}.{NAME.table}", "--bare", str(folder), "--ends-with", form,
    ]  # fmt: skip
    name = f"read-{form}"
    with Job(name, command, bench.setting.folder, bench.setting.broker_pid) as job:
        job.wait(_PATIENCE_S)
    for way in ("bare", "pass"):
        for event in job.events(way):
            assert event["messages"] == (size if way == "bare" else rows + 1), event  # a DDL
            first, last = event["first"], event["last"]
            yield StorageRun(
                form=form,
                way="bare" if way == "bare" else "read",
                rows=rows,
                size=size,
                wall_s=last - first,
                work_s=last - first,
                cost=job.cost(first, last),
            )


def _whole(bench: Bench, folder: Path, form: str, history: Changes, size: int) -> StorageRun:
    warehouse = bench.setting.folder / f"of-{form}"
    command = [
        sys.executable, "-m", "streaming.cli.main", "run",
        "--source-uri", _uri(folder, form), "--sink-uri", f"delta://{warehouse}",
        "--changefeed-id", CHANGEFEED_ID, "--start-ts", str(START_TS), "--etcd", "embedded",
    ]  # fmt: skip
    try:
        with Job(f"whole-{form}", command, bench.setting.folder, bench.setting.broker_pid) as job:
            job.wait(_PATIENCE_S)
            ended, ready = time.time(), job.said_at("spark is up")
        assert ready is not None, job.tail()
        check(warehouse / NAME.schema / NAME.table, _state(history), 0)
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)
    return StorageRun(
        form=form,
        way="whole",
        rows=len(history),
        size=size,
        wall_s=ended - job.started_at,
        work_s=ended - ready,
        cost=job.cost(job.started_at, ended),
    )


def _state(history: Changes) -> np.ndarray:
    """Of a table that was empty before: what no change has touched is not there."""
    state = history.state()
    is_touched = np.zeros(len(state), np.bool_)
    is_touched[history.ids] = True
    state[~is_touched] = DEAD
    return state


def tables(results: Sequence[StorageRun]) -> list[Table]:
    table = new_table(
        "(g) A folder of TiCDC's storage sink, medians",
        "format", "way", "MB", "seconds", "at work", "rows/s at work", "MB/s", "CPU-µs a row",
        *COST_COLUMNS,
    )  # fmt: skip
    for (form, way), mine in grouped(results, lambda each: (each.form, each.way)).items():
        seconds = middle(mine, lambda each: each.work_s)
        rows, size = mine[0].rows, mine[0].size
        table.add_row(
            form,
            way,
            number(size / 1e6, 0),
            number(middle(mine, lambda each: each.wall_s), 2),
            number(seconds, 2),
            number(rows / seconds, 0),
            number(size / 1e6 / seconds, 0),
            number(middle(mine, lambda each: 1e6 * each.cost.cpu_s / each.rows), 2),
            *cost_cells([each.cost for each in mine]),
        )
    return [table]
