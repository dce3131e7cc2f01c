"""A database without TiCDC: the copy of a table and the sync of a binlog, beside others.

    python -m tests.benchmarks.databases                    1 M rows; copy, sync, freshness
    python -m tests.benchmarks.databases --rows 10000000 --part copy

MariaDB 10.11 on this machine. *Whole* is a process from its start to the rows in a committed
Delta table; *work* leaves out what a process takes to come up. CPU is of the contender's
processes; the server's own is not in it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from sinks.control.changefeeds import Changefeeds
from tests.benchmarks.database_peers import bring_debezium, peer
from tests.benchmarks.measure import ContenderFailed, Cost, Job, commits
from tests.services.database_editions import MARIADB_10_11
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows

CONNECTIONS = 4
PATIENCE_S = 900.0
RATE_PER_S = 1_000
LIBRARY_ROWS = 1_000_000  # it is so slow that more say no more
COLUMNS = "(id BIGINT PRIMARY KEY, a INT, d DECIMAL(12,2), at DATETIME, v VARCHAR(30))"
ROW = "seq, seq % 1000, seq / 3, DATE_ADD('2024-01-01', INTERVAL seq SECOND), CONCAT('value ', seq)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Seconds; CPU in µs a row."""

    part: str
    contender: str
    rows: int
    whole_s: float
    work_s: float
    cpu_us: float
    peak_rss_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    rows: int
    p50_s: float
    p95_s: float
    commits: int


def filled(server: DatabaseServer, rows: int) -> str:
    """``shop.orders``, in statements of 1,000 rows. The GTID before its CREATE TABLE."""
    server.execute("CREATE DATABASE IF NOT EXISTS shop", "DROP TABLE IF EXISTS shop.orders")
    ((gtid,),) = server.query("SELECT @@gtid_binlog_pos")
    server.execute(f"CREATE TABLE shop.orders {COLUMNS}")
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        for begin in range(0, rows, 1_000):
            end = min(begin + 1_000, rows) - 1
            cursor.execute(f"INSERT INTO orders SELECT {ROW} FROM seq_{begin}_to_{end}")
    return str(gtid)


def tidelake(server: DatabaseServer, warehouse: Path, task_mode: str) -> list[str]:
    return [
        *(sys.executable, "-m", "streaming.cli.main", "run", "--changefeed-id", "bench"),
        *("--source-uri", f"mysql://root@127.0.0.1:{server.port}/?task-mode={task_mode}"),
        *("--sink-uri", f"delta://{warehouse}"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One contender's process. ``done_at`` and ``begun_at`` give times as they come; the first
    raises where the process has ended too early."""

    part: str
    name: str
    command: list[str]
    done_at: Callable[[Job], float | None]
    begun_at: Callable[[Job], float | None]


def measured(run: Run, server: DatabaseServer, folder: Path, rows: int) -> Result:
    with Job(f"{run.part}-{run.name}", run.command, folder, server.pid) as job:
        give_up = time.monotonic() + PATIENCE_S
        while (done := run.done_at(job)) is None:
            if time.monotonic() > give_up:
                raise ContenderFailed(f"{job.name}: not done\n{job.tail()}")
            time.sleep(0.05)
        time.sleep(0.5)  # a last sample
        begun = run.begun_at(job) or job.started_at
        cost: Cost = job.cost(job.started_at, done)
    return Result(
        part=run.part,
        contender=run.name,
        rows=rows,
        whole_s=done - job.started_at,
        work_s=done - begun,
        cpu_us=cost.cpu_s / rows * 1e6,
        peak_rss_mb=cost.peak_rss_mb,
    )


def told_by_itself(part: str, name: str, command: list[str]) -> Run:
    """A contender that prints what it has done."""
    event = {"copy": "copied", "sync": "synced"}[part]

    def told(job: Job) -> float | None:
        if events := job.events(event):
            return float(events[0]["ended"])
        job.check_alive()
        return None

    return Run(
        part=part,
        name=name,
        command=command,
        done_at=told,
        begun_at=lambda job: float(job.events(event)[0]["begun"]),
    )


def copies(server: DatabaseServer, folder: Path, rows: int) -> list[Result]:
    lake, found = folder / "copied", []

    def loaded(job: Job) -> float | None:
        job.check_alive()
        row = Changefeeds(str(lake)).read("bench")
        made = commits(lake / "shop" / "orders")
        return made[1].at if row is not None and row.source_positions and len(made) > 1 else None

    ours = Run(
        part="copy",
        name="tidelake",
        command=tidelake(server, lake, "all"),
        done_at=loaded,
        begun_at=lambda job: job.said_at("copies the tables"),
    )
    found.append(measured(ours, server, folder, rows))
    target = folder / "jdbc"
    url = f"jdbc:mariadb://127.0.0.1:{server.port}/shop?sessionVariables=sql_mode='ANSI_QUOTES'"
    jdbc = [
        *(sys.executable, "-m", "tests.benchmarks.jdbc_job", "--url", url, "--rows", str(rows)),
        *("--connections", str(CONNECTIONS), "--target", str(target)),
    ]

    dump = peer("dump", server.port, folder / "dump.sql")
    for name, theirs in (("Spark JDBC", jdbc), ("mariadb-dump", dump)):
        found.append(measured(told_by_itself("copy", name, theirs), server, folder, rows))
    for place in (lake / "shop" / "orders", target):
        count = sum(1 for _ in read_rows(place)) if rows <= 1_000_000 else rows
        assert count == rows, f"{place} has {count} of {rows} rows"
    return found


def syncs(
    server: DatabaseServer, folder: Path, rows: int, gtid: str, console: Console
) -> list[Result]:
    """A backlog of that many rows in the binlog, from behind that GTID."""
    lake = folder / "synced"

    def applied(job: Job) -> float | None:
        job.check_alive()
        row = Changefeeds(str(lake)).read("bench")
        is_there = row is not None and row.source_positions.get("binlog", 0) >= end
        return commits(lake / "shop" / "orders")[-1].at if is_there else None

    ((name, offset, *_),) = server.query("SHOW MASTER STATUS")
    end = int(str(name).rpartition(".")[2]) << 40 | int(offset)
    ours = Run(
        part="sync",
        name="tidelake",
        command=tidelake(server, lake, "incremental"),
        done_at=applied,
        begun_at=lambda job: job.said_at("reading the binlog"),
    )
    found = [measured(ours, server, folder, rows)]
    first = server.query("SHOW BINARY LOGS")[0][0]
    peers = {"mysql-replication": peer("library", server.port, first, min(rows, LIBRARY_ROWS))}
    if absence := bring_debezium():
        console.print(f"without Debezium: {absence}")
    else:
        peers["Debezium"] = peer("debezium", server.port, first, gtid, rows, folder)
    for name, theirs in peers.items():
        count = min(rows, LIBRARY_ROWS) if name == "mysql-replication" else rows
        found.append(measured(told_by_itself("sync", name, theirs), server, folder, count))
    return found


def freshness(server: DatabaseServer, folder: Path, seconds: int) -> Fresh:
    """Transactions of one row, RATE_PER_S of them; committed to readable in Delta."""
    server.execute("DROP TABLE IF EXISTS shop.ticks")
    server.execute("CREATE TABLE shop.ticks (id BIGINT PRIMARY KEY, made_us BIGINT)")
    lake, stop = folder / "fresh", threading.Event()
    made: dict[int, float] = {}

    def write() -> None:
        with server.connect(database="shop") as connection, connection.cursor() as cursor:
            begun, number = time.time(), 0
            while not stop.is_set():
                due = int((time.time() - begun) * RATE_PER_S)
                while number < due:
                    cursor.execute(f"INSERT INTO ticks VALUES ({number}, 0)")
                    made[number] = time.time()
                    number += 1
                time.sleep(0.002)

    command = tidelake(server, lake, "all")
    with Job("freshness", command, folder, server.pid) as job:
        give_up = time.monotonic() + PATIENCE_S
        while not job.said("stream started"):
            job.check_alive()
            assert time.monotonic() < give_up
            time.sleep(0.2)
        time.sleep(5)
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(seconds + 5)
        stop.set()
        writer.join()
        time.sleep(5)
    found: list[float] = []
    seen = 0
    for commit in commits(lake / "shop" / "ticks"):
        ids = [row["id"] for row in read_rows(lake / "shop" / "ticks", commit.version)]
        fresh = [each for each in ids if each >= seen]
        seen = max([seen, *(each + 1 for each in fresh)])
        found += [commit.at - made[each] for each in fresh if each >= 5 * RATE_PER_S]
    p50, p95 = np.percentile(found, (50, 95))
    return Fresh(rows=len(found), p50_s=float(p50), p95_s=float(p95), commits=seen)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.databases")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=20, help="of freshness")
    parser.add_argument("--part", choices=("copy", "sync", "freshness"), action="append")
    parser.add_argument("--output", type=Path, default=Path("bench-results/databases.json"))
    args = parser.parse_args()
    parts = args.part or ["copy", "sync", "freshness"]
    folder = Path(tempfile.mkdtemp(prefix="tidelake-bench-"))
    results: list[Result] = []
    fresh: list[Fresh] = []
    console = Console(width=100)
    try:
        with DatabaseServer(MARIADB_10_11, {"innodb-buffer-pool-size": "1G"}) as server:
            console.print(f"load {psutil.getloadavg()[0]:.1f}; filling {args.rows} rows")
            gtid = filled(server, args.rows)
            if "copy" in parts:
                results += copies(server, folder, args.rows)
            if "sync" in parts:
                results += syncs(server, folder, args.rows, gtid, console)
            if "freshness" in parts:
                fresh.append(freshness(server, folder, args.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("part", "contender", "rows", "whole s", "work s", "k rows/s", "CPU-µs/row", "MB")
    for each in results:
        cells = (each.part, each.contender, f"{each.rows:,}", f"{each.whole_s:.1f}")
        more = (f"{each.work_s:.1f}", f"{each.rows / each.work_s / 1e3:.0f}", f"{each.cpu_us:.1f}")
        table.add_row(*cells, *more, f"{each.peak_rss_mb:.0f}")
    console.print(table)
    for one in fresh:
        console.print(f"freshness at {RATE_PER_S}/s: p50 {one.p50_s:.2f} s, p95 {one.p95_s:.2f} s")
    args.output.parent.mkdir(exist_ok=True)
    told = {"results": [asdict(each) for each in results], "fresh": [asdict(f) for f in fresh]}
    args.output.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
