"""The load of all tables of a settled copy: one commit each, and then their first progress rows."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from conf.settings import Changefeed
from coordination.errors import ConfigError, Stop
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName, Ts
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import ProgressRow
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.alter.made_anew import MadeAnew
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import column_types, table_properties
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import ALTERED, REKEYED, DdlIdentity
from sinks.target.target_table import TargetState, refuse_unless_ours
from sinks.types.table_schema import TableSchema
from streaming.apply.applier import with_null_dates
from streaming.apply.table_task import change_rules
from streaming.changefeed.replicated_table import (
    NO_DDL,
    ReplicatedTable,
    lacking,
    no_reload_of,
)
from streaming.changefeed.routes import Routes, Shards, changefeed_routes
from streaming.changefeed.schema_file import (
    of_mariadb,
    read_definitions,
    routed_definitions,
)
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import write_modes
from streaming.owner.progress_rows import first_progress
from streaming.owner.start_point import row_rules
from streaming.source.dump.copy_tables import CopyProgress
from streaming.source.dump.manifest import described
from streaming.spans.copies.found.left_out import LeftOut, what_it_lacks
from streaming.spans.copies.leftover import delete_leftover
from streaming.spans.copies.load_table import Loaded, load_table, loading
from streaming.spans.copies.moments import Moment
from streaming.spans.copies.settled_copy import CopiedFrom, SettledCopy

logger = logging.getLogger(__name__)

_NOT_BY_A_DDL: Final = DdlIdentity(commit_ts=NO_DDL, order=0, query="")


def load_all(
    changefeed: Changefeed,
    settled: SettledCopy,
    row: ChangefeedRow,
    part: str,
    *,
    anew: str,
    progress: Callable[[CopyProgress], None],
    is_stopped: Callable[[], bool],
    check: Callable[[], None],
    order_id: str = "",
) -> list[ReplicatedTable]:
    """Fill the targets of the copied tables, and claim and write their progress rows in ``row``'s
    term. What is loaded already stays. ``part``: of the source that the moments' positions are in.
    ``anew``: see ``load_table``. ``order_id``: of the operator's order by which the rows come in
    the place of what the targets have. Raises Stop, and what ``load_table`` and ``check`` raise;
    ``check`` comes before each commit."""
    load = _Load(
        changefeed,
        settled,
        row,
        part,
        anew=anew,
        progress=progress,
        check=check,
        order_id=order_id,
    )
    routes, tables = load.routes, ControlTables.of(changefeed.sink)
    rows, loaded = [], []
    for each in settled.tables:
        progress(loading(each.copied, 0))
    try:
        copies = {each.name: each for each in settled.tables}
        for target, origins in routes.by_target(copies).items():
            if is_stopped():
                raise Stop("the load was asked to stop: it goes on with the next table")
            here = [copies[each] for each in origins]
            begin = min(each.begin for each in here)
            load.fill(target, here, begin)
            for each in here:
                progress(loading(each.copied, each.copied.rows, is_done=True))
            failpoint(Failpoint.AFTER_LOAD_ONE)
            positions = {part: begin.position} if part in row.source_positions else {}
            loaded.append(load.registry[target])
            rows.append(first_progress(loaded[-1], row, positions))
        rows += left_out_rows(settled.left_out, load.routes, row)
    finally:
        load.engine.close()
    failpoint(Failpoint.BEFORE_FIRST_ROWS)
    check()
    tables.progress.claim(row.changefeed_id, row.term)
    tables.progress.advance(rows, row.term)
    return loaded


def left_out_rows(
    left_out: Iterable[LeftOut], routes: Routes, row: ChangefeedRow
) -> Iterator[ProgressRow]:
    """The progress rows of tables that were not copied."""
    tables = {each.name: each for each in left_out}
    for target, origins in routes.by_target(tables).items():
        lacks = what_it_lacks(target, [tables[each] for each in origins])
        table = lacking(target, Ts(row.checkpoint_ts), lacks)
        logger.warning("%s", table.why_not)
        yield first_progress(table, row, row.source_positions)


class _Load:
    def __init__(
        self,
        changefeed: Changefeed,
        settled: SettledCopy,
        row: ChangefeedRow,
        part: str,
        *,
        anew: str,
        progress: Callable[[CopyProgress], None],
        check: Callable[[], None],
        order_id: str,
    ) -> None:
        sink = changefeed.sink
        self._order_id = order_id
        self._tables = ControlTables.of(sink)
        self.routes = changefeed_routes(changefeed)
        definitions = read_definitions(settled.definitions, self.routes.filter.selects)
        if settled.is_mariadb:
            definitions = of_mariadb(definitions, omits_generated=settled.omits_generated)
        defined = routed_definitions(definitions, self.routes)
        self.registry = TableRegistry(sink, row, write_modes(changefeed), defined)
        self._row = row
        self._options = revealed_options(sink.storage_options)
        self.engine = MergeOnWriteEngine(self._options, keeps_up=False)
        self._rules = change_rules(changefeed)
        self._row_rules = row_rules(changefeed)
        self._part = part
        self._anew = anew
        self._progress = progress
        self._check = check

    def fill(self, name: TableName, copies: Sequence[CopiedFrom], begin: Moment) -> None:
        """``copies``: of the tables that go into this target. It goes on at ``begin``, the earliest
        of theirs."""
        registry = self.registry
        schema = registry.defined.schema(name)
        assert schema is not None, f"{name} is defined"
        shards = Shards().joined(*(each.name for each in copies))
        also = shards.properties if self.routes else {}
        last_ts = max(each.begin.ts for each in copies)
        loads = self._named(copies)
        self._check()
        if self._order_id:
            self._fill_anew(name, copies, begin, schema=schema, also=also, loads=loads)
            return
        delete_leftover(
            *(registry.uri(name), name, self._row, begin.ts), loads=loads, options=self._options
        )
        registry.create(name, schema, _NOT_BY_A_DDL, begin.ts, shape_ts=last_ts, also=also)
        target = registry[name].target
        if target is None:  # by its definition it has no key
            told = [LeftOut(name=each.name, rows=each.copied.rows) for each in copies]
            registry.put(lacking(name, begin.ts, what_it_lacks(name, told)))
            return
        loaded = self._loaded(target, copies, begin, loads)
        found = with_null_dates(registry[name], loaded.nulled)
        found = replace(found, version=loaded.version, identity=begin.ts, engine=self.engine.name)
        registry.put(found)

    def _loaded(
        self,
        target: Target,
        copies: Sequence[CopiedFrom],
        begin: Moment,
        loads: str,
        made_anew: MadeAnew | None = None,
    ) -> Loaded:
        began_s = time.monotonic()
        loaded = load_table(
            self.engine,
            [each.copied for each in copies],
            target,
            begin.ts,
            self._rules,
            added={each.name: self.routes.of(each.name).columns for each in copies},
            part=self._part,
            position=begin.position,
            loads=loads,
            anew=self._anew,
            made_anew=made_anew,
            on_progress=self._progress,
            check=self._check,
        )
        logger.info(
            "loaded table=%s rows=%d version=%d took_s=%.1f",
            *(target.name, sum(each.copied.rows for each in copies), loaded.version),
            time.monotonic() - began_s,
        )
        return loaded

    def _fill_anew(
        self,
        name: TableName,
        copies: Sequence[CopiedFrom],
        begin: Moment,
        *,
        schema: TableSchema,
        also: Mapping[str, str],
        loads: str,
    ) -> None:
        """All that the target has goes by the commit that brings the rows. It is done once for a
        copy: another copy for the same order (the first one's files are gone, say) comes too,
        since the table goes on where that one begins."""
        registry, row, form = self.registry, self._row, self.registry.forms.of(name)
        schema = form.keyed(schema)
        registry.forms.refuse(name, schema)
        if not (schema.key or form.is_log):
            raise ConfigError(f"table {name} cannot be loaded anew: {no_reload_of(form, schema)}")
        before = self._tables.progress.read(row.changefeed_id).get(name)
        present = self._present(name, -1 if before is None else before.delta_version or -1)
        if present is None:
            registry.create(name, schema, _NOT_BY_A_DDL, begin.ts, also=also)
            present = registry.at(name)
        assert present is not None
        ours, incarnation, uri = row.changefeed_id, row.incarnation, registry.uri(name)
        refuse_unless_ours(present, name, uri, changefeed_id=ours, incarnation=incarnation)
        writer = app_id(ours, incarnation, name)
        target = Target(name=name, uri=uri, schema=schema, app_id=writer, form=form)
        # What lies behind the copy's position is above all that was resolved before.
        reached = (present.identity(writer) or 0, 0 if before is None else before.checkpoint_ts)
        at = Moment(begin.position, Ts(max(begin.ts, *reached)))
        shape_ts = Ts(max(at.ts, *(each.begin.ts for each in copies)))
        shape = DdlIdentity(commit_ts=shape_ts, order=0, query="")
        owned = registry.ownership(present.ddl or _NOT_BY_A_DDL)
        # Rows from below the order would come to a table of another shape.
        marks = {ALTERED: shape.to_json(), REKEYED: str(at.ts + 1)}
        older = range(present.incarnation or incarnation, incarnation)
        made_anew = MadeAnew(
            order_id=f"{self._order_id}/{loads}",
            types=column_types(target),
            properties={**table_properties(target, {**owned, **also}), **marks},
            shape_ts=shape_ts,
            sealed=tuple(app_id(ours, each, name) for each in older),
        )
        loaded = self._loaded(target, copies, at, loads, made_anew)
        found = with_null_dates(registry.come(name, at.ts), loaded.nulled)
        registry.put(replace(found, engine=self.engine.name))

    def _present(self, name: TableName, known: int) -> TargetState | None:
        """The table at its place. If its log does not have the version that was ``known``, other
        content comes there: no snapshot may name it any more."""
        present = self.registry.at(name)
        version = -1 if present is None else present.version
        if known > version:
            row = self._row
            self._tables.snapshots.forget(row.changefeed_id, {name: version}, row.term)
        return present

    def _named(self, copies: Sequence[CopiedFrom]) -> str:
        """Other rows, or other values of them, have another name: which tables go into a target is
        told by a filter, and that may have changed since an earlier try."""
        tables = [(described(each.copied.table), each.copied.rows, each.begin) for each in copies]
        told = json.dumps([self._row_rules, tables], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()
