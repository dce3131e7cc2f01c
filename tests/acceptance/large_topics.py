"""What a topic holds at its extremes, and what must become of it: a transaction of any size, a
table of as many columns as TiDB takes, as many tables as a topic has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.acceptance.small_tables import made, marks, row, small_table
from tests.benchmarks import messages
from tests.benchmarks.feed import START_TS, Feed
from tests.benchmarks.measure import Cost, Job, commits
from tests.benchmarks.targets import check
from tests.benchmarks.workload import DELETE, INSERT, UPDATE, Changes
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import Change, Column, Table, encode_change
from tests.shop.feed import Message

CHANGEFEED = "extremes"
MADE_TS, ROWS_TS, CHANGED_TS, MARK_TS = 10_000, 20_000, 30_000, 40_000
_PATIENCE_S = 1_500.0


def one_process(
    broker: KafkaBroker, folder: Path, source_uri: str, *, start_ts: int, target_ts: int
) -> Cost:
    """``tidelake run`` with its default settings, until it has ended by itself; what it took."""
    command = [
        sys.executable, "-m", "streaming.cli.main", "run", "--changefeed-id", CHANGEFEED,
        "--source-uri", source_uri, "--sink-uri", f"delta://{folder}/warehouse",
        "--start-ts", str(start_ts), "--target-ts", str(target_ts), "--etcd", "embedded",
    ]  # fmt: skip
    with Job("tidelake", command, folder, broker.pid) as job:
        job.wait(_PATIENCE_S)
    cost = job.cost(job.started_at, job.ended_at)
    peaks = " ".join(f"{kind}={mb:.0f}" for kind, mb in cost.peak_rss_mb_of.items() if mb)
    print(f"peaks in MB: {peaks}; {job.ended_at - job.started_at:.0f} s")
    return cost


class OneTransaction:
    """Two transactions, of ``rows`` rows each: the first one's are all inserted; of the second one
    half are new rows, the others UPDATEs and DELETEs of the first one's."""

    def __init__(self, broker: KafkaBroker, topic: str, rows: int, *, partitions: int) -> None:
        first = np.arange(1, rows + 1)
        second = np.random.default_rng(1).permutation(np.arange(rows // 2, rows // 2 + rows) + 1)
        ids = np.concatenate([first, second])
        ops = np.full(2 * rows, INSERT, np.int8)
        is_there = second <= rows
        ops[rows:][is_there] = np.where(second[is_there] % 10 == 0, DELETE, UPDATE)
        self.changes = Changes(base_rows=0, ids=ids, vers=(ops == UPDATE).astype(np.int32), ops=ops)
        self._rows = rows
        self.feed = Feed(
            broker, topic, {"orders": self.changes}, partitions=partitions, watermark_every=10**12
        )
        above_first = rows + 2_000 * messages.CHANGES_PER_MS  # `Feed.close` takes a second
        self._stamps = [int(messages.commit_ts(n, 1)[0]) for n in (0, above_first)]
        self.feed.commits = np.repeat(np.array(self._stamps), rows)
        self.start_ts = START_TS

    def send_first(self) -> None:
        """The table and the first transaction, all below ``target_ts`` then."""
        self.feed.send_creates()
        self.feed.send(self._rows)

    def send_second(self) -> None:
        self.feed.send()

    @property
    def target_ts(self) -> int:
        return self.feed.target_ts

    def check(self, warehouse: Path) -> None:
        """Every cell, after one commit for each transaction that was sent."""
        table = warehouse / "shop" / "orders"
        is_sent = np.arange(len(self.changes)) < self.feed.sent
        check(table, self.changes.state(is_sent), 0)
        limits = [limit for each in commits(table) for limit in each.txns.values()]
        written = [limit for limit in limits if limit >= self._stamps[0]]
        assert len(written) == self.feed.sent // self._rows, written


# A wide table.

_DAY = datetime(2026, 1, 1)  # noqa: DTZ001  # a DATETIME has no zone
_KINDS: tuple[tuple[str, Callable[[int], Any]], ...] = (
    ("bigint", lambda n: n * 1_000_003),
    ("varchar(64)", lambda n: f"text {n} é"),
    ("decimal(18,4)", lambda n: Decimal(n).scaleb(-4)),
    ("int", lambda n: n % 1_000_000_007),
    ("datetime(6)", lambda n: _DAY + timedelta(microseconds=n * 1_000_003)),
    ("double", lambda n: n / 8),
    ("date", lambda n: date(2026, 1, 1) + timedelta(days=n % 10_000)),
    ("tinyint", lambda n: n % 100),
)
_NULL_EVERY = 11


class WideTable:
    """``columns`` columns beside its key."""

    def __init__(self, columns: int, rows: int) -> None:
        self._rows = rows
        self._kinds = [_KINDS[n % len(_KINDS)] for n in range(columns)]
        cells = tuple(Column(f"column_{n}", kind) for n, (kind, _) in enumerate(self._kinds))
        self.table = Table(
            schema="shop",
            name="wide",
            columns=(Column("id", "bigint"), *cells),
            primary_key=("id",),
            handle_key=("id",),
        )

    def _cell(self, id_: int, column: int) -> Any:
        number = id_ * len(self._kinds) + column
        return None if number % _NULL_EVERY == 0 else self._kinds[column][1](number)

    def messages(self) -> Iterator[Message]:
        yield from made(MADE_TS, self.table)
        names = [column.name for column in self.table.columns]
        for id_ in range(self._rows):
            cells = (self._cell(id_, n) for n in range(len(self._kinds)))
            whole = dict(zip(names, (id_, *cells), strict=True))
            change = Change(table=self.table, op="INSERT", row=whole)
            yield id_ % 3, None, encode_change(change, ROWS_TS + id_ % 1_000 * 8, 0)
        yield from marks(MARK_TS)

    def check(self, warehouse: Path) -> None:
        """Cell for cell, a column at a time."""
        table = DeltaTable(str(warehouse / "shop" / "wide"))
        for n in range(len(self._kinds)):
            query = f'SELECT "id", "column_{n}" AS v FROM t ORDER BY "id"'
            found = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
            assert found["id"].to_pylist() == list(range(self._rows))
            values = [self._cell(id_, n) for id_ in range(self._rows)]
            kind = found["v"].type
            assert found["v"].combine_chunks().equals(pa.array(values, kind)), f"column {n}"


# Many tables.


class ManyTables:
    """A round of inserts and one of changes, ``rows`` in each of ``tables`` tables."""

    def __init__(self, tables: int, rows: int) -> None:
        self.tables = [small_table(f"t{n:04}") for n in range(tables)]
        self._rows = rows

    def first(self) -> Iterator[Message]:
        yield from made(MADE_TS, *self.tables)
        for n, table in enumerate(self.tables):
            for id_ in range(self._rows):
                yield n % 3, None, row(ROWS_TS + n, id_, f"of {n}", table=table, n=id_)
        yield from marks(CHANGED_TS - 1)

    def second(self) -> Iterator[Message]:
        """The first row of each is changed, the last one deleted."""
        for n, table in enumerate(self.tables):
            ts = CHANGED_TS + n
            yield n % 3, None, row(ts, 0, f"new {n}", table=table, op="UPDATE")
            yield n % 3, None, row(ts, self._rows - 1, f"of {n}", table=table, op="DELETE")
        yield from marks(MARK_TS)

    def check(self, warehouse: Path) -> None:
        """After both rounds."""
        for n, table in enumerate(self.tables):
            found = {each["id"]: each["v"] for each in read_rows(warehouse / "shop" / table.name)}
            others = dict.fromkeys(range(1, self._rows - 1), f"of {n}")
            assert found == {0: f"new {n}", **others}, table.name
