"""One capture by hand, without Spark, Kafka and etcd: it reads a feed in chunks, writes rows and
carries DDLs out, one step after the other, with the program's own parts. Now and then it dies at a
fail point, or is rewound, and goes on by what the tables and its last rows of progress say."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from conf.settings import BatchSettings, Changefeed, DeltaSink, FilterSettings, TableRule
from conf.sources.kafka_uri import KafkaSettings
from coordination import failpoint
from coordination.failpoint import Failpoint, FailpointHit
from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow, RecordedWatermark
from sinks.control.progress import DROPPED, ProgressRow
from sinks.control.schemas import SchemaRow
from sinks.target.target_table import inspect
from streaming.apply.applier import Applier, DueTable
from streaming.apply.carry import Carry
from streaming.apply.table_task import Outcome, TableTask
from streaming.changefeed.replicated_table import ReplicatedTable, schema_row
from streaming.changefeed.routes import Routes
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from streaming.owner.control_rows import EndedSpan, RenamedSpans
from streaming.owner.ddl.known_tables import KnownTables, definition
from streaming.owner.ddl.plan import DdlPlan, in_order, plan
from streaming.owner.ddl.steps import DdlEvent, DdlKey, DdlStep
from streaming.owner.ddl_run import DdlRun
from streaming.owner.progress_rows import ended_progress, first_progress, resumed_progress
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Block, Kind, Messages, Wanted
from streaming.source.resolved.watermarks import Watermarks
from streaming.spans.joining_spans import wanted_of
from streaming.stream.lasting_warnings import LastingWarnings
from streaming.stream.schema_cache import PastSchemaCache
from tests.shop.feed import Message
from tests.shop.history import START_TS
from tests.streaming.one_life import STEPS, Letters, Permit, Zombie, watch

TOPIC = "books"


class OneWriter:
    """``cuts``: which version each table had at which ts, as in the ledger. ``rewinds``: from where
    to where it was rewound."""

    def __init__(
        self,
        feed: Iterable[Message],
        folder: Path,
        dice: random.Random,
        rules: tuple[TableRule, ...],
    ) -> None:
        self.cuts: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self._dice = dice
        self._logs: dict[int, list[bytes]] = defaultdict(list)
        for partition, _, value in feed:
            self._logs[partition].append(value)
        self._parts = {each: f"{TOPIC}/{each}" for each in self._logs}
        sink = DeltaSink(warehouse=str(folder), apply_engine="merge-on-write", tables=rules)
        source = KafkaSettings(
            brokers=("nowhere",),
            topic=TOPIC,
            topics=(TOPIC,),
            protocol="canal-json",
            partition_num=3,
        )
        self._changefeed = Changefeed(id="shop", source=source, sink=sink)
        self._routes, self._forms = Routes((), FilterSettings()), WriteModes(rules)
        self._folder = folder
        self._progress: dict[TableName, ProgressRow] = {}
        self._shapes: dict[tuple[TableName, Ts], SchemaRow] = {}  # as in `_tidelake/schemas`
        self.deaths = 0
        self.rewinds: list[tuple[Ts, Ts]] = []
        at = dict.fromkeys(("start_ts", "checkpoint_ts", "resolved_ts"), START_TS)
        self._row = ChangefeedRow(changefeed_id="shop", **at)
        self._begin()

    def _begin(self, back_to: Ts | None = None) -> None:
        """A new owner, by the rows of progress."""
        there = [row.checkpoint_ts for row in self._progress.values() if row.state != DROPPED]
        ts = Ts(min(there, default=self._row.start_ts))
        before = self._row
        self._row = replace(
            before,
            checkpoint_ts=ts,
            resolved_ts=ts,
            state="rewinding" if ts < before.max_published_ts else "running",
        )
        if back_to is not None:
            self._row = replace(
                before,
                incarnation=before.incarnation + 1,
                state="rewinding",
                start_ts=back_to,
                checkpoint_ts=back_to,
                resolved_ts=back_to,
                max_published_ts=max(before.max_published_ts, ts),
            )
        self._at = dict.fromkeys(self._logs, 0)
        self._watermarks = Watermarks(parts=frozenset(self._parts.values()))
        self._spans = TableRegistry(self._changefeed.sink, self._row, self._forms)
        self._spans.resume(self._progress)
        for name, at_ts in self._spans.ended.items():
            if (mark := self._progress[name]).state != DROPPED:
                self._progress[name] = ended_progress(mark, at_ts, None)
        for name, table in self._spans.items():
            self._progress[name] = resumed_progress(table, self._progress[name], self._row)
            self._note_shape(table)
        self._older = PastSchemaCache(self._changefeed, self._shapes_of)
        self._carry = Carry(folder=self._folder.with_name("carry"))
        self._ddls: dict[DdlKey, DdlEvent] = {}
        self._permit = Permit()
        self._applier = Applier(
            changefeed=self._changefeed,
            batch=BatchSettings(),
            compiling=lambda: None,  # type: ignore[arg-type, return-value]
            permit=self._permit,
            spans=self._spans,
            letter_shapes=lambda _: (),
            dead_letters=Letters(self._permit, self.letters),  # type: ignore[arg-type]
            job_tag="",
        )

    @property
    def resolved(self) -> Ts:
        return Ts(max(self._watermarks.global_ts - 1, self._row.start_ts))

    def _note_shape(self, table: ReplicatedTable) -> None:
        if (row := schema_row(table, self._changefeed.id)) is not None:
            self._shapes.setdefault((table.name, row.commit_ts), row)

    def _shapes_of(self, name: TableName) -> Sequence[SchemaRow]:
        return [row for (of, _), row in self._shapes.items() if of == name]

    def _end_life(self) -> None:
        failpoint.configure("")
        self.close()

    def close(self) -> None:
        self._applier.close()
        self._carry.close()

    def run(self, *, most_deaths: int = 0, most_zombies: int = 0, most_rewinds: int = 0) -> None:
        zombies: list[Zombie] = []
        try:
            while any(self._at[each] < len(log) for each, log in self._logs.items()):
                if self.deaths < most_deaths and self._dice.random() < 0.1:
                    step = self._dice.choice(STEPS)
                    failpoint.configure(f"{step}=raise:{self._dice.randint(1, 4)}")
                try:
                    self._read(self._dice.randint(1, 60))
                    if len(zombies) < most_zombies and self._dice.random() < 0.1:
                        zombies.append(self._fall_asleep())
                    if zombies and self._dice.random() < 0.1:
                        self._dice.choice(zombies).wake()
                    self._advance(self.resolved)
                    if self._dice.random() < 0.3:
                        self._note()
                    if len(self.rewinds) < most_rewinds and self._dice.random() < 0.05:
                        self.rewind()
                except FailpointHit:
                    self.deaths += 1
                    self._end_life()
                    self._begin()
            for each in zombies:
                each.wake()
        finally:
            self._end_life()

    def rewind(self) -> None:
        """To somewhere above the last DDL that no rewind goes below."""
        states = (inspect(self._spans.uri(name), {}) for name in self._spans)
        least = max([START_TS, *(each.rekeyed_ts - 1 for each in states if each is not None)])
        now = min((table.checkpoint for table in self._spans.values()), default=Ts(START_TS))
        if least < now:
            self._note()
            self.close()
            back_to = Ts(self._dice.randrange(least, now))
            self.rewinds.append((now, back_to))
            self._begin(back_to)

    def _fall_asleep(self) -> Zombie:
        """In the middle of what it does next; somebody else takes over."""
        zombie = copy(self)
        zombie._progress, zombie.cuts, zombie._ddls = {**self._progress}, [], {**self._ddls}
        zombie._shapes = {**self._shapes}
        zombie._permit.sleep_at(self._dice.randint(1, 6))
        asleep = Zombie(zombie._permit, lambda: zombie._advance(zombie.resolved), zombie.close)
        self._begin()
        return asleep

    def _note(self) -> None:
        """Rows of progress, as the owner writes them."""
        for name, table in self._spans.items():
            before = self._progress.get(name)
            row = first_progress(table, self._row, {})
            if (
                before is None
                or before.state == DROPPED
                or before.checkpoint_ts <= table.checkpoint
            ):
                self._progress[name] = row

    # Reading.

    def _read(self, most: int) -> None:
        wanted = {each.name: wanted_of(each, each.checkpoint) for each in self._spans.values()}
        marks: dict[str, RecordedWatermark] = {}
        for partition, log in self._logs.items():
            begin = self._at[partition]
            end = min(begin + self._dice.randint(0, most), len(log))
            for block in self._decoded(partition, begin, end, wanted):
                if block.kind is Kind.DDL:
                    self._keep_ddls(block)
                elif block.kind is Kind.WATERMARK:
                    ts = Ts(block.max_ts or 0)
                    mark = RecordedWatermark(ts=ts, position=block.last)
                    marks[self._parts[partition]] = mark
                else:
                    self._keep(block)
            self._at[partition] = end
        positions = {self._parts[each]: at for each, at in self._at.items()}
        self._watermarks = self._watermarks.advance(marks, positions)

    def _decoded(self, partition: int, begin: int, end: int, wanted: Wanted) -> Iterable[Block]:
        chunk = Messages(
            part=self._parts[partition],
            positions=pa.array(range(begin, end), pa.int64()),
            values=pa.array(self._logs[partition][begin:end], pa.binary()),
        )
        return decode(chunk, wanted)

    def _keep(self, block: Block) -> None:
        assert block.kind is not Kind.BAD, block.table().to_pylist()
        if block.kind is Kind.ROW and block.body is not None:
            self._carry.add(block)

    def _keep_ddls(self, block: Block) -> None:
        for each in block.table().to_pylist():
            ddl = DdlEvent(
                commit_ts=Ts(each["commit_ts"]),
                place=each["position"],
                name=TableName(each["schema_name"], each["table_name"]),
                ddl_type=each["ddl_type"],
                query=each["query"],
            )
            self._ddls.setdefault(ddl.key, ddl)

    def _join(self, name: TableName) -> None:
        """What was read before anybody had the table."""
        wanted = {name: wanted_of(self._spans[name], self._spans[name].checkpoint)}
        for partition, end in self._at.items():
            for block in self._decoded(partition, 0, end, wanted):
                self._keep(block)

    # Writing.

    def _advance(self, resolved: Ts) -> None:
        while True:
            planned = self._plan(resolved)
            assert planned.runs or planned.stops_for is None, planned.stops_for
            assert not planned.held, planned.held
            for creation in planned.creations:
                name = creation.event.name
                if name in self._spans:
                    continue
                schema = definition(creation, self._spans.schemas(), self._spans.defined)
                self._spans.create(name, schema, creation.event.identity, creation.event.commit_ts)
                self._note_shape(self._spans[name])
                self._note()
                self._join(name)
            self._apply(planned.limit, set(self._spans))
            self._cut(planned.limit)
            gone = [key for key, each in self._ddls.items() if each.commit_ts <= planned.limit]
            for key in gone:
                del self._ddls[key]
            if planned.runs is None:
                return
            self._carry_out(planned.runs)

    def _plan(self, limit: Ts) -> DdlPlan:
        return plan(
            in_order(self._ddls.values()),
            KnownTables(
                schemas=self._spans.schemas(),
                last_ddls=self._spans.last_ddls(),
                shaped={name: table.shape_ts for name, table in self._spans.items()},
                defined=self._spans.defined,
                unmade={},
                forms=self._forms,
            ),
            checkpoint=Ts(self._row.checkpoint_ts),
            start_ts=Ts(START_TS),
            limit=limit,
            routes=self._routes,
            orders={},
            failed={},
        )

    def _apply(self, limit: Ts, names: set[TableName]) -> None:
        due = []
        for name in sorted(names):
            span = self._spans[name]
            if blocks := self._carry.due(name, span.checkpoint, limit):
                task = TableTask(
                    name=name,
                    schema=self._spans[name].schema_or_empty,
                    checkpoint=span.checkpoint,
                    form=self._spans.forms.of(name),
                    older=self._older.of(span),
                )
                due.append(DueTable(task=task, blocks=blocks))
        done = self._applier.apply(due, limit) if due else Outcome()
        held = done.waiting
        for name in held:  # a DDL of somebody else has run on it
            assert name in done.altered, f"{name} is held"
            span = self._spans[name]
            row = first_progress(span, self._row, {})
            self._spans.put(self._spans.opened(name, row, span.checkpoint))
        self._spans.idle_to(limit, names - held)
        if held:
            self._apply(limit, set(held))
        for name in names:
            self._carry.drop_applied(name, limit)

    def _carry_out(self, step: DdlStep) -> None:
        schemas = SimpleNamespace(of_table=lambda _, name: self._shapes_of(name))
        told = {
            "tables": SimpleNamespace(schemas=schemas),
            "concerns": LastingWarnings(),
            "watch": watch,
        }
        context: Any = SimpleNamespace(changefeed=self._changefeed, trust=self._permit, **told)
        of_owner = {
            "dead_letters": Letters,
            "progress": self._progress,
            "null_dates": lambda name: self._progress[name].null_dates,
        }
        rows: Any = SimpleNamespace(spans=self._spans, save_schemas=dict, **of_owner)
        for name in step.turns:
            with DdlRun(context, rows, step, name) as run:
                done = run.until_done(Event())
            for each in done or ():
                if isinstance(each, RenamedSpans):
                    self._rename(each)
                elif isinstance(each, EndedSpan):
                    self._end(each)
                else:
                    self._spans.put(each)
                    self._note_shape(each)

    def _rename(self, done: RenamedSpans) -> None:
        """The rows of the new names are written before those of the old ones end."""
        names = {table.name for table in done.made}
        for table in done.made:
            self._progress[table.name] = first_progress(table, self._row, {})
        failpoint.failpoint(Failpoint.AFTER_PROGRESS)
        for each in done.ended:
            if each.table.name not in names:
                self._end(each)
            else:
                self._carry.forget(each.table.name)
                self._spans.end(each.table.name, each.at_ts)
        for table in done.made:
            self._spans.put(table)
            self._note_shape(table)
            self._join(table.name)

    def _end(self, ended: EndedSpan) -> None:
        before = self._progress[ended.table.name]
        self._progress[ended.table.name] = ended_progress(before, ended.at_ts, ended.version)
        self._carry.forget(ended.table.name)
        self._spans.end(ended.table.name, ended.at_ts)

    def _cut(self, ts: Ts) -> None:
        versions = {str(name): each.version_at_checkpoint for name, each in self._spans.items()}
        is_one_moment = all(each.checkpoint == ts for each in self._spans.values())
        if any(at > ts for at in self._spans.ended.values()):
            return  # it was there, and nobody knows in which version
        if ts <= max(self._row.max_published_ts, self._spans.shown_ts):
            return  # a table shows what it had beyond it
        if versions and is_one_moment and None not in versions.values():
            self.cuts.append({"primary_ts": ts, "tables": versions})
