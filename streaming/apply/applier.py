"""Write due rows into their target tables, several tables at the same time (rule 4).

blocks ─► changes (cast, last per key) ─┬─ what cannot be applied ─► dead_letters, before any
                                        └─ one change per key ─► engine ─► commit      target
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from conf.settings import BatchSettings, Changefeed
from coordination.errors import TableSealed, TryAgain
from coordination.failpoint import Failpoint, failpoint
from coordination.model import SEALED_TS, TableName, Ts
from sinks.control.progress import BLOCKED
from sinks.target.engine_port import (
    Applied,
    Skipped,
    TableAltered,
    TableBroughtBack,
    TableHeld,
    Target,
)
from streaming.apply.change_log import change_log_rows
from streaming.apply.changes import TableChanges, changes
from streaming.apply.commit_guard import CommitGuard, CommitWithdrawn
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.apply.letters.met_letters import MetLetters
from streaming.apply.letters.open_letters import OpenLetters, Shapes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_errors import holding, named
from streaming.apply.table_task import Fate, Outcome, TableTask, change_rules
from streaming.apply.table_writing import TableWriting
from streaming.apply.values.row_errors import keyless_errors
from streaming.changefeed.replicated_table import PAUSED, REPLICATING, WARNING, ReplicatedTable
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.table_registry import TableRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
T = TypeVar("T")

FAILED_S, FAILED_MAX_S = 5.0, 60.0  # until one that could not be written is tried again
HELD_S = 1.0  # the time until a table that an operator has paused is tried again


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DueTable:
    """A table's task, and the blocks that may hold due rows of the table."""

    task: TableTask
    blocks: Sequence[RowBlock]


class Applier:
    """Brings tables to a limit. ``apply`` is called by one thread at a time, and writes several
    tables at the same time."""

    def __init__(
        self,
        *,
        changefeed: Changefeed,
        batch: BatchSettings,
        compiling: Callable[[], SparkSession],
        permit: CommitGuard,
        spans: TableRegistry,
        dead_letters: DeadLetterWriter,
        letter_shapes: Shapes,
        job_tag: str,
    ) -> None:
        """``compiling``: a new session that compiles its queries, for the Spark engine."""
        self._permit = permit
        self._spans = spans
        self._writing = TableWriting(
            changefeed.sink, batch, compiling=compiling, permit=permit, job_tag=job_tag
        )
        self._rules = change_rules(changefeed)
        self.letters = MetLetters(
            dead_letters,
            OpenLetters(
                *(dead_letters.dead_letters, dead_letters.by, self._rules, letter_shapes),
                changefeed_routes(changefeed),
            ),
        )
        self._min_commit_interval_s = batch.min_commit_interval_s
        self._not_before_s: dict[TableName, float] = {}  # monotonic: no commit before this time
        self._pool = ThreadPoolExecutor(batch.apply_threads, thread_name_prefix="apply")

    def close(self) -> None:
        """Begin no more work and wait for what runs: the caller cancels it by the job tag, or it
        ends by itself."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._writing.close()

    def rows_wait(self, rows_wait: bool) -> None:
        """Whether more rows wait to be read than are applied next: upkeep makes room then."""
        self._writing.rows_wait(rows_wait)

    def apply(self, due: Sequence[DueTable], limit: Ts) -> Outcome:
        """Bring every table to ``limit``, and put each commit's checkpoint and version into
        ``spans``. Blocks until all are written; raises the first failure."""
        now_s = time.monotonic()
        waits = [n for each in due if self._not_before_s.get(n := each.task.name, now_s) > now_s]
        fates: dict[TableName, Fate] = dict.fromkeys(waits, "paused")
        free = [each for each in due if each.task.name not in fates]
        cast = side_by_side(self._pool, [partial(self._change, each, limit) for each in free])
        changed: list[tuple[TableTask, TableChanges]] = []
        for each, end in zip(free, cast, strict=True):
            if isinstance(end, tuple):
                changed.append(end)
            else:
                fates[each.task.name] = end
        self.letters.add(changed)
        writable = [(task, found) for task, found in changed if found.rows.num_rows]
        for task, found in changed:
            if not found.rows.num_rows:  # nothing stands against it any more
                self._spans.put(replace(self._spans[task.name], error=""))
                fates[task.name] = "written"
        with self.letters.met(writable, lambda name: self._spans[name].checkpoint >= limit):
            jobs = [partial(self._commit, *each, limit) for each in writable]
            ends = dict(
                zip((t.name for t, _ in writable), side_by_side(self._pool, jobs), strict=True)
            )
            fates |= self._hold_away(ends)
        return Outcome.of(fates)

    def _change(self, due: DueTable, limit: Ts) -> tuple[TableTask, TableChanges] | Fate:
        try:
            return self._changed(due, limit)
        except TableAltered:
            return "altered"
        except Exception as error:  # noqa: BLE001 - raised again unless it holds the table
            return self._hold(due.task.name, holding(due.task.name, error), HELD_S)

    def _changed(self, due: DueTable, limit: Ts) -> tuple[TableTask, TableChanges]:
        task, blocks = self.letters.telling(due.task), due.blocks
        if task.schema.key or task.is_log:
            choose = change_log_rows if task.is_log else changes
            found = choose(task, blocks, limit, self._rules)
            # A commit checks the table's shape itself. A dead letter cannot be taken back, so the
            # shape is checked before it is written.
            if found.errors.num_rows:
                self._writing.check_shape(task.name, self._target(task.name))
            return task, found
        errors = keyless_errors(task, blocks, limit)
        return task, TableChanges(rows=pa.table({}), errors=errors, dropped={}, nulled={})

    def _target(self, name: TableName) -> Target:
        target = self._spans[name].target
        assert target is not None, "only a table with a target is written"
        return target

    def _commit(self, task: TableTask, changed: TableChanges, limit: Ts) -> Fate | TryAgain:
        """An error where the table could not be written now."""
        name, begun_s = task.name, time.monotonic()
        fate: Fate | TryAgain = "written"
        try:
            write = self._writing.write_of(
                self._target(name), task.checkpoint, limit, changed.rows, self._spans[name].last
            )
            engine, result = self._writing.written(write)
            self._moved(name, changed, engine, result, limit)
        except TableHeld as held:
            if self._spans[name].state != PAUSED:  # it is tried each second, perhaps for days
                logger.info("not written: %s table=%s limit=%d", held, name, limit)
            self._show(name, PAUSED)
            self._not_before_s[name] = time.monotonic() + HELD_S
            fate = "paused"
        except TableBroughtBack as found:
            self._spans.put(replace(self._spans[name], state=BLOCKED, error=str(found)))
            fate = "paused"
        except TableAltered:
            fate = "altered"
        except CommitWithdrawn as withdrawal:
            logger.info("not written: %s table=%s limit=%d", withdrawal, name, limit)
            fate = "withdrawn"
        except TryAgain as error:
            fate = error
        except Exception as error:  # noqa: BLE001 - raised again unless it holds the table
            wait_s = max(FAILED_S, min((time.monotonic() - begun_s) * 10, FAILED_MAX_S))
            fate = self._hold(name, holding(name, error), wait_s)
        finally:
            self._permit.ended(name)
        failpoint(Failpoint.AFTER_APPLY_ONE)
        return fate

    def _hold_away(self, ends: Mapping[TableName, Fate | TryAgain]) -> dict[TableName, Fate]:
        """What became of these tables. If others could be written, an error to try again is of the
        table, and not of the storage as a whole; else it is raised."""
        away = {name: end for name, end in ends.items() if isinstance(end, TryAgain)}
        are_all = len(away) == len(ends) and not any(self._spans[name].error for name in away)
        fates = {name: end for name, end in ends.items() if not isinstance(end, TryAgain)}
        for name, error in away.items():
            text = named(name, str(error))
            if are_all:
                raise type(error)(text) from error
            fates[name] = self._hold(name, text, FAILED_S)
        return fates

    def _hold(self, name: TableName, error: str, wait_s: float) -> Fate:
        logger.debug("not written: %s", error)
        self._not_before_s[name] = time.monotonic() + wait_s
        self._spans.put(replace(self._spans[name], error=error))
        return "paused"

    def _moved(
        self,
        name: TableName,
        changed: TableChanges,
        engine: str,
        result: Applied | Skipped,
        limit: Ts,
    ) -> None:
        self._not_before_s[name] = time.monotonic() + self._min_commit_interval_s
        reached = limit
        if isinstance(result, Skipped):
            if result.identity == SEALED_TS:
                raise TableSealed(f"table {name} is sealed: a newer incarnation replicates it now")
            reached = Ts(max(result.identity, limit))
            logger.info("already applied table=%s identity=%d limit=%d", name, reached, limit)
        self._show(name, REPLICATING)
        span = replace(self._spans[name], version=result.version, engine=engine, error="")
        if isinstance(result, Applied):
            span = with_dropped(with_null_dates(span, changed.nulled), changed.dropped)
        self._spans.put(replace(span, checkpoint=reached, identity=reached))

    def _show(self, name: TableName, state: str) -> None:
        span = self._spans[name]
        if state == PAUSED and span.state != PAUSED:
            logger.warning(
                "paused by an operator: its rows wait until `tidelake table resume` table=%s", name
            )
            self._spans.put(replace(span, state=PAUSED))
        elif state != PAUSED and span.state == PAUSED:
            logger.info("no longer paused table=%s", name)
            self._spans.put(replace(span, state=WARNING if span.dropped else REPLICATING))


def side_by_side(pool: Executor, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run all jobs at the same time and return their results in order, or raise a failure.

    After a failure no more jobs are begun. It is raised only when the running jobs have ended: no
    job may go on after its batch has failed. (A job that was cancelled has no failure to raise.)
    """
    if len(jobs) == 1:
        return [jobs[0]()]
    futures: list[Future[T]] = [pool.submit(job) for job in jobs]
    done, others = wait(futures, return_when=FIRST_EXCEPTION)
    failed = [future for future in futures if future in done and future.exception() is not None]
    if not failed:
        return [future.result() for future in futures]
    for future in others:
        future.cancel()
    wait(others)
    return [failed[0].result()]  # raises


def with_dropped(span: ReplicatedTable, dropped: Mapping[str, int]) -> ReplicatedTable:
    """The span after values of columns that its table lacks were dropped: their counts are added,
    and its state is a warning from then on. A column's first drop is logged."""
    if not dropped:
        return span
    for column in sorted(dropped.keys() - span.dropped.keys()):
        logger.warning(
            "the target table lacks a column: its values are dropped, since on-unknown-column is "
            "'drop' table=%s column=%s",
            span.name,
            column,
        )
    return replace(span, dropped=_summed(span.dropped, dropped), state=WARNING)


def with_null_dates(span: ReplicatedTable, nulled: Mapping[str, int]) -> ReplicatedTable:
    """The span after dates that Delta does not have were written as NULL: their counts are added.
    A column's first one is logged."""
    if not nulled:
        return span
    for column in sorted(nulled.keys() - span.null_dates.keys()):
        logger.warning(
            "a date that Delta does not have (0000-00-00, 2021-02-31, or of the year 0) is NULL in "
            "the target, since zero-date is 'null'; progress counts these in null_dates table=%s "
            "column=%s",
            span.name,
            column,
        )
    return replace(span, null_dates=_summed(span.null_dates, nulled))


def _summed(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {c: before.get(c, 0) + more.get(c, 0) for c in {**before, **more}}
