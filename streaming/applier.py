"""Due rows into target tables: engine by engine, table by table, several side by side (design 5).

Small tables share one Spark job, which brings their rows to the driver as Arrow, where
merge-on-write commits them; what it refuses is written by Spark. Dead letters are written before
any target."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from conf.settings import Settings
from coordination.errors import TermRefused, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import SEALED_TS, TableName, Ts
from coordination.secrets import revealed_options
from sinks.apply import OP_COLUMN, Applied, Engine, Skipped, TableHeld, TableWrite
from sinks.engine_choice import EngineName, engine_choice
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.spark_engine import SparkEngine
from sinks.storage_errors import StorageAway
from streaming.cells import CastRules
from streaming.due import CHANGE_COLUMNS, DROPPED, ERROR_CLASS, TableTask
from streaming.graveyard import Graveyard
from streaming.permit import Permit, Withdrawn
from streaming.resolve import Resolver
from streaming.segments import Segment
from streaming.session import expect_rows
from streaming.small_tables import SmallTables
from streaming.spans import PAUSED, REPLICATING, WARNING, Span, Spans

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_TRIES = 8  # of one commit; each lost try is another writer's commit on this table
SMALL_TABLE_ROWS = 20_000  # so many changes are worth a plan of the table's own
GROUP_ROWS = 100_000  # of the small tables that share one Spark job


@dataclass(kw_only=True)
class _Prepared:
    """The changes of one table, ready for its engine, and what of them cannot be applied."""

    task: TableTask
    engine: Engine
    changes: DataFrame | pa.Table
    rows: int
    errors: list[pa.Table] = field(default_factory=list)
    dropped: Mapping[str, int] = field(default_factory=dict)  # column -> values
    release: Callable[[], object] = lambda: None


class Applier:
    """Brings tables to a limit. One batch at a time; several tables of it side by side."""

    def __init__(
        self,
        *,
        settings: Settings,
        spark: SparkSession,
        permit: Permit,
        spans: Spans,
        graveyard: Graveyard,
        job_tag: str,
    ) -> None:
        self._spark = spark
        self._permit = permit
        self._spans = spans
        self._graveyard = graveyard
        sink = settings.changefeed.sink
        self._choice = engine_choice(
            sink.apply_engine,
            sink.warehouse,
            allow_unsafe_commits=sink.allow_unsafe_commits,
        )
        options = revealed_options(sink.storage_options)
        self._merge_on_write = MergeOnWriteEngine(
            options, index_memory_bytes=settings.batch.key_index_memory_mib << 20
        )
        self._spark_engine = SparkEngine(options, persist=False)
        rules = CastRules(
            time_zone=settings.changefeed.source.time_zone,
            zero_date=settings.changefeed.zero_date,
            unknown_column=settings.changefeed.on_unknown_column,
        )
        self._resolver = Resolver(rules)
        self._small_tables = SmallTables(rules)
        self._job_tag = job_tag
        self._min_commit_interval_s = settings.batch.min_commit_interval_s
        self._committed_at: dict[TableName, float] = {}
        self._held: set[TableName] = set()
        self._pool = ThreadPoolExecutor(settings.batch.apply_threads, thread_name_prefix="apply")

    def close(self) -> None:
        """No new work; what runs is cancelled by its job tag or ends by itself."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._merge_on_write.close()

    def bury_undecodable(self, segment: Segment) -> None:
        """Messages that mean nothing go to the dead letters at once: they have no commit-ts to wait
        for.
        """
        if segment.bad:
            self._graveyard.bury_messages(segment)

    def apply(self, tasks: Sequence[TableTask], limit: Ts) -> frozenset[TableName]:
        """Bring every task's table to ``limit``; spans are moved on as their commits are made.

        Returns the tables that take no commit now: an operator has paused them, or their last one
        is younger than ``min-commit-interval-s``. Their rows wait in the carry.
        """
        self._held = {task.name for task in tasks if self.is_held(task.name)}
        self._apply([task for task in tasks if task.name not in self._held], limit)
        return frozenset(self._held)

    def is_held(self, name: TableName) -> bool:
        """Whether the table takes no commit now."""
        target = self._spans[name].target
        if target is None:
            return False
        since_s = time.monotonic() - self._committed_at.get(name, -math.inf)
        if since_s < self._min_commit_interval_s:
            return True
        is_paused = self._merge_on_write.is_paused(target.uri)
        self._show_paused(name, is_paused)
        return is_paused

    def _show_paused(self, name: TableName, is_paused: bool) -> None:
        span = self._spans[name]
        if is_paused and span.state != PAUSED:
            logger.warning("paused by an operator: its rows wait table=%s", name)
            self._spans.put(replace(span, state=PAUSED))
        elif not is_paused and span.state == PAUSED:
            logger.info("no longer paused table=%s", name)
            self._spans.put(replace(span, state=WARNING if span.dropped else REPLICATING))

    def _apply(self, tasks: Sequence[TableTask], limit: Ts) -> None:
        if tasks:
            session = tasks[0].segments[0].frame.sparkSession  # the query's own
            expect_rows(session, sum(task.max_rows for task in tasks))
        keyless = [task for task in tasks if not task.schema.key]
        keyed = [task for task in tasks if task.schema.key]
        prepared = self._prepare(keyed, limit)
        try:
            self._graveyard.bury_rows(
                [errors for each in prepared for errors in each.errors], keyless, limit
            )
            writable = [each for each in prepared if each.rows]
            self._side_by_side([self._commit_of(each, limit) for each in writable])
        finally:
            for each in prepared:
                each.release()

    def _prepare(self, tasks: Sequence[TableTask], limit: Ts) -> list[_Prepared]:
        by_engine: dict[EngineName, list[TableTask]] = {"merge-on-write": [], "spark": []}
        for task in tasks:
            target = self._spans[task.name].target
            assert target is not None, "a task has a key, so its table has a target"
            refusal = partial(self._merge_on_write.refusal, target.uri)
            by_engine[self._choice.choose(str(task.name), refusal)].append(task)
        jobs = list(self._arrow_jobs(by_engine["merge-on-write"], limit))
        jobs += [self._frame_of(task, limit) for task in by_engine["spark"]]
        return [each for prepared in self._side_by_side(jobs) for each in prepared]

    def _arrow_jobs(
        self, tasks: Sequence[TableTask], limit: Ts
    ) -> Iterator[Callable[[], list[_Prepared]]]:
        """Small tables share a Spark job as long as their rows are few; a large one has its own."""
        group: list[TableTask] = []
        rows = 0
        for task in sorted(tasks, key=lambda task: task.max_rows):
            if task.max_rows > SMALL_TABLE_ROWS:
                yield self._arrow_of_one(task, limit)
                continue
            if group and rows + task.max_rows > GROUP_ROWS:
                yield self._arrow_of_many(group, limit)
                group, rows = [], 0
            group.append(task)
            rows += task.max_rows
        if group:
            yield self._arrow_of_many(group, limit)

    def _arrow_of_one(self, task: TableTask, limit: Ts) -> Callable[[], list[_Prepared]]:
        def job() -> list[_Prepared]:
            changes = self._resolver.resolve(task, limit).toArrow()
            return [_from_arrow(task, self._merge_on_write, changes)]

        return job

    def _arrow_of_many(
        self, tasks: Sequence[TableTask], limit: Ts
    ) -> Callable[[], list[_Prepared]]:
        def job() -> list[_Prepared]:
            tables = self._small_tables.resolve(tasks, limit).read()
            engine = self._merge_on_write
            return [
                _from_arrow(task, engine, table) for task, table in zip(tasks, tables, strict=True)
            ]

        return job

    def _frame_of(self, task: TableTask, limit: Ts) -> Callable[[], list[_Prepared]]:
        def job() -> list[_Prepared]:
            changes = self._resolver.resolve(task, limit).persist()
            is_good = F.col(ERROR_CLASS).isNull()
            counts = (F.count("*"), F.count(F.when(is_good, 1)), F.count(_quoted(DROPPED)))
            counted = changes.agg(*counts).first()
            assert counted is not None
            total, good, dropping = counted
            errors = [changes.where(~is_good).toArrow()] if good < total else []
            dropped = changes.select(DROPPED).dropna().toArrow() if dropping else None
            rows = changes.where(is_good) if errors else changes
            columns = [column.name for column in task.schema.delivered]
            return [
                _Prepared(
                    task=task,
                    engine=self._spark_engine,
                    changes=rows.select(*[_quoted(c) for c in columns], OP_COLUMN),
                    rows=good,
                    errors=[_with_name(task.name, table) for table in errors],
                    dropped=_counted(dropped[DROPPED]) if dropped is not None else {},
                    release=changes.unpersist,
                )
            ]

        return job

    def _commit_of(self, prepared: _Prepared, limit: Ts) -> Callable[[], None]:
        task = prepared.task

        def job() -> None:
            target = self._spans[task.name].target
            assert target is not None
            write = TableWrite(
                target=target,
                checkpoint=task.checkpoint,
                limit=limit,
                changes=prepared.changes,
                user_metadata=self._user_metadata(task, limit),
                before_commit=lambda: self._before_commit(task.name, limit),
            )
            try:
                result = self._tried(prepared.engine, write)
                self._moved(prepared, result, limit)
            except TableHeld as held:
                logger.info("not written: %s table=%s limit=%d", held, task.name, limit)
                self._held.add(task.name)
            except Withdrawn as withdrawal:
                logger.info("not written: %s table=%s limit=%d", withdrawal, task.name, limit)
            finally:
                self._permit.ended(task.name)
            failpoint(Failpoint.AFTER_APPLY_ONE)

        return job

    def _before_commit(self, name: TableName, limit: Ts) -> None:
        self._permit.begin(name, limit)
        failpoint(Failpoint.AFTER_FENCE_CHECK)

    def _tried(self, engine: Engine, write: TableWrite) -> Applied | Skipped:
        for attempt in range(MAX_TRIES):
            self._permit.check()
            try:
                return engine.apply(write)
            except StorageAway:
                raise  # the stream waits, and longer
            except TryAgain:
                if attempt == MAX_TRIES - 1:
                    raise
                logger.info("another commit came first: again table=%s", write.target.name)
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def _moved(self, prepared: _Prepared, result: Applied | Skipped, limit: Ts) -> None:
        name = prepared.task.name
        self._committed_at[name] = time.monotonic()
        span = self._spans[name]
        reached = limit
        if isinstance(result, Skipped):
            if result.identity == SEALED_TS:
                raise TermRefused(f"table {name} is sealed: a newer incarnation replicates it now")
            reached = Ts(max(result.identity, limit))
            logger.info("already applied table=%s identity=%d limit=%d", name, reached, limit)
        else:
            span = _with_dropped(span, prepared.dropped)
        at = replace(span, checkpoint=reached, version=result.version)
        self._spans.put(replace(at, engine=prepared.engine.name))

    def _user_metadata(self, task: TableTask, limit: Ts) -> str:
        """For audit: who brought the table from where to where."""
        signature = self._permit.signature(task.name)
        return json.dumps({**signature, "checkpoint": task.checkpoint, "limit": limit})

    def _side_by_side(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        def tagged(job: Callable[[], T]) -> Callable[[], T]:
            def run() -> T:
                with job_tag(self._spark, self._job_tag):
                    return job()

            return run

        return side_by_side(self._pool, [tagged(job) for job in jobs])


def side_by_side(pool: Executor, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """All results in order, or the failure that came first.

    After a failure nothing more is begun, and what runs has ended before it is raised: no job goes
    on behind a failed batch. (A job that was cancelled has no failure of its own to raise.)
    """
    futures: list[Future[T]] = [pool.submit(job) for job in jobs]
    done, others = wait(futures, return_when=FIRST_EXCEPTION)
    failed = [future for future in futures if future in done and future.exception() is not None]
    if not failed:
        return [future.result() for future in futures]
    for future in others:
        future.cancel()
    wait(others)
    return [failed[0].result()]  # raises


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[None]:
    """Spark jobs of this thread can be cancelled by ``tag``."""
    spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        spark.sparkContext.removeJobTag(tag)


def _from_arrow(task: TableTask, engine: Engine, table: pa.Table) -> _Prepared:
    failed = pc.is_valid(table[ERROR_CLASS])
    errors = []
    if pc.any(failed).as_py():
        errors = [_with_name(task.name, table.filter(failed))]
        table = table.filter(pc.invert(failed))
    changes = table.drop_columns([name for name in CHANGE_COLUMNS if name != OP_COLUMN])
    return _Prepared(
        task=task,
        engine=engine,
        changes=changes,
        rows=table.num_rows,
        errors=errors,
        dropped=_counted(table[DROPPED]),
    )


def _counted(dropped: pa.ChunkedArray) -> dict[str, int]:
    """How many rows have lost a value of each column."""
    if dropped.null_count == len(dropped):
        return {}
    return dict(Counter(pc.list_flatten(dropped).to_pylist()))


def _with_dropped(span: Span, dropped: Mapping[str, int]) -> Span:
    """The span after values of columns that its table lacks were dropped: it warns from then on."""
    if not dropped:
        return span
    for column in sorted(dropped.keys() - span.dropped.keys()):
        logger.warning(
            "the target table lacks a column: its values are dropped, since on-unknown-column is "
            "'drop' table=%s column=%s",
            span.name,
            column,
        )
    counts = {c: span.dropped.get(c, 0) + dropped.get(c, 0) for c in {**span.dropped, **dropped}}
    return replace(span, dropped=counts, state=WARNING)


def _with_name(name: TableName, errors: pa.Table) -> pa.Table:
    reasons = errors.select([column for column in CHANGE_COLUMNS if column != OP_COLUMN])
    names = {"schema_name": name.schema, "table_name": name.table}
    for column, text in names.items():
        reasons = reasons.append_column(column, pa.array([text] * len(reasons), pa.string()))
    return reasons


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
