"""A table after thousands of small commits, with the engine's upkeep: is it still as good as new?

Its copy is written anew by delta-rs, sorted by key; both are scanned in all columns. Bytes of a
change are what its row takes in the base table's files, deletes counted alike.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake
from rich.table import Table

from sinks.merge_on_write.engine import MergeOnWriteEngine
from tests.benchmarks.commit_contenders import spark_session
from tests.benchmarks.commit_parts import bytes_written
from tests.benchmarks.commit_workload import (
    Digest,
    batches,
    check_digest,
    make_base,
    target_at,
    write_of,
)

SCANS = 5
UPKEEP_PATIENCE_S = 300.0
_READERS = (
    *("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"),
    "spark.sql.adaptive.enabled",
)
_ROWS = "SELECT * FROM t ORDER BY id"
_SCAN = (
    "SELECT count(id), sum(cust), sum(amount), max(name), max(ts), max(status), max(note),"
    " sum(flag), sum(x), sum(ver) FROM t"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was left, and what it took."""

    rows: int
    commits: int
    changes: int  # of each commit
    commit_s: float  # median
    p95_s: float
    upkeep_s: float  # that was left after the last commit
    files: int
    files_before: int
    dead_share: float  # of all rows in the files
    written: dict[str, int]  # bytes, of each kind
    change_bytes: float  # of all changes
    scan_s: float
    fresh_scan_s: float
    spark_scan_s: float | None
    fresh_spark_scan_s: float | None
    load: float

    @property
    def amplification(self) -> float:
        return sum(self.written.values()) / self.change_bytes


def run(
    folder: Path,
    rows: int,
    *,
    commits: int,
    changes: int,
    with_spark: bool,
    say: Callable[[str], object],
) -> Kept:
    """Uniform changes to integer keys; TablesDiffer where a row is not as it must be."""
    path = folder / "kept"
    digest = make_base(path, "integer", rows)
    files_before = len(DeltaTable(str(path)).file_uris())
    row_bytes = sum(each.stat().st_size for each in path.glob("*.parquet")) / rows
    engine = MergeOnWriteEngine({})
    target = target_at(path, "integer")
    seconds = []
    wanted = Digest()
    try:
        with bytes_written() as written:
            for batch in batches(
                "integer", rows, digest, changes=changes, recent=False, count=commits
            ):
                begun = time.perf_counter()
                engine.apply(write_of(target, batch, batch.changes))
                seconds.append(time.perf_counter() - begun)
                wanted = batch.after
            begun = time.perf_counter()
            if not engine.upkeep.settle(UPKEEP_PATIENCE_S):
                say("upkeep did not come to an end")
            upkeep_s = time.perf_counter() - begun
        check_digest(path, "integer", wanted)
        fresh = folder / "fresh"
        _write_anew(path, fresh)
        scan_s, fresh_scan_s = _scans(_scan, path, fresh)
        by_spark = _scans(_spark_scan, path, fresh) if with_spark else [None, None]
        shutil.rmtree(fresh)
        table = engine.table(str(path))
        physical = sum(table.count(each) for each in table.files.values())
        return Kept(
            rows=rows,
            commits=commits,
            changes=changes,
            commit_s=median(seconds),
            p95_s=quantiles(seconds, n=20)[-1],
            upkeep_s=upkeep_s,
            files=len(table.files),
            files_before=files_before,
            dead_share=1 - wanted.rows / physical,
            written=dict(written),
            change_bytes=row_bytes * commits * changes,
            scan_s=scan_s,
            fresh_scan_s=fresh_scan_s,
            spark_scan_s=by_spark[0],
            fresh_spark_scan_s=by_spark[1],
            load=os.getloadavg()[0],
        )
    finally:
        engine.close()
        shutil.rmtree(path)


def _write_anew(path: Path, fresh: Path) -> None:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(_ROWS)
    rows = pa.table(found.read_all())
    rows = pa.table(rows.columns, names=rows.column_names)  # without the column mapping
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    write_deltalake(str(fresh), rows, writer_properties=properties)


def _scan(path: Path) -> None:
    QueryBuilder().register("t", DeltaTable(str(path))).execute(_SCAN).read_all()


def _spark_scan(path: Path) -> None:
    """As a reader's session has it, not ours, which runs plans of few rows."""
    spark = spark_session()
    for name in _READERS:
        spark.conf.unset(name)
    spark.sql(_SCAN.replace("FROM t", f"FROM delta.`{path}`")).collect()


def _scans(scan: Callable[[Path], None], *paths: Path) -> list[float]:
    """Median seconds of each, in turn, so that all have the same neighbours on the machine."""
    seconds: dict[Path, list[float]] = {path: [] for path in paths}
    for _ in range(SCANS):
        for path in paths:
            begun = time.perf_counter()
            scan(path)
            seconds[path].append(time.perf_counter() - begun)
    return [median(seconds[path]) for path in paths]


def table(found: Sequence[Kept]) -> Table:
    table = Table(title="After many commits, uniform, with upkeep", title_justify="left")
    for name in (
        "over", "commits", "median s", "p95 s", "upkeep left s", "files", "before", "dead rows",
        "MB data", "vectors", "log", "checkpoints", "bytes written / byte of change",
        "without log", "scan s", "fresh copy s", "times", "Spark s", "fresh s", "times", "load",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for each in found:
        log = each.written["log"] + each.written["checkpoints"]
        table.add_row(
            f"{each.rows / 1e6:g} M",
            f"{each.commits:,} x {each.changes:,}",
            f"{each.commit_s:.4f}",
            f"{each.p95_s:.4f}",
            f"{each.upkeep_s:.1f}",
            str(each.files),
            str(each.files_before),
            f"{each.dead_share:.1%}",
            *(f"{size / 1e6:.1f}" for size in each.written.values()),
            f"{each.amplification:.1f}",
            f"{(sum(each.written.values()) - log) / each.change_bytes:.1f}",
            *_compared(each.scan_s, each.fresh_scan_s),
            *_compared(each.spark_scan_s, each.fresh_spark_scan_s),
            f"{each.load:.1f}",
        )
    return table


def _compared(seconds: float | None, fresh: float | None) -> tuple[str, str, str]:
    if seconds is None or fresh is None:
        return "", "", ""
    return f"{seconds:.3f}", f"{fresh:.3f}", f"{seconds / fresh:.2f}"
