"""What would keep a copy from being made or loaded, asked before it begins: all in one answer.

A copy may take hours. What can be known before must not come up behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conf.settings import Changefeed
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.target.target_table import inspect, refuse_unless_ours, table_uri
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.schema_file import of_mariadb, read_definitions, routed_definitions
from streaming.changefeed.target_forms import WriteModes, write_modes
from streaming.source.binlog.database import Database
from streaming.spans.copies.found.left_out import Sorted
from streaming.spans.copies.found.readable import definitions_now

Targets = Mapping[TableName, Sequence[TableName]]


def refusals(
    changefeed: Changefeed, database: Database, found: Sorted, row: ChangefeedRow | None
) -> list[str]:
    """A sentence each, with the way out; empty: nothing that can be known. ``found``: the tables,
    sorted out. ``row``: of the changefeed, which writes the targets; None: the targets may be
    whatever they are. Blocks: each table's definition and target is read."""
    forms, routes = write_modes(changefeed), changefeed_routes(changefeed)
    try:
        targets = routes.by_target(each.name for each in found.copied)
    except ConfigError as error:
        return [*found.refused, str(error)]
    told = [*found.refused, *_of_moments(forms, targets)]
    if text := definitions_now(database, [each.name for each in found.copied]):
        facts = database.facts()
        definitions = read_definitions(text, lambda _: True)
        if facts.is_mariadb:
            definitions = of_mariadb(definitions, omits_generated=facts.omits_generated)
        try:
            defined = routed_definitions(definitions, routes)
            for target in targets:
                schema = defined.schema(target)
                if schema is not None:
                    forms.of(target).keyed(schema)
        except ConfigError as error:
            told.append(str(error))
    return told if row is None else [*told, *_of_targets(changefeed, row, targets)]


def _of_moments(forms: WriteModes, targets: Targets) -> Iterator[str]:
    for target, origins in targets.items():
        form = forms.of(target)
        if len(origins) > 1 and form.needs_one_moment:
            yield (
                f"{origins[0]} and {origins[1]} both go into {target}, which is written with "
                f"{form}: a copy of several tables into such a target would need one moment for "
                "all of them. Begin with task-mode = incremental, or give each its own target"
            )


def _of_targets(changefeed: Changefeed, row: ChangefeedRow, targets: Targets) -> Iterator[str]:
    sink, id_ = changefeed.sink, changefeed.id
    for target in targets:
        uri = table_uri(sink.warehouse, target)
        present = inspect(uri, revealed_options(sink.storage_options))
        if present is not None:
            try:
                refuse_unless_ours(
                    present, target, uri, changefeed_id=id_, incarnation=row.incarnation
                )
            except TidelakeError as error:
                yield str(error)
