"""A DDL on a target, carried out by the changefeed's owner: one commit, tried until it is there."""

from __future__ import annotations

import logging
from dataclasses import replace
from threading import Event
from typing import Self

from coordination.errors import Fenced, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.scheduler.barrier import PendingDdl
from coordination.secrets import revealed_options
from sinks.apply import TableHeld
from sinks.merge_on_write.alter import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.tables import DdlIdentity
from sinks.text_arrays import CastRules
from streaming.backoff import PASSING, RetryBackoff
from streaming.cluster.control_rows import ControlRows
from streaming.cluster.owners_reader import Known
from streaming.cluster.progress_rows import span_of
from streaming.cluster.role_context import RoleContext
from streaming.ddl_plan import refusal
from streaming.ddl_steps import DdlStep
from streaming.sink_tables import SinkTable, SinkTables

logger = logging.getLogger(__name__)

HELD_S = 5.0  # until a table that an operator has paused is looked at again


class DdlRun:
    """All below the DDL is in the table, and nobody writes above it until this is done.

    A commit that was made before (by an owner that died over it, or one that still lives) is found
    in the table: then there is nothing to do."""

    def __init__(self, context: RoleContext, spans: SinkTables, step: DdlStep) -> None:
        changefeed = context.changefeed
        target = spans[step.name].target
        assert target is not None, "a DDL of a table that is there"
        self._context = context
        self._spans = spans
        self._step = step
        self._engine = MergeOnWriteEngine(
            revealed_options(changefeed.sink.storage_options), keeps_up=False
        )
        self._order = TableDdl(
            target=target,
            ddl=DdlIdentity(commit_ts=step.event.commit_ts, order=0, query=step.event.query),
            change=step.change,
            empties=step.empties,
            on_add_default=changefeed.on_add_default,
            on_type_change=changefeed.on_type_change,
            rules=CastRules(time_zone=changefeed.source.time_zone, zero_date=changefeed.zero_date),
            before_commit=context.trust.check,
        )
        self._backoff = RetryBackoff()
        self._wait_s = 0.0  # after a try that failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def until_done(self, closing: Event) -> SinkTable | None:
        """The table as it is then; None: it was asked to end before. Raises DdlNotSupported where
        the table or its rows do not allow it. No watchdog: to write a large table anew takes long.
        """
        event, name = self._step.event, self._step.name
        logger.info("runs a DDL table=%s commit_ts=%d sql=%s", name, event.commit_ts, event.query)
        while (table := self._tried()) is None:
            if closing.wait(self._wait_s):
                return None
        return table

    def _tried(self) -> SinkTable | None:
        event, name = self._step.event, self._step.name
        try:
            self._context.trust.check()
            failpoint(Failpoint.BEFORE_DDL)
            self._engine.alter(self._order)
            failpoint(Failpoint.AFTER_DDL)
            table = self._spans.look_again(name)
            # Also where it had run before anybody noted so in the table.
            table = replace(table, last_ddl_ts=max(table.last_ddl_ts, event.commit_ts))
        except PASSING as error:
            self._wait_s = self._backoff.next_s(error)
            return None
        except TableHeld as held:
            logger.info("the DDL waits: %s table=%s", held, name)
            self._wait_s = HELD_S
            return None
        except Fenced:
            raise
        except TidelakeError as error:
            warehouse = self._context.changefeed.sink.warehouse
            raise refusal(event, str(error), warehouse) from error
        logger.info("ran the DDL table=%s version=%s", name, table.version)
        return table


def pending_ddls(known: Known, rows: ControlRows) -> tuple[PendingDdl, ...]:
    """What tables wait for. One that runs on a table holds that table alone; all of them wait for
    the next."""
    plan = known.plan
    if known.blocked_at is None:
        return ()
    if plan.runs is None or plan.next_limit is None:
        return (PendingDdl(commit_ts=known.blocked_at, table_ids=None),)
    span = span_of(rows.spans[plan.runs.name], rows.row.incarnation)
    return (
        PendingDdl(commit_ts=known.blocked_at, table_ids=(span.table_id,)),
        PendingDdl(commit_ts=plan.next_limit, table_ids=None),
    )
