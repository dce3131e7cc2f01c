"""A DDL on a target, carried out by the changefeed's owner: one commit, tried until it is there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from threading import Event
from typing import Any, Self

from coordination.errors import Fenced, Stop, TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.secrets import revealed_options
from sinks.ddl.past_schemas import partitions_then
from sinks.ddl.text.logged import sent_at
from sinks.ddl.text.shown import shown
from sinks.merge_on_write.alter.null_dates import dates_made_null
from sinks.merge_on_write.alter.table_ddl import (
    AlterTable,
    DropTable,
    NotedDdl,
    RemovePartitions,
    Reshape,
    TableDdl,
    Truncate,
)
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.exchange_partition import PartitionExchange, exchange
from sinks.merge_on_write.lifecycle.recover import (
    TableRecovery,
    is_recovered,
    kept_place,
    not_kept,
    recover,
)
from sinks.merge_on_write.lifecycle.rename import TableRename, rename
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.target.engine_port import Applied, Skipped, TableBroughtBack, TableHeld, Target
from sinks.target.table_properties import DdlIdentity
from sinks.types.partitioning import Partitioning, of_values
from sinks.types.table_schema import MOMENTS
from sinks.types.text_arrays import CastRules
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.changefeed.target_forms import mask_salt
from streaming.owner.blocked_tables import noted_row
from streaming.owner.control_rows import ControlRows, EndedSpan, RenamedSpans
from streaming.owner.ddl.plan import HeldTable
from streaming.owner.ddl.refusal import DdlNotSupported, refusal, way_past
from streaming.owner.ddl.sent_again import RENAMES_AGAIN, has_run, renames
from streaming.owner.ddl.steps import PARTITIONS_OF_LATER, DdlStep
from streaming.owner.ddl_reader import DdlReader
from streaming.owner.rewrite_on_spark import SparkRewriter
from streaming.stream.retry import PASSING, RetryBackoff
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)

HELD_S = 5.0  # until a table that an operator has paused is looked at again


class DdlRun:
    """The run of a DDL on one table. All rows below the DDL are in it, and nobody writes above it
    until this is done.

    An earlier commit (by an owner that died over it, or one that still lives) is found in the
    table: then there is nothing to do.
    """

    def __init__(
        self, context: RoleContext, rows: ControlRows, step: DdlStep, name: TableName
    ) -> None:
        """``name``: one of the step's ``turns``."""
        changefeed = context.changefeed
        self._context = context
        self._rows = rows
        self._spans = rows.spans
        self._step = step
        self._name = name
        self._table = rows.spans.get(name)  # None: it comes back
        self._ddl = DdlIdentity(commit_ts=step.event.commit_ts, order=0, query=step.event.query)
        self._engine = MergeOnWriteEngine(
            revealed_options(changefeed.sink.storage_options), keeps_up=False
        )
        target = None if self._table is None else self._table.target
        self._rules = CastRules(
            time_zone=changefeed.source.time_zone,
            zero_date=changefeed.zero_date,
            ddl_time_zone=changefeed.ddl_time_zone,
            mask_salt=mask_salt(changefeed.sink),
        )
        self._order = None if target is None else self._order_of(target)
        self._backoff = RetryBackoff()
        self._wait_s = 0.0  # after a try that failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()
        self._context.concerns.withdraw(self._subject)

    def until_done(
        self, closing: Event
    ) -> Sequence[ReplicatedTable | EndedSpan | RenamedSpans] | None:
        """The tables as they are then; None: it was asked to end before. Raises DdlNotSupported if
        the table or its rows do not allow it. The watchdog sees only each part of a rewrite: to
        write a large table anew takes long."""
        event, name = self._step.event, self._name
        does = "skips" if self._step.is_skipped else "runs"
        logger.info(
            "%s a DDL table=%s commit_ts=%d sql=%s", does, name, event.commit_ts, shown(event.query)
        )
        if isinstance(self._order, Reshape):
            mapper = SparkRewriter(self._context, name, closing)
            self._order = replace(self._order, map_parts=mapper)
        with suppress(Stop):
            while (done := self._tried()) is None:
                if closing.wait(self._wait_s):
                    return None
            return done
        return None

    def _tried(self) -> Sequence[ReplicatedTable | EndedSpan | RenamedSpans] | None:
        event, name = self._step.event, self._name
        try:
            self._context.trust.check()
            self._rows.save_schemas()
            self._check()  # a rewrite takes long
            self._refuse_again()
            self._pass_letters()
            failpoint(Failpoint.BEFORE_DDL)
            if self._step.recovers is not None:
                return [self._recovered(*self._step.recovers)]
            if self._step.exchanges_with is not None:
                return self._exchanged(self._step.exchanges_with)
            if name not in self._step.alone:
                return [self._renamed()]
            applied = self._alter()
            failpoint(Failpoint.AFTER_DDL)
            is_over = name in self._step.ends
            done = self._ended(applied) if is_over else self._counted(self._looked_at(name))
        except PASSING as error:
            self._wait_s = self._backoff.next_s(error)
            return None
        except (TableHeld, TableBroughtBack) as held:
            self._waits(held)
            return None
        except (Fenced, Stop):
            raise
        except TidelakeError as error:
            raise refusal(event, str(error)) from error
        self._context.concerns.say(self._subject, None)
        did = "skipped" if self._step.is_skipped else "ran"
        logger.info("%s the DDL table=%s version=%s", did, name, applied and applied.version)
        return [done]

    def _waits(self, held: TableHeld | TableBroughtBack) -> None:
        is_back = isinstance(held, TableBroughtBack)
        self._context.concerns.say(self._subject, str(held) if is_back else f"a DDL waits: {held}")
        self._wait_s = HELD_S
        self._backoff.reset()  # the storage answers, and it may take days

    def _check(self) -> None:
        """Right before a commit: whether it may be made, and its tables are unchanged."""
        self._context.trust.check()
        for name in self._step.touched:
            self._spans.refuse_brought_back(name, self._rows.progress.get(name))

    def _refuse_again(self) -> None:
        """Only a sender that sends DDLs again tells their places."""
        if sent_at(self._ddl.query) is None or not renames(self._step):
            return
        states = filter(None, (self._spans.at(name) for name in self._step.names))
        known = [ddl for each in states for ddl in (each.ddl, each.shape_ddl)]
        if has_run(self._ddl, known):
            raise TidelakeError(RENAMES_AGAIN)

    @property
    def _subject(self) -> str:
        return f"DDL on {self._name}"

    def _pass_letters(self) -> None:
        """No replay brings back a row that this DDL takes out."""
        step, letters = self._step, self._rows.dead_letters
        if step.is_skipped or not (step.empties or step.partitions or step.of_shard):
            return
        for name in {self._name, step.exchanges_with or self._name}:
            if letters.refreshed().get(name):
                ddl = f"the DDL of commit-ts {step.event.commit_ts}"
                letters.emptied(name, ddl, is_whole=step.empties and not step.partitions)

    def _looked_at(self, name: TableName) -> ReplicatedTable:
        """Its last DDL is this one, also where it had run before anybody noted so in the table."""
        table = self._spans.look_again(name)
        return replace(table, last_ddl_ts=max(table.last_ddl_ts, self._step.event.commit_ts))

    def _ended(self, applied: Applied | Skipped | None) -> EndedSpan:
        before = applied.version - 1 if isinstance(applied, Applied) else None
        assert self._table is not None
        return EndedSpan(table=self._table, at_ts=self._step.event.commit_ts, version=before)

    def _order_of(self, target: Target) -> TableDdl:
        step, changefeed = self._step, self._context.changefeed
        plain = NotedDdl(
            target=target,
            ddl=self._ddl,
            rules=self._rules,
            null_dates=self._null_dates(),
            **self._shards(),
            before_commit=self._check,
        )
        told: dict[str, Any] = {each.name: getattr(plain, each.name) for each in fields(plain)}
        if self._name in step.ends:
            return DropTable(**told, on_drop=changefeed.on_drop)
        if step.empties:
            return Truncate(**told)
        told["on_add_default"] = "null" if target.is_log else changefeed.on_add_default
        told["on_type_change"] = changefeed.on_type_change
        if step.of_shard and not target.is_log:
            then = of_values(step.of_shard)
            names = tuple(each.name for each in then.partitions)
            return RemovePartitions(**told, change=None, partitions=names, partitions_then=then)
        if step.partitions and not target.is_log:
            return RemovePartitions(**told, change=step.change, partitions=step.partitions)
        return plain if step.change is None else AlterTable(**told, change=step.change)

    def _shards(self) -> dict[str, Any]:
        """While a shard is behind, its rows have another shape than those of the others."""
        after = self._step.shards.get(self._name)
        if after is None or self._table is None:
            return {}
        behind = (*self._table.shards.behind.values(), *after.behind.values())
        return {"shards": after.to_text(), "bars_rewind": any(behind)}

    def _null_dates(self) -> frozenset[str]:
        """Columns in which dates that Delta does not have may be NULL: they are counted by the name
        that a column had then."""
        table = self._table
        if table is None or table.target is None or self._name not in self._rows.progress:
            return frozenset()
        counts = self._rows.null_dates(self._name)
        columns = {each.name: each.type.name for each in table.target.schema.delivered}
        is_renamed = not counts.keys() <= columns.keys()
        return frozenset(
            name
            for name, kind in columns.items()
            if kind in MOMENTS and (is_renamed or name in counts)
        )

    def _counted(self, table: ReplicatedTable) -> ReplicatedTable:
        order, counts = self._order, self._rows.null_dates(self._name)
        if not isinstance(order, Reshape) or table.version is None:
            return table
        options = revealed_options(self._context.changefeed.sink.storage_options)
        made = dates_made_null(order, table.version, counts, options)
        return replace(table, null_dates={**counts, **made}) if made else table

    def _renamed(self) -> RenamedSpans:
        event, spans, moves = self._step.event, self._spans, self._step.moves
        both = ((spans[old].target, spans.target_under(old, new)) for old, new in moves)
        targets = [(was, will) for was, will in both if was is not None and will is not None]
        for was, will in targets:
            if was.form != will.form:
                raise TidelakeError(
                    f"[[sink.tables]] has {was.form} for {was.name} and {will.form} for "
                    f"{will.name}: give both the same"
                )
        order = TableRename(
            moves=targets,
            ddl=self._ddl,
            properties=spans.ownership(event.identity),
            shards={name: of.to_text() for name, of in self._step.shards.items()},
            before_commit=self._check,
        )
        left = rename(self._engine, order)
        failpoint(Failpoint.AFTER_DDL)
        for old, new in moves:
            logger.info("renamed the table table=%s new_name=%s", old, new)
        at_ts = event.commit_ts
        return RenamedSpans(
            ended=tuple(
                EndedSpan(table=spans[old], at_ts=at_ts, version=left.get(spans.uri(old)))
                for old, _ in moves
            ),
            made=tuple(self._moved(old, new, at_ts) for old, new in moves),
        )

    def _moved(self, old: TableName, new: TableName, at_ts: Ts) -> ReplicatedTable:
        """Its row of progress may be behind what its writer has told of it."""
        made = self._spans.renamed(old, new, at_ts)
        if old not in self._rows.progress:
            return made
        return replace(made, null_dates=self._rows.null_dates(old))

    def _recovered(self, old: TableName, new: TableName) -> RenamedSpans:
        event, spans = self._step.event, self._spans
        if not is_recovered(spans.at(new), self._ddl):
            kept = kept_place(old, spans.uri(old), spans.at(old))
            target = spans.kept_target(kept, new)
            if target is None:
                raise not_kept(old, kept)
            order = TableRecovery(
                kept=kept,
                target=target,
                ddl=self._ddl,
                properties=spans.ownership(event.identity),
                before_commit=self._check,
            )
            recover(self._engine, order)
        failpoint(Failpoint.AFTER_DDL)
        logger.info("the table is back table=%s new_name=%s", old, new)
        return RenamedSpans(ended=(), made=(spans.come(new, event.commit_ts),))

    def _exchanged(self, other: TableName) -> list[ReplicatedTable]:
        name, (partition,), spans = self._name, self._step.partitions, self._spans
        partitioned, table = spans[name].target, spans[other].target
        assert partitioned is not None
        assert table is not None
        if not (partitioned.is_log and table.is_log):  # they keep what happened as it was
            exchange(
                self._engine,
                PartitionExchange(
                    partitioned=partitioned,
                    partition=partition,
                    table=table,
                    ddl=self._ddl,
                    rules=self._rules,
                    before_commit=self._check,
                ),
            )
        failpoint(Failpoint.AFTER_DDL)
        logger.info("exchanged rows table=%s partition=%s with=%s", name, partition, other)
        return [self._looked_at(each) for each in (other, name)]

    def _alter(self) -> Applied | Skipped | None:
        order = self._order
        try:
            if isinstance(order, RemovePartitions) and self._step.is_rewound:
                order = replace(order, partitions_then=self._partitions_then())
            return None if order is None else self._engine.alter(order)
        except NotForThisEngine:
            if not self._step.is_skipped:
                raise
            logger.info("the table takes no note of it table=%s", self._step.name)
            return None

    def _partitions_then(self) -> Partitioning:
        """The partitions below the DDL, if the table was rewound and has a later shape."""
        changefeed, table = self._context.changefeed, self._table
        assert table is not None
        assert table.target is not None
        rows = self._context.tables.schemas.of_table(changefeed.id, table.name)
        found = partitions_then(
            rows, table.target.schema, made_ts=table.created_ts, ddl_ts=self._ddl.commit_ts
        )
        if found is None:
            raise TidelakeError(PARTITIONS_OF_LATER)
        return found


def carry_out(
    context: RoleContext, rows: ControlRows, reader: DdlReader, step: DdlStep, closing: Event
) -> None:
    """On one table after the other, and on renamed ones together, until it is done or ``closing``
    is set. Raises DdlNotSupported."""
    for name in step.turns:
        with DdlRun(context, rows, step, name) as run:
            done = run.until_done(closing)
        if done is None:
            return
        for each in done:
            if isinstance(each, ReplicatedTable):
                rows.altered(each)
            reader.ran(each)


def noted(error: BaseException, context: RoleContext) -> BaseException:
    """The error with which the changefeed stops. For a DDL that cannot be run it names the commands
    that go on, and `tidelake ddl list` finds it. Storage that is away hides no reason: the next
    start comes to the DDL again."""
    if not isinstance(error, DdlNotSupported) or error.ddl is None:
        return error
    changefeed, ddl = context.changefeed, error.ddl
    row = noted_row(changefeed.id, HeldTable(event=ddl, why=error.why))
    with suppress(TidelakeError):
        context.trust.check()
        context.tables.blocked_ddls.note(row)
    return refusal(ddl, error.why, way_past(ddl, changefeed))
