"""``tidelake table reload``: an operator's order to load one table anew from its database.

The order goes into ``_tidelake/reloads``. The `tidelake run` that is up finds it there within
seconds, ends its stream, carries it out and goes on; else its next start does. In a cluster the
leader pauses the changefeed, carries it out and resumes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from conf.settings import DeltaSink
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_parameters import AT_LEAST_ONCE
from conf.sources.source_uri import SourceSettings
from coordination.errors import ConfigError
from coordination.model import TableName
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.log.pause import PAUSED
from sinks.merge_on_write.version_reader import open_version
from sinks.target.target_table import TargetState, inspect, table_uri
from streaming.changefeed.earlier_filters import stored_routes
from streaming.changefeed.replicated_table import NO_KEY, RULES, WARNING, no_reload_of
from streaming.changefeed.routes import Routes, Shards
from streaming.operations.changed import CHANGED, between
from streaming.operations.diff.comparison import changefeed_of
from streaming.source.binlog.source import PART, BinlogSource
from streaming.source.dump.source_table import SourceTable, read_tables

ShownRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A table for which it may be ordered, as the warehouse has it. ``state`` None: it is gone."""

    changefeed: ChangefeedRow
    progress: ProgressRow
    state: TargetState | None


def order_reload(
    sink: DeltaSink,
    changefeed_id: str | None,
    table: str,
    *,
    source: SourceSettings | None = None,
    is_dry: bool,
) -> ShownRow:
    """Store the order, or (``is_dry``) only tell what it would do. Returns what there is to tell.
    With ``source`` the database is asked what the table is there. Raises ConfigError where it
    cannot be ordered."""
    row = changefeed_of(sink, changefeed_id)
    _refuse_changefeed(row)
    known = _known(sink, row, table)
    asked = {} if source is None else _asked(source, row, known.progress.name)
    order = None
    reloads = ControlTables.of(sink).reloads
    before = reloads.read(row.changefeed_id).get(known.progress.name)
    if not is_dry:
        order = reloads.order(row.changefeed_id, known.progress.name)
    is_new = order is not None and (before is None or before.order_id != order.order_id)
    state_before = "-" if before is None else before.state
    return {
        "changefeed": row.changefeed_id,
        "table": str(known.progress.name),
        "state": "nothing is ordered (--dry-run)" if order is None else order.state,
        "now": _now(known),
        **_sizes(sink, known),
        **asked,
        "does": _does(known),
        "next": _next(row, is_dry=is_dry),
        CHANGED: between({"state": state_before}, {"state": "ordered"}) if is_new else {},
    }


def _refuse_changefeed(row: ChangefeedRow) -> None:
    told = json.loads(row.row_rules or "{}")
    if told.get("delivery") == AT_LEAST_ONCE:
        raise ConfigError(
            f"the rows of changefeed {row.changefeed_id} have no commit-ts of their database (they "
            f"come by {told.get('protocol')}), so no copy of a table can be put among them. Rewind "
            "the changefeed with --overwrite-checkpoint-ts to below what the table lacks: the "
            "source brings it again"
        )
    if _is_of_ticdc(row) and not row.is_of_a_run:
        raise ConfigError(
            f"changefeed {row.changefeed_id} is a cluster's and reads what TiCDC sends; a table of "
            "such a one is loaded anew for a `tidelake run` alone. Move the table's folder away, "
            "and rewind with --overwrite-checkpoint-ts to below the table's CREATE TABLE"
        )
    if not _is_of_ticdc(row) and (PART not in row.source_positions or PART not in row.watermarks):
        raise ConfigError(
            f"changefeed {row.changefeed_id} has read nothing yet: its first copy loads all tables"
        )
    if row.state == "finished":
        raise ConfigError(
            f"changefeed {row.changefeed_id} has finished at its target-ts, and reads nothing more"
        )


def _is_of_ticdc(row: ChangefeedRow) -> bool:
    return bool(row.source_positions) and PART not in row.source_positions


def _known(sink: DeltaSink, row: ChangefeedRow, table: str) -> _Known:
    rows = ControlTables.of(sink).progress.read(row.changefeed_id)
    there = {str(name): each for name, each in rows.items()}
    routes = stored_routes(row)
    found = there.get(table)
    if found is None:
        raise ConfigError(
            f"changefeed {row.changefeed_id} has no table {table}{_instead(table, there, routes)}"
        )
    if found.state == DROPPED:
        raise ConfigError(
            f"table {table} was dropped in the database, at commit-ts {found.checkpoint_ts}: "
            "a CREATE TABLE makes it again"
        )
    if found.lacks:
        raise ConfigError(found.error or f"table {table} lacks {found.lacks}")
    uri = table_uri(sink.warehouse, found.name)
    state = inspect(uri, revealed_options(sink.storage_options))
    if state is None and found.delta_version is None and found.state == WARNING:
        raise ConfigError(
            f"table {table} has no target: it has {NO_KEY}. Say what it shall be, by {RULES}, and "
            "start with --overwrite-checkpoint-ts; or give it a key"
        )
    if state is not None:
        _refuse_target(table, state, row)
    return _Known(changefeed=row, progress=found, state=state)


def _refuse_target(table: str, state: TargetState, row: ChangefeedRow) -> None:
    if state.changefeed_id != row.changefeed_id:
        made = "Tidelake" if state.changefeed_id is None else f"changefeed {row.changefeed_id}"
        raise ConfigError(
            f"the Delta table at the place of {table} was not made by {made}: move it away, and "
            "order it then"
        )
    is_of_rows = state.schema is not None and state.schema.key_is_row
    if is_of_rows and len(origins := Shards.of_text(state.shards)) > 1:
        raise ConfigError(
            f"table {table} is not loaded anew: {', '.join(map(str, origins))} go into it, and it "
            "is written by all columns, so their copies would have to be of one moment. Give each "
            "a target of its own"
        )
    if why := no_reload_of(state.form):
        raise ConfigError(f"table {table} is not loaded anew: {why}")
    if state.properties.get(PAUSED) == "true":
        raise ConfigError(f"table {table} is paused: `tidelake table resume` it first")


def _instead(table: str, there: Mapping[str, ProgressRow], routes: Routes | None) -> str:
    schema, _, rest = table.partition(".")
    if routes is not None and rest:
        target = str(routes.of(TableName(schema, rest)).target)
        if target in there:
            return f": its rows go into {target}, so name that"
    if not there:
        return ""
    return f", but {', '.join(sorted(there))}"


def _now(known: _Known) -> str:
    if known.state is None:
        return "its folder is gone"
    row, feed = known.progress, known.changefeed
    of_feed = feed.error if feed.error and str(row.name) in feed.error else ""
    told = " ".join((row.error or of_feed or "").split())
    return f"{row.state if row.error else feed.state}: {told}" if told else "nothing holds it"


def _sizes(sink: DeltaSink, known: _Known) -> dict[str, Any]:
    if known.state is None:
        return {"rows": None}
    uri, options = known.state.handle.table_uri, revealed_options(sink.storage_options)
    return {"rows": open_version(uri, known.state.version, options).count_rows()}


def _does(known: _Known) -> str:
    told = "copies the table as it is in the database, and puts it in the place of "
    if known.state is None:
        return "makes the table anew, and copies it from the database"
    told += f"version {known.state.version} by one commit, with its columns and its key. "
    told += "Earlier versions stay as long as retention keeps them. No rewind goes below"
    if known.state.form.soft_delete:
        told += ". Rows that are marked as deleted are not in the copy"
    return told


def _next(row: ChangefeedRow, *, is_dry: bool) -> str:
    if is_dry:
        return "without --dry-run it is ordered. While it is copied, the other tables wait"
    if _is_of_ticdc(row):
        return (
            "stop the `tidelake run`. Start it once with the tidb:// URI of the TiDB and the same "
            "--changefeed-id, --sink-uri and --config: it copies the table as of the present, and "
            "ends. Then start it with its own URI again"
        )
    while_it_lasts = "The other tables wait meanwhile: `tidelake progress` says how far it is"
    if not row.is_of_a_run and row.term:
        told = "the cluster's leader does it within seconds"
        if row.state == "stopped":
            told = "the cluster's leader does it as soon as the changefeed or task is resumed"
        return f"{told}. {while_it_lasts}"
    if row.state in ("failed", "stopped"):
        return "start `tidelake run` again: it loads the table first, and then goes on"
    return (
        f"a `tidelake run` that is up does it within seconds, else its next start. {while_it_lasts}"
    )


def _asked(settings: SourceSettings, row: ChangefeedRow, name: TableName) -> dict[str, Any]:
    if _is_of_ticdc(row):
        raise ConfigError(
            f"source-uri: the rows of changefeed {row.changefeed_id} have the TSOs of a TiDB, and "
            "no other database can tell what a table was at one: leave it out"
        )
    if not isinstance(settings, BinlogSettings):
        raise ConfigError("source-uri: a table is loaded anew from a mysql:// or mariadb:// URI")
    routes = stored_routes(row)

    def is_wanted(each: TableName) -> bool:
        return each == name if routes is None else routes.of(each).target == name

    with closing(BinlogSource(settings)) as source:
        source.keep_to(row.source_identities)
        ask = source.database.ask
        schemas = [each for (each,) in ask("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")]
        tables = read_tables(ask, schemas, is_wanted)
    if not tables:
        raise ConfigError(f"the database has no table {name}, or the account may not read it")
    return {
        "rows_in_database": sum(each.rows for each in tables),
        "becomes": _shape(tables[0]),
    }


def _shape(table: SourceTable) -> str:
    columns = ", ".join(f"{each.name} {each.type}" for each in table.columns)
    return f"{columns}; key {', '.join(table.key) or 'none'}"
