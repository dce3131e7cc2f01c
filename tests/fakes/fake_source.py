"""A source in memory: tables with changes by commit-ts, DDLs, and a watermark on virtual time."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from coordination.model import TSO_LOGICAL_BITS, Ts
from coordination.scheduler.messages import Span
from tests.fakes.fake_topic import FakeTopic


def ts_at(now_s: float) -> Ts:
    """The first timestamp of a moment of virtual time."""
    return Ts(int(now_s * 1000) << TSO_LOGICAL_BITS)


@dataclass
class SourceTable:
    """``created_ts`` is None for a table that was there before the feed: no DDL tells of it."""

    span: Span
    changes: list[int] = field(default_factory=list)  # commit-ts, rising
    created_ts: int | None = None
    dropped_ts: int | None = None

    def count(self, ts: int) -> int:
        """How many changes are at or below it."""
        return bisect_right(self.changes, ts)

    def between(self, low: int, high: int) -> list[int]:
        """The changes in (low, high]."""
        return self.changes[self.count(low) : self.count(high)]


@dataclass(frozen=True)
class SourceDdl:
    """``table_id`` None: it blocks all tables. ``kind``: create, drop, alter or global."""

    commit_ts: int
    kind: str
    table_id: int | None


class FakeSource:
    unknown_for_s = 0.0  # so long nobody says how an `alter` is to be run, and its table waits

    def __init__(self, started_at: float) -> None:
        self.start_ts = ts_at(started_at)
        self.tables: dict[int, SourceTable] = {}
        self.ddls: list[SourceDdl] = []
        self.topic = FakeTopic(self)

    @classmethod
    def random(cls, rng: random.Random, started_at: float, run_s: float, tables: int) -> FakeSource:
        source = cls(started_at)
        for number in range(1, tables + 1):
            table = source.add_table(number)
            source.fill(table, rng, started_at + rng.random() * 2, started_at + run_s)
        source._add_ddls(rng, started_at, run_s)
        return source

    def add_table(self, number: int) -> SourceTable:
        span = Span(number, "shop", f"t{number}")
        self.tables[number] = SourceTable(span)
        return self.tables[number]

    def fill(self, table: SourceTable, rng: random.Random, begin_s: float, end_s: float) -> None:
        at, pace_s = begin_s, rng.choice((0.3, 1.0, 4.0))
        while at < end_s:
            table.changes.append(ts_at(at) + len(table.changes) % 7 + 1)
            at += 0.01 + rng.random() * pace_s

    def is_unknown(self, ddl: SourceDdl, now_s: float) -> bool:
        return ddl.kind == "alter" and ts_at(now_s - self.unknown_for_s) < ddl.commit_ts

    def _add_ddls(self, rng: random.Random, started_at: float, run_s: float) -> None:
        def moment(low: float, high: float) -> float:
            return started_at + run_s * rng.uniform(low, high)

        for _ in range(rng.randrange(3)):
            self._ddl(moment(0.05, 0.6), "alter", rng.choice(list(self.tables)))
        if rng.random() < 0.4:
            self._ddl(moment(0.05, 0.6), "global", None)
        if rng.random() < 0.5:
            self.create_table(rng, moment(0.1, 0.5), started_at + run_s)
        if rng.random() < 0.3:
            self.drop_table(rng.choice(list(self.tables)), moment(0.3, 0.6))

    def create_table(self, rng: random.Random, at: float, end_s: float) -> None:
        table = self.add_table(max(self.tables) + 1)
        table.created_ts = self._ddl(at, "create", table.span.table_id)
        self.fill(table, rng, at + 0.1 + rng.random(), end_s)

    def drop_table(self, table_id: int, at: float) -> None:
        table = self.tables[table_id]
        if table.created_ts is not None:
            return
        table.dropped_ts = self._ddl(at, "drop", table_id)
        table.changes = [each for each in table.changes if each < table.dropped_ts]
        self.ddls = [
            each
            for each in self.ddls
            if each.table_id != table_id or each.commit_ts <= table.dropped_ts
        ]

    def _ddl(self, at: float, kind: str, table_id: int | None) -> int:
        taken = {each.commit_ts for each in self.ddls}
        commit_ts = ts_at(at) + 100
        while commit_ts in taken:
            commit_ts += 1
        self.ddls.append(SourceDdl(commit_ts, kind, table_id))
        self.ddls.sort(key=lambda ddl: ddl.commit_ts)
        return commit_ts
