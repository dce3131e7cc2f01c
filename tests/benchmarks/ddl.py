"""(g) Tables that change shape: throughput with an ADD COLUMN every ten seconds beside the same
feed without, and what each kind of DDL costs by itself.

The ten seconds are the feed's: 100,000 changes. Two topics hold the same changes, one of them with
DDLs in between, and rows after a DDL have its column (NULL); the contender is Tidelake alone.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from coordination.model import Ts
from sinks.ddl.effects import AlterTable, TruncatePartition, TruncateTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.storage.local_storage import LocalStorage
from sinks.target.table_properties import DdlIdentity
from sinks.types.partitioning import Partitioning, numbered
from tests.benchmarks import messages, rewrites
from tests.benchmarks.bench import Bench
from tests.benchmarks.bulk import TABLE, BulkRun, measured, rows_text
from tests.benchmarks.commit_workload import Digest, check_digest, make_base, rows, target_at
from tests.benchmarks.contenders import Tidelake
from tests.benchmarks.feed import SCHEMA_NAME, WATERMARK_EVERY, Feed
from tests.benchmarks.printing import each_k, grouped, middle, new_table, number
from tests.benchmarks.sizes import MILLION
from tests.benchmarks.targets import copy_warehouse
from tests.benchmarks.workload import Changes, make_changes
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

EVERY = 10_000 * messages.CHANGES_PER_MS  # changes: ten seconds of the feed's clock
LEAST_DDLS = 5  # of a feed that is shorter than so many times ten seconds
ROUNDS = 2
KEY = "integer"
KINDS = {
    "ADD COLUMN": "ALTER TABLE `t` ADD COLUMN `e` INT",
    "ADD COLUMN with a default": "ALTER TABLE `t` ADD COLUMN `e` INT DEFAULT 7",
    "INT to BIGINT": "ALTER TABLE `t` MODIFY COLUMN `ver` BIGINT",
    "TRUNCATE PARTITION, one of four": "ALTER TABLE `t` TRUNCATE PARTITION `p1`",
    "TRUNCATE TABLE": "TRUNCATE TABLE `t`",
}
PARTITIONING = Partitioning(method="hash", columns=("id",), partitions=numbered(0, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run over a topic, with or without DDLs."""

    ddls: int
    message_bytes: float  # of a change, on average
    run: BulkRun


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlCost:
    """One DDL on a table that the engine has not seen before. Its table was checked."""

    kind: str
    rows: int
    commits: int
    opened: int  # data files
    written: int
    written_bytes: int
    seconds: float
    cpu_s: float


class DdlFeed(Feed):
    """A Feed of one table that gets a column after every ``every`` changes (0: never)."""

    def __init__(self, *arguments: Any, every: int) -> None:
        super().__init__(*arguments)
        self._ddl_every = every
        self.ddls = self.bytes_sent = 0

    def _send_watermark(self, ts: int) -> None:
        """Before one that it is due at: its commit-ts is behind all rows below the watermark."""
        is_between = 0 < self.sent < len(self)
        if self._ddl_every and is_between and self.sent % self._ddl_every == 0:
            query = f"ALTER TABLE `{SCHEMA_NAME}`.`{TABLE}` ADD COLUMN `e{self.ddls}` INT"
            self._produce(0, [messages.ddl(SCHEMA_NAME, TABLE, "ALTER", query, ts)])
            self.ddls += 1
        super()._send_watermark(ts)

    def _send_rows(self, changes: np.ndarray, values: np.ndarray) -> None:
        values = with_columns(values, [f"e{number}" for number in range(self.ddls)])
        self.bytes_sent += sum(map(len, values))
        super()._send_rows(changes, values)


def with_columns(values: np.ndarray, names: list[str]) -> np.ndarray:
    """Messages of rows that have these INT columns too, and NULL in them."""
    if not names:
        return values
    kinds = {
        b'"sqlType":{': "".join(f'"{name}":4,' for name in names).encode(),
        b'"mysqlType":{': "".join(f'"{name}":"int(11)",' for name in names).encode(),
        b'"data":[{': "".join(f'"{name}":null,' for name in names).encode(),
    }
    found = np.empty(len(values), dtype=object)
    for n, value in enumerate(values):
        text = value
        for at, more in kinds.items():
            text = text.replace(at, at + more, 1)
        found[n] = text
    return found


def run(bench: Bench, results: list[Any]) -> None:
    count, base_rows = bench.size.ddl_changes, bench.size.ddl_rows
    parts = count // LEAST_DDLS // WATERMARK_EVERY
    every = min(EVERY, max(parts, 1) * WATERMARK_EVERY)
    changes = make_changes(base_rows, count, recent=True)

    def throughput() -> None:
        results.extend(_throughput(bench, changes, base_rows, every))

    def costs() -> None:
        results.extend(_costs(bench, base_rows))

    bench.attempt("ddl, throughput", throughput)

    def rewrites_() -> None:
        results.extend(rewrites.measured(bench, base_rows))

    bench.attempt("ddl, each kind", costs)
    bench.attempt("ddl, rewrites", rewrites_)


def _throughput(bench: Bench, changes: Changes, base_rows: int, every: int) -> Iterator[Throughput]:
    folder = bench.setting.folder / "ddl"
    feeds = [
        DdlFeed(bench.broker, f"ddl-{each}", {TABLE: changes}, every=each) for each in (0, every)
    ]
    contender = Tidelake(bench.setting)
    try:
        for feed in feeds:
            bench.say(f"{feed.topic}: its table, and {rows_text(len(feed))} changes")
            feed.send_creates()
            contender.prepare(feed, base_rows, folder / feed.topic / contender.name)
            feed.send()
        for round_ in range(ROUNDS):
            for feed in feeds if round_ % 2 == 0 else feeds[::-1]:
                run_ = measured(contender, feed, folder / feed.topic)
                bench.say(
                    f"{feed.topic}: {feed.ddls} DDLs, steady {run_.steady_rate:,.0f}/s, "
                    f"whole {run_.whole_rate:,.0f}/s"
                )
                size = feed.bytes_sent / len(feed)
                yield Throughput(ddls=feed.ddls, message_bytes=size, run=run_)
    finally:
        for feed in feeds:
            bench.broker.delete_topic(feed.topic)
        shutil.rmtree(folder, ignore_errors=True)


def _costs(bench: Bench, base_rows: int) -> Iterator[DdlCost]:
    folder = bench.setting.folder / "ddl-kinds"
    bench.say(f"ddl: a table of {rows_text(base_rows)} rows")
    digest = make_base(folder / "base", KEY, base_rows)
    try:
        for kind, query in KINDS.items():
            bench.say(f"ddl: {kind}")
            copy_warehouse(folder / "base", folder / "run")
            yield _cost(folder / "run", kind, query, base_rows, digest)
            shutil.rmtree(folder / "run")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cost(path: Path, kind: str, query: str, base_rows: int, digest: Digest) -> DdlCost:
    order = order_of(path, query)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    log = path / "_delta_log"
    before, begun, cpu = len(list(log.glob("*.json"))), time.monotonic(), time.process_time()
    with opened_files() as opened:
        engine.alter(order)
    seconds, cpu_s = time.monotonic() - begun, time.process_time() - cpu
    engine.close()
    newest = max(log.glob("*.json")).read_text().splitlines()
    actions = [json.loads(line) for line in newest]
    removed = {each["remove"]["path"] for each in actions if "remove" in each}
    added = [each["add"] for each in actions if "add" in each]
    new = [each for each in added if each["path"] not in removed]  # the others got a vector
    if order.empties:
        digest = Digest()
    elif order.partitions:
        gone = np.arange(1, base_rows + 1, 4)
        digest = digest.plus(Digest.of(rows(KEY, gone, np.zeros_like(gone))), -1)
    check_digest(path, KEY, digest)
    return DdlCost(
        kind=kind,
        rows=base_rows,
        commits=len(list(log.glob("*.json"))) - before,
        opened=len(opened),
        written=len(new),
        written_bytes=sum(each["size"] for each in new),
        seconds=seconds,
        cpu_s=cpu_s,
    )


def order_of(path: Path, query: str) -> TableDdl:
    """As the owner makes it of a message."""
    target, at = target_at(path, KEY), Ts(1_000)
    target = replace(target, schema=replace(target.schema, partitioning=PARTITIONING))
    told: dict[str, Any] = {"target": target}
    told["ddl"] = DdlIdentity(commit_ts=at, order=0, query=query)
    (effect,) = read_ddl(query, "ALTER", target.name.schema, target.name.table).effects
    match effect:
        case AlterTable(changes=changes):
            return table_ddl(**told, change=evolved(target.schema, changes))
        case TruncatePartition(partitions=partitions):
            return table_ddl(**told, partitions=partitions)
    assert isinstance(effect, TruncateTable), effect
    return table_ddl(**told, empties=True)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The data files that are opened meanwhile."""
    opened: list[str] = []
    open_input = LocalStorage.open_input

    def noted(storage: LocalStorage, path: str) -> Any:
        opened.append(path)
        return open_input(storage, path)

    LocalStorage.open_input = noted  # type: ignore[method-assign]
    try:
        yield opened
    finally:
        LocalStorage.open_input = open_input  # type: ignore[method-assign]


def tables(results: list[Any]) -> list[Table]:
    return [
        _throughput_table([each for each in results if isinstance(each, Throughput)]),
        _cost_table([each for each in results if isinstance(each, DdlCost)]),
        rewrites.table_of([each for each in results if isinstance(each, rewrites.Rewrite)]),
    ]


def _throughput_table(results: list[Throughput]) -> Table:
    table = new_table(
        "(g) Changes/s with an ADD COLUMN every 10 s of the feed beside none, medians",
        "DDLs", "changes", "bytes a change", "steady", "each round", "whole", "each round",
        "steady: x none", "whole: x none", "MB/s: x none", "commits", "CPU-µs a change",
    )  # fmt: skip
    groups = grouped(results, lambda each: each.ddls)
    whole = {ddls: middle(mine, lambda each: each.run.whole_rate) for ddls, mine in groups.items()}
    steady = {
        ddls: middle(mine, lambda each: each.run.steady_rate) for ddls, mine in groups.items()
    }
    for ddls, mine in groups.items():
        size = mine[0].message_bytes / groups[0][0].message_bytes if 0 in groups else 1.0
        table.add_row(
            str(ddls),
            rows_text(mine[0].run.changes),
            number(mine[0].message_bytes, 0),
            number(steady[ddls], 0),
            each_k(each.run.steady_rate for each in mine),
            number(whole[ddls], 0),
            each_k(each.run.whole_rate for each in mine),
            number(steady[ddls] / steady.get(0, np.nan), 2),
            number(whole[ddls] / whole.get(0, np.nan), 2),
            number(size * steady[ddls] / steady.get(0, np.nan), 2),
            number(middle(mine, lambda each: each.run.commits), 0),
            number(middle(mine, lambda each: 1e6 * each.run.cost.cpu_s / each.run.applied)),
        )
    return table


def _cost_table(results: list[DdlCost]) -> Table:
    table = new_table(
        f"(g) One DDL over {rows_text(results[0].rows if results else MILLION)} rows, the table "
        "not seen before (aim: an ADD COLUMN is one commit and opens no data file)",
        "step", "commits", "data files opened", "written", "MB written", "seconds", "CPU s",
    )  # fmt: skip
    for each in results:
        table.add_row(
            each.kind,
            str(each.commits),
            str(each.opened),
            str(each.written),
            number(each.written_bytes / 1e6),
            number(each.seconds, 3),
            number(each.cpu_s, 3),
        )
    return table
