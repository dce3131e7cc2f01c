"""New target tables: each is made by one commit with schema, features and properties.

The commit is our own put-if-absent, on every storage that the engine commits to. It needs neither
Spark nor a JVM, which matters when a changefeed begins with hundreds of tables. The properties hold
what a later owner can no longer read from the stream.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping

from coordination.errors import ConfigError, TidelakeError, TryAgain
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.new_metadata import (
    MAX_COLUMN_ID,
    field_of,
    statistics_property,
    with_features,
)
from sinks.merge_on_write.alter.table_ddl import MakeAgain
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.actions import Metadata, Protocol
from sinks.merge_on_write.log.commit import create_table
from sinks.merge_on_write.log.physical_schema import READER_VERSION, WRITER_VERSION
from sinks.storage.errors import one_sentence
from sinks.storage.open_storage import open_storage
from sinks.target.engine_port import TableHeld, Target
from sinks.target.table_properties import (
    CHANGEFEED,
    DDL,
    INCARNATION,
    KEY,
    SCHEMA,
    SHARDS,
    DdlIdentity,
    retention,
)
from sinks.target.target_table import TargetState, inspect, refuse_other_form, refuse_unless_ours
from sinks.target.write_mode import COMMIT_TIME, COMMIT_TS
from sinks.types.delta_types import delta_type

TABLE_FEATURES = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
_FEATURES = frozenset({"columnMapping", "deletionVectors"})
_PROTOCOL = Protocol(
    min_reader_version=READER_VERSION,
    min_writer_version=WRITER_VERSION,
    reader_features=_FEATURES,
    writer_features=_FEATURES,
)
UPKEEP = {**retention(24), "delta.checkpointInterval": "100"}


def create(
    target: Target,
    *,
    properties: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Create the table in one commit. If this very DDL has made it before, or a later DDL has
    dropped it, the table is left as it is. If an earlier DDL has dropped it, it is made again in
    its own log, empty and with the new columns.

    ``properties`` come from ``tables.ownership``; schema and key are added here. Raises
    TidelakeError if another table is at the place, and the errors of the storage.
    """
    options = storage_options or {}
    types = column_types(target)
    present = inspect(target.uri, options)
    if present is None:
        protocol, metadata = _made(types, table_properties(target, properties))
        try:
            with one_sentence(f"create table {target.name} at", target.uri):
                storage = open_storage(target.uri, options)
                create_table(storage, protocol, metadata, now_ms=_now_ms())
        except TryAgain:
            present = inspect(target.uri, options)
            if present is None:  # no other process made it first: the commit has really failed
                raise
    if present is not None:
        _check_ours(target, properties, present)
        if present.is_dropped and _is_newer(properties, present):
            _make_again(target, properties, present, options)


def _is_newer(wanted: Mapping[str, str], present: TargetState) -> bool:
    """Whether the wanted CREATE TABLE is newer than the newest DROP TABLE of the table."""
    assert present.dropped is not None
    return DdlIdentity.from_json(wanted[DDL]).position > present.dropped.position


def _make_again(
    target: Target, wanted: Mapping[str, str], present: TargetState, options: Mapping[str, str]
) -> None:
    """The table's incarnation stays as it is: the owner that goes on with the table seals an older
    one."""
    assert present.schema is not None
    sources = dict.fromkeys(column.name for column in target.schema.delivered)
    order = MakeAgain(
        target=target,
        ddl=DdlIdentity.from_json(wanted[DDL]),
        change=SchemaChange(before=present.schema, after=target.schema, sources=sources, fills={}),
        shards=wanted.get(SHARDS),
    )
    engine = MergeOnWriteEngine(options, keeps_up=False)
    try:
        engine.alter(order)
    except TableHeld as held:
        raise TryAgain(str(held)) from held
    finally:
        engine.close()


def column_types(target: Target) -> dict[str, str]:
    """The columns of a new table with their types in Spark SQL, in order."""
    types = {column.name: delta_type(column.stored) for column in target.schema.delivered}
    try:
        target.form.refuse_names(types)
    except ConfigError as error:
        raise ConfigError(f"cannot make table {target.name}: {error}") from error
    return types | target.form.columns


def _made(types: Mapping[str, str], properties: Mapping[str, str]) -> tuple[Protocol, Metadata]:
    fields = [field_of(name, kind, None, at) for at, (name, kind) in enumerate(types.items(), 1)]
    schema = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)
    metadata = Metadata(
        fields={
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": {**properties, MAX_COLUMN_ID: str(len(fields))},
            "createdTime": _now_ms(),
        }
    )
    return with_features(_PROTOCOL, fields), metadata


def _now_ms() -> int:
    return int(time.time() * 1000)


def table_properties(target: Target, properties: Mapping[str, str]) -> dict[str, str]:
    """All properties of a new table: features, statistics for the key, ownership, schema."""
    found = {
        **TABLE_FEATURES,
        **UPKEEP,
        **properties,
        KEY: json.dumps(list(target.schema.key), ensure_ascii=False),
        SCHEMA: target.schema.to_json(),
        **target.form.properties,
    }
    types, key = column_types(target), target.schema.key
    first = [COMMIT_TS, COMMIT_TIME, *key] if target.is_log else [*key, *target.form.columns]
    return found | statistics_property({name: types[name] for name in [*first, *types]})


def _check_ours(target: Target, wanted: Mapping[str, str], present: TargetState) -> None:
    where = f"table {target.name} at {target.uri}"
    refuse_unless_ours(
        present,
        target.name,
        target.uri,
        changefeed_id=wanted[CHANGEFEED],
        incarnation=int(wanted[INCARNATION]),
    )
    refuse_other_form(present, target.name, target.form)
    ddl = DdlIdentity.from_json(wanted[DDL])
    is_over = present.dropped is not None and not _is_newer(wanted, present)
    if not (ddl.same_as(present.ddl) or is_over or present.is_dropped):
        made = "an unknown statement" if present.ddl is None else f"ts {present.ddl.commit_ts}"
        raise TidelakeError(
            f"{where} was created by another DDL ({made}), not by the DDL at commit-ts "
            f"{ddl.commit_ts}: move it away and rewind to below that DDL"
        )
