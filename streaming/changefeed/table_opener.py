"""What a table's own log says, and what is made of it: opens, makes and seals targets.

A span is one whole table. It becomes known from its ``CREATE TABLE``, from its progress row after a
restart, or, where the stream starts later, from the schema file or the types that its messages
carry. Its start point is the greater of the identity in its Delta log and its progress row; the log
is the truth."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from conf.settings import DeltaSink
from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.altered_by_hand import altered, unaltered_schema
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import ALTERED, INCARNATION, DdlIdentity, ownership, retention
from sinks.target.target_table import (
    TargetState,
    inspect,
    lengthened,
    refuse_another_key,
    refuse_other_form,
    refuse_unless_ours,
    seal,
    table_uri,
)
from sinks.types.table_schema import TableSchema
from streaming.changefeed.earlier_filters import refuse_left_out_tables
from streaming.changefeed.refused.brought_back_tables import (
    BroughtBackTables,
    blocked_table,
    refuse_unless_healed,
)
from streaming.changefeed.refused.refused_tables import (
    refuse_a_gap,
    refuse_late,
    refuse_unless_there,
)
from streaming.changefeed.replicated_table import (
    NO_DDL,
    REPLICATING,
    WARNING,
    ReplicatedTable,
    is_rewinding,
    start_point,
    where_it_goes_on,
)
from streaming.changefeed.routes import Shards
from streaming.changefeed.schema_file import Definitions
from streaming.changefeed.schema_from_rows import Untold, WholeRow, refuse_unlike, schema_of_row
from streaming.changefeed.target_forms import WriteModes

logger = logging.getLogger(__name__)
NO_MORE: Final[Mapping[str, str]] = {}


class TableOpener:
    """Opens, makes and seals the targets of one incarnation's tables. It keeps no table: what it
    returns is to be put into `Tables`."""

    def __init__(
        self,
        sink: DeltaSink,
        row: ChangefeedRow,
        forms: WriteModes | None = None,
        defined: Definitions | None = None,
    ) -> None:
        """``defined``: what tables were at the start-ts, from the schema file."""
        self.forms = forms or WriteModes()
        self.defined = Definitions() if defined is None else defined
        self._sink = sink
        self._options = revealed_options(sink.storage_options)
        self._row = row
        self._brought_back = BroughtBackTables(self._options)
        self.older_copies: dict[TableName, int] = {}  # a rewind loads them anew above this version

    def uri(self, name: TableName) -> str:
        return table_uri(self._sink.warehouse, name)

    def opened(self, name: TableName, row: ProgressRow, at_least: Ts) -> ReplicatedTable:
        """The table as its log has it now, to go on above the greatest of its identity, its row and
        ``at_least`` (docs/cluster.md 9). Raises where it cannot go on."""
        span = self._resumed(name, row)
        return replace(span, checkpoint=Ts(max(span.checkpoint, at_least)))

    def resumed(self, name: TableName, row: ProgressRow) -> ReplicatedTable:
        """The table of this row, for the owner; one of an older incarnation is sealed first, and
        one that a DDL has dropped says so. Raises where it cannot go on."""
        span = self._resumed(name, row, lengthens=True)
        if not span.is_dropped:
            refuse_a_gap(span, self._row)
        return span

    def _resumed(
        self, name: TableName, row: ProgressRow, *, lengthens: bool = False
    ) -> ReplicatedTable:
        state = None if row.state == DROPPED or row.lacks else self.at(name)
        if state is not None and (held := self._blocked(name, row, state)) is not None:
            return held
        if (found := where_it_goes_on(row, state, self._row)) is not None:
            is_late = not (found.is_dropped or found.lacks or is_rewinding(self._row))
            if is_late and self.forms.of(name).all_columns:
                refuse_late(row, self._row)
            return found
        refuse_unless_there(self.uri(name), row, state, self._row)
        assert state is not None
        if lengthens:
            state = lengthened(self.uri(name), state, self._sink.snapshot_retention_h)
        schema = unaltered_schema(name, state)
        if row.incarnation < self._row.incarnation:
            if is_rewinding(self._row):
                refuse_another_key(name, state, self._row.checkpoint_ts)
            state = self._seal(name, state, row.incarnation, Ts(row.checkpoint_ts))
        target = self._target(name, schema, state)
        begin = max(start_point(row, state.identity(target.app_id), self._row), state.begun_ts)
        span = self._span(target, state, Ts(begin))
        there = {column.name for column in target.schema.delivered}
        dropped = {c: n for c, n in row.dropped_columns.items() if c not in there}
        return replace(
            span,
            dropped=dropped,
            null_dates=row.null_dates,
            state=WARNING if dropped else REPLICATING,
        )

    def _blocked(
        self, name: TableName, row: ProgressRow, state: TargetState
    ) -> ReplicatedTable | None:
        """The table as blocked, if others have brought an older state of it back or altered its
        columns; None also if a rewind heals it."""
        app = self._app_id(name, row.incarnation)
        if (found := self._brought_back.find(self.uri(name), row, state, app)) is None:
            return self._altered(name, row, state)
        if row.incarnation < self._row.incarnation:
            refuse_unless_healed(name, found, row, self._row)
            if found.known_version is not None:
                self.older_copies[name] = found.version
            return None
        was = self._brought_back.before(self.uri(name), row, found, state)
        target = self._target(name, was.schema, was) if was.schema and was.ddl else None
        return blocked_table(found.sentence(name), row, was, target)

    def _altered(
        self, name: TableName, row: ProgressRow, state: TargetState
    ) -> ReplicatedTable | None:
        is_ours = state.changefeed_id == self._row.changefeed_id and not state.is_dropped
        if not is_ours or state.schema is None or row.incarnation < self._row.incarnation:
            return None
        why = altered(state, name)
        target = self._target(name, state.schema, state)
        return blocked_table(f"table {name}: {why}", row, state, target) if why else None

    def refuse_brought_back(self, span: ReplicatedTable, row: ProgressRow) -> None:
        """Raises TableBroughtBack where that was since the table was opened or its row written."""
        if (state := self.at(span.name)) is not None:
            self._brought_back.refuse(self.uri(span.name), row, state, span)

    def _seal(
        self, name: TableName, state: TargetState, oldest: int, checkpoint: Ts
    ) -> TargetState:
        """End the app IDs of older incarnations: an old zombie's write is skipped whatever its L
        (rule 4). A rewind begins at its own ts, whatever the table shows already; but not below the
        DDL that brought it to its name, since what it had before does not come again."""
        apps = [self._app_id(name, i) for i in range(oldest, self._row.incarnation)]
        newest = self._app_id(name, self._row.incarnation)

        def begin(reached: Ts) -> Ts:
            start = max(checkpoint, reached)
            back_to = max(self._row.checkpoint_ts, state.begun_ts)
            return Ts(min(start, back_to) if is_rewinding(self._row) else start)

        incarnation = {INCARNATION: str(self._row.incarnation)}
        sealed = seal(self.uri(name), apps, newest, begin, self._options, properties=incarnation)
        start_ts = sealed.identity(newest)
        logger.info("sealed the table for a new incarnation table=%s start_ts=%d", name, start_ts)
        return sealed

    def created(
        self,
        name: TableName,
        schema: TableSchema,
        ddl: DdlIdentity,
        start: Ts,
        shape_ts: Ts = NO_DDL,
        *,
        also: Mapping[str, str] = NO_MORE,
    ) -> ReplicatedTable:
        """Make the target and its span; without a usable key only the span, in state warning.
        ``shape_ts``: DDLs at or below are in the schema already. ``also``: further properties."""
        schema = self.forms.of(name).keyed(schema)
        if not schema.key and not self.forms.of(name).is_log:
            logger.warning(
                "the table has no primary key and no NOT NULL unique key: its rows go to "
                "dead_letters, unless [[sink.tables]] has write-mode append or key all-columns for "
                "it table=%s",
                name,
            )
            return ReplicatedTable(name=name, checkpoint=start, is_keyless=True, state=WARNING)
        target, properties = self._target(name, schema), {**self.ownership(ddl), **also}
        if shape_ts:
            properties[ALTERED] = DdlIdentity(commit_ts=shape_ts, order=0, query="").to_json()
        create(target, properties=properties, storage_options=self._options)
        failpoint(Failpoint.AFTER_CREATE_TABLE)
        return self._taken_up(name, inspect(target.uri, self._options), start)

    def ownership(self, ddl: DdlIdentity) -> dict[str, str]:
        """The properties of a table that the DDL makes."""
        owned = ownership(
            changefeed_id=self._row.changefeed_id,
            incarnation=self._row.incarnation,
            ddl=ddl,
        )
        return owned | retention(self._sink.snapshot_retention_h)

    def _taken_up(self, name: TableName, state: TargetState | None, start: Ts) -> ReplicatedTable:
        """Opens an existing target, whichever of our processes made it."""
        assert state is not None
        made_by = state.incarnation or 0
        if made_by < self._row.incarnation:  # made, but never filled, before the rewind
            state = self._seal(name, state, made_by, start)
        target = self._target(name, unaltered_schema(name, state), state)
        return self._span(target, state, Ts(max(start, state.identity(target.app_id) or 0)))

    def at(self, name: TableName) -> TargetState | None:
        """The table at this name, whether it is one of ours or not."""
        return inspect(self.uri(name), self._options)

    def kept_target(self, kept: str, name: TableName) -> Target | None:
        """The target of a dropped table that comes back under this name; None: nothing was kept
        there."""
        state = inspect(kept, self._options)
        if state is None:
            return None
        return self._target(name, unaltered_schema(name, state), state)

    def target_under(self, table: ReplicatedTable, new_name: TableName) -> Target | None:
        """The target of a table that is renamed; None if it has none."""
        return table.target and self._target(new_name, table.target.schema)

    def renamed(self, before: ReplicatedTable, new_name: TableName, at_ts: Ts) -> ReplicatedTable:
        """The table under its new name, as the DDL has made it."""
        if before.target is None:
            return replace(before, name=new_name, checkpoint=at_ts, created_ts=NO_DDL)
        come = self.come(new_name, at_ts)
        counted, nulled = before.dropped, before.null_dates
        return replace(come, state=before.state, dropped=counted, null_dates=nulled)

    def come(self, name: TableName, at_ts: Ts) -> ReplicatedTable:
        """The table that a DDL has brought to this name."""
        return self._taken_up(name, self.at(name), at_ts)

    def look_again(self, span: ReplicatedTable) -> ReplicatedTable:
        """The table as its log has it after a DDL; its checkpoint stays."""
        name = span.name
        state = self.at(name)
        if state is None or span.target is None:
            raise TidelakeError(f"table {name} is gone from {self.uri(name)}; restore it")
        target = self._target(name, unaltered_schema(name, state), state)
        found = self._span(target, state, span.checkpoint)
        return replace(found, null_dates=span.null_dates)

    def made_from_rows(
        self,
        name: TableName,
        told: WholeRow | Untold,
        start: Ts,
        origins: Iterable[TableName] = (),
        known: ReplicatedTable | None = None,
    ) -> ReplicatedTable:
        """The table whose CREATE TABLE lies before the stream, with its target made as the schema
        file defines it, or else as its newest whole row tells it. Raises where its first rows were
        passed over, and where file and row differ. ``origins``: its upstream tables, by names.
        ``known``: as it is registered already."""
        if known is None:
            refuse_left_out_tables(self._row, [*origins] or [name])
        begin = start if known is None else known.checkpoint
        schema, shape_ts = self.defined.schema(name), NO_DDL
        if schema is not None and isinstance(told, WholeRow) and told.types:
            refuse_unlike(name, self.forms.of(name).choice.chosen(schema), told)
        elif schema is None:
            if isinstance(told, Untold) or told.is_elsewhere:
                return self._without_rows(
                    known or ReplicatedTable(name=name, checkpoint=begin), begin, told
                )
            schema = schema_of_row(name, told, needs_key=self.forms.of(name).needs_key)
            shape_ts = told.commit_ts
        no_ddl = DdlIdentity(commit_ts=NO_DDL, order=0, query="")
        return self.created(name, schema, no_ddl, begin, shape_ts)

    def _without_rows(
        self, known: ReplicatedTable, start: Ts, told: WholeRow | Untold
    ) -> ReplicatedTable:
        """No row tells what the table is; if it is there nevertheless, it says so itself."""
        name = known.name
        state = self.at(name)
        if state is not None and not state.is_dropped:
            ours, incarnation = self._row.changefeed_id, self._row.incarnation
            refuse_unless_ours(
                state, name, self.uri(name), changefeed_id=ours, incarnation=incarnation
            )
            return self._taken_up(name, state, start)
        if isinstance(told, WholeRow):  # the owner knows it, and would have made it with a key
            return ReplicatedTable(name=name, checkpoint=start, is_keyless=True, state=WARNING)
        is_cut = told is Untold.ONLY_CUT
        if is_cut and known.state != WARNING:
            logger.warning(
                "no CREATE TABLE of this table was read, and its rows tell no types, or their keys "
                "alone: they go to dead_letters until a row, or --schema-file, tells them table=%s",
                name,
            )
        return replace(known, state=WARNING if is_cut else known.state)

    def _span(self, target: Target, state: TargetState, checkpoint: Ts) -> ReplicatedTable:
        return ReplicatedTable(
            name=target.name,
            checkpoint=checkpoint,
            target=target,
            version=state.version if state.left_version is None else state.left_version,
            identity=state.identity(target.app_id) if state.left_version is None else None,
            created_ts=state.ddl.commit_ts if state.ddl else NO_DDL,
            last_ddl_ts=state.last_ddl_ts(target.app_id),
            shape_ts=state.shape_ts,
            shape=state.shape_ddl,
            shaped_at=state.shaped_at,
            shown_ts=state.shown_ts,
            shards=Shards.of_text(state.shards),
        )

    def _target(
        self, name: TableName, schema: TableSchema, state: TargetState | None = None
    ) -> Target:
        form = self.forms.of(name)
        if state is not None:
            refuse_other_form(state, name, form)
        self.forms.refuse(name, schema)
        return Target(
            name=name,
            uri=self.uri(name),
            schema=schema,
            app_id=self._app_id(name, self._row.incarnation),
            shaped_by=None if state is None else state.properties.get(ALTERED, ""),
            form=form,
        )

    def _app_id(self, name: TableName, incarnation: int) -> str:
        return app_id(self._row.changefeed_id, incarnation, name)
