"""The program's way to read a binlog, without Spark: reads, limits, what is stored, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from conf.sources.binlog_uri import BinlogSettings
from coordination.model import TableName, Ts
from sinks.control.changefeeds import RecordedWatermark
from streaming.protocols.contract import Block, Kind, WantedTable
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.contract import Identities, ReadOrder, SourceAway
from streaming.source.resolved.limits import Marks, Stored
from streaming.source.resolved.pinned_limits import PinnedLimits
from streaming.stream.read import marks_of, reached
from tests.services.database_server import DatabaseServer
from tests.streaming.source.jobs_here import JobsHere

AWAY_S = 30.0  # a server that starts again


@dataclass
class Clock:
    """The time as the reader knows it, beside the server's."""

    ahead_s: float = 0.0

    monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        return time.time() + self.ahead_s

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("log_tail", "source"):
            monkeypatch.setattr(f"streaming.source.binlog.{module}.time", self)


@dataclass(frozen=True)
class Change:
    commit_ts: int
    position: int
    index: int
    op: int
    table: str
    row: tuple[Any, ...]


@dataclass
class BinlogReading:
    """One life of a changefeed's reading. ``changes``: by their places."""

    settings: BinlogSettings
    begin: int | None = None
    recorded: Marks = field(default_factory=dict)
    tables: Sequence[str] = ("shop.t",)
    start_ts: int = 0
    identities: Identities = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs = JobsHere()
        self.source = BinlogSource(self.settings)
        self.source.keep_to(self.identities)
        self.shape = self.source.shape()
        low_water = {} if self.begin is None else {PART: self.begin}
        self.position = self.source.begin_at(self.shape, low_water)
        self.source.check(self.position)
        limits = self.source.limits(self.shape, self.recorded)
        self.limits: PinnedLimits = limits.advance({}, self.position)
        self.reader = self.source.reader(self.jobs, start_ts=self.start_ts, name="test")
        self.changes: dict[tuple[int, int], Change] = {}
        self.ddls: list[tuple[int, int, str]] = []
        self.bad: list[dict[str, Any]] = []
        self.stored: Marks = {}
        self.wanted = {
            TableName(*name.split(".")): WantedTable(above_ts=Ts(0), key=("id",))
            for name in self.tables
        }

    def __enter__(self) -> BinlogReading:
        return self

    def __exit__(self, *_error: object) -> None:
        self.reader.close()
        self.source.close()

    @property
    def at(self) -> int:
        return self.position[PART]

    def turn(self, messages: int = 1_000_000) -> bool:
        """One look, and a read where there is something; whether that was so."""
        ends = self.source.ends(self.shape.parts)
        if ends[PART] <= self.at:
            self._settle()
            return False
        before_ts = self.limits.global_ts
        blocks = self.reader.read(
            ReadOrder(
                begin=self.position,
                ends=ends,
                wanted=self.wanted,
                identities=self.shape.identities,
                limits=self.limits,
                messages=messages,
            )
        )
        self.position = {**self.position, **reached(tuple(blocks))}
        limits = self.limits.advance(marks_of(tuple(blocks)), self.position)
        assert isinstance(limits, PinnedLimits)
        self.limits = limits
        for block in blocks:
            self._take(block, before_ts)
        assert self.limits.global_ts >= before_ts, "the watermark fell"
        self._settle()
        return True

    def _settle(self) -> None:
        limits = self.source.settled(
            self.shape, self.limits, self.position, Stored(self.stored, is_ours=True)
        )
        assert isinstance(limits, PinnedLimits)
        assert limits.global_ts >= self.limits.global_ts, "the watermark fell"
        self.limits = limits

    def _take(self, block: Block, resolved_ts: int) -> None:
        if block.kind is Kind.BAD:
            self.bad += body(block).to_pylist()
        if block.kind is Kind.DDL:
            for row in body(block).to_pylist():
                assert row["commit_ts"] >= resolved_ts, f"a DDL at or below the watermark: {row}"
                self.ddls.append((row["commit_ts"], row["position"], row["query"]))
        if block.kind is Kind.ROW and block.body is not None:
            for row in body(block).to_pylist():
                change = Change(
                    row["commit_ts"], row["position"], row["index"], row["op"], str(block.name),
                    tuple(row["data"].values()),
                )  # fmt: skip
                assert change.commit_ts >= resolved_ts, f"a row at or below the watermark: {change}"
                self.changes[change.position, change.index] = change

    def to_end(self) -> dict[tuple[int, int], Change]:
        until_s = time.monotonic() + AWAY_S
        while True:
            try:
                if not self.turn():
                    return self.changes
            except SourceAway:
                assert time.monotonic() < until_s, "the server stays away"
                time.sleep(0.05)

    def store(self) -> Marks:
        """As the owner stores it."""
        self.stored = {
            part: RecordedWatermark(ts=mark.ts, position=mark.position, token=mark.token)
            for part, mark in self.limits.to_record().items()
        }
        json.dumps({part: mark.token for part, mark in self.stored.items()})
        return self.stored


def body(block: Block) -> pa.Table:
    assert block.body is not None
    with pa.ipc.open_stream(block.body) as stream:
        return stream.read_all()


def settings_of(server: DatabaseServer, **settings: Any) -> BinlogSettings:
    given = {"host": server.host, "port": server.port, "user": "root"}
    return BinlogSettings(**{**given, **settings})
