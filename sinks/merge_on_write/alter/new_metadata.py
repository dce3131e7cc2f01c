"""A table's metadata after a DDL, and the changes that its rows need: a decision without I/O.

Columns are mapped by name: a physical name never means another column or another type. So a change
that keeps a column's Delta type is metadata alone: a file that lacks a column reads as NULL there,
and the values of a dropped column are not read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordination.errors import TidelakeError
from sinks.ddl.column_origin import ColumnOrigin, OnAddDefault, column_origins
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.log.actions import Json, Metadata, Protocol
from sinks.merge_on_write.log.physical_schema import (
    INDEXED_COLUMNS,
    NotForThisEngine,
    PhysicalColumn,
    PhysicalSchema,
    listed_columns,
)
from sinks.target.altered_by_hand import how_altered
from sinks.target.table_properties import KEY, SCHEMA, TableProperties
from sinks.target.write_mode import WriteMode
from sinks.types.delta_types import delta_type, log_type, quoted, sql_type
from sinks.types.table_schema import MOMENTS
from sinks.types.type_changes import may_make_equal, needs_conversion

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
STATISTICS = "delta.dataSkippingStatsColumns"
NO_STATISTICS = "delta.dataSkippingNumIndexedCols"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
# Delta refuses binary, array and boolean in dataSkippingStatsColumns. delta-rs rounds the
# statistics of decimals to doubles (bigint unsigned is one), and a reader that trusts them loses
# rows: none then.
_WITHOUT_STATISTICS = ("binary", "array", "decimal", "boolean")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenColumn:
    """A column when rows are written anew, with its source in the files."""

    column: PhysicalColumn
    source: PhysicalColumn | None  # of the old shape
    origin: ColumnOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMetadata:
    protocol: Protocol
    metadata: Metadata
    shape: PhysicalSchema
    columns: tuple[RewrittenColumn, ...]  # those of ``shape``, in their order
    key_changes: bool  # in its columns or their values: NULL and doubles may come up
    zero_dates: frozenset[str]  # columns of the key in which NULL is 0000-00-00
    rekeys: bool  # rows (events of a change log) of before may be one by it: no rewind goes below

    @property
    def must_rewrite(self) -> bool:
        return self.key_changes or any(
            each.origin.types or each.origin.fill for each in self.columns
        )


def new_metadata(
    protocol: Protocol,
    metadata: Metadata,
    change: SchemaChange,
    *,
    on_add_default: OnAddDefault,
) -> NewMetadata:
    """Raises NotForThisEngine where this engine does not write the table, TidelakeError where
    somebody has altered its columns by hand."""
    old = PhysicalSchema.of(protocol, metadata)
    if metadata.configuration.get("delta.columnMapping.mode") != "name":
        raise NotForThisEngine("its columns are not mapped by name (delta.columnMapping.mode)")
    fields = {field["name"]: field for field in metadata.schema["fields"]}
    why = how_altered(TableProperties(properties=metadata.configuration), fields.values())
    if why and not _makes_anew(change):
        raise TidelakeError(why)
    last_id = max(ids_of(fields.values(), metadata.configuration))
    made: list[Json] = []
    for column in change.after.delivered:
        source = change.sources[column.name]
        field = field_of(
            column.name, delta_type(column.stored), fields.get(source or ""), last_id + 1
        )
        last_id = max(last_id, *ids_of([field], {}))
        made.append(field)
    form = WriteMode.of_properties(metadata.configuration)
    form.refuse_names(change.sources)
    if form.is_history and _rekeys(change):
        raise TidelakeError(
            "its key changes, and a table of write-mode = 'history' cannot tell which version of a "
            "row follows which by two keys: move it away, and load it anew (by `tidelake table "
            "reload` where its source is a database)"
        )
    made += (fields[name] for name in form.columns)
    configuration = {
        **metadata.configuration,
        KEY: json.dumps(list(change.after.key), ensure_ascii=False),
        SCHEMA: change.after.to_json(),
        MAX_COLUMN_ID: str(last_id),
    }
    _put_statistics(configuration, change, made)
    text = json.dumps({"type": "struct", "fields": made}, ensure_ascii=False)
    fields_of_metadata = {**metadata.fields, "schemaString": text, "configuration": configuration}
    new_metadata = Metadata(fields=fields_of_metadata)
    new_protocol = with_features(protocol, made)
    shape = PhysicalSchema.of(new_protocol, new_metadata)
    origins = column_origins(change, on_add_default)
    return NewMetadata(
        protocol=new_protocol,
        metadata=new_metadata,
        shape=shape,
        columns=tuple(_rewritten(old, shape, origins)),
        key_changes=form.mode == "upsert" and _key_changes(change),
        zero_dates=frozenset(_zero_dates(change)),
        rekeys=_rekeys(change),
    )


def _makes_anew(change: SchemaChange) -> bool:
    """No column stays: a CREATE TABLE in the place of a dropped one."""
    return not any(change.sources.values())


def ids_of(fields: Any, configuration: Mapping[str, str]) -> list[int]:
    """The IDs in use, and the greatest that ever was: it never falls."""
    used = [int(field["metadata"].get(ID, 0)) for field in fields]
    return [*used, int(configuration.get(MAX_COLUMN_ID, "0"))]


def field_of(name: str, kind: str, source: Json | None, new_id: int) -> Json:
    """A column, with the identity of its source where the type stays; its comment and notes stay
    always."""
    if source is not None and sql_type(source["type"]) == kind:
        return {**source, "name": name}
    notes = {} if source is None else source["metadata"]
    identity = {ID: new_id, PHYSICAL: f"col-{uuid.uuid4()}"}
    metadata = {**notes, **identity}
    return {"name": name, "type": log_type(kind), "nullable": True, "metadata": metadata}


def with_features(protocol: Protocol, fields: Sequence[Json]) -> Protocol:
    """The first DATETIME needs a feature."""
    needs = any("timestamp_ntz" in sql_type(field["type"]) for field in fields)
    if not needs or "timestampNtz" in protocol.features:
        return protocol
    return replace(
        protocol,
        reader_features=(protocol.reader_features or frozenset()) | {"timestampNtz"},
        writer_features=(protocol.writer_features or frozenset()) | {"timestampNtz"},
    )


def _put_statistics(
    configuration: dict[str, str], change: SchemaChange, fields: Sequence[Json]
) -> None:
    """Names in the list follow renames and drops; the key and new columns get statistics too."""
    if _makes_anew(change) and configuration.get(NO_STATISTICS) == "0":
        configuration[STATISTICS] = configuration.pop(NO_STATISTICS)[:0]
    listed = configuration.pop(STATISTICS, None)
    if listed is None:  # no column of ours could have them, or somebody has said otherwise
        return
    types = {field["name"]: sql_type(field["type"]) for field in fields}
    sources = {source: name for name, source in change.sources.items() if source is not None}
    before = {column.name for column in change.before.delivered}
    kept = [sources.get(name) if name in before else name for name in listed_columns(listed)]
    added = [name for name, source in change.sources.items() if source is None]
    wanted = (name for name in [*change.after.key, *kept, *added] if name in types)
    configuration |= statistics_property({name: types[name] for name in wanted if name})


def statistics_property(types: Mapping[str, str]) -> dict[str, str]:
    """Which columns get statistics: those among these whose statistics can be trusted, the most
    important first.

    It is always a list, never Delta's default of "the first 32": a decimal that is added later must
    not get statistics by itself.
    """
    able = [name for name, kind in types.items() if not kind.startswith(_WITHOUT_STATISTICS)]
    if not able:
        return {NO_STATISTICS: "0"}
    return {STATISTICS: ",".join(quoted(name) for name in able[:INDEXED_COLUMNS])}


def _rewritten(
    old: PhysicalSchema, new: PhysicalSchema, origins: Mapping[str, ColumnOrigin]
) -> Iterator[RewrittenColumn]:
    """The columns of the table's form, which no DDL knows, stay as they are."""
    for column in new.columns:
        name = column.name
        origin = origins.get(name) or ColumnOrigin(name=name, source=name)
        source = None if origin.source is None else old.column(origin.source)
        yield RewrittenColumn(column=column, source=source, origin=origin)


def _key_changes(change: SchemaChange) -> bool:
    """Where all columns are the key, a change of it keeps rows apart (`loses_rows_of_a_set`)."""
    if not change.after.key or change.after.key_is_row:
        return False
    if not _keeps_key(change) or any(map(change.by_server, change.after.key)):
        return True
    return change.session is None and any(
        needs_conversion(was, kind) for was, kind in change.key_types()
    )


def _rekeys(change: SchemaChange) -> bool:
    """Not where the key has the columns that it had, and any that are converted stay apart. Nor
    where the table is made again, without a row."""
    if _makes_anew(change) or not change.after.key or change.after.key_is_row:
        return False
    if not _keeps_key(change) or any(map(change.by_server, change.after.key)):
        return True
    return change.session is None and any(
        may_make_equal(was, kind) for was, kind in change.key_types()
    )


def _zero_dates(change: SchemaChange) -> Iterator[str]:
    """Those that were in the key as dates, and still are: no other NULL is in a key."""
    for name in change.after.key:
        source = change.sources[name]
        if source in change.before.key:
            types = change.before.column(source).stored, change.after.column(name).stored
            if all(each.name in MOMENTS for each in types):
                yield name


def _keeps_key(change: SchemaChange) -> bool:
    return set(change.before.key) == {change.sources[name] for name in change.after.key}
