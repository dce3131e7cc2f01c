"""New target tables: one commit that has schema, features and properties.

It is our own put-if-absent, on every storage that the engine commits to, and needs neither Spark
nor a JVM: what counts when a changefeed begins with hundreds of tables. What a later owner can no
longer read from the stream stands in the table's properties.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping

from coordination.errors import TidelakeError, TryAgain
from sinks.apply import Target
from sinks.ddl.evolve import SchemaChange
from sinks.delta_types import delta_type, log_type
from sinks.merge_on_write.actions import Metadata, Protocol
from sinks.merge_on_write.alter import TableDdl
from sinks.merge_on_write.commit import create_table
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.new_shape import statistics_property
from sinks.merge_on_write.storage import open_storage
from sinks.schema import TableSchema
from sinks.storage_errors import one_sentence
from sinks.tables import (
    CHANGEFEED,
    DDL,
    DROPPED,
    INCARNATION,
    KEY,
    SCHEMA,
    DdlIdentity,
    TargetState,
    inspect,
)

TABLE_FEATURES = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
RETENTION = "interval 24 hours"  # as the ledger: a snapshot that it names can be read
UPKEEP = {
    "delta.deletedFileRetentionDuration": RETENTION,
    "delta.logRetentionDuration": RETENTION,
    "delta.checkpointInterval": "100",
}


def create(
    target: Target,
    *,
    properties: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Create the table in one commit. A table that this very DDL has made already is left as it is,
    and so is one that was dropped by a later DDL; one that was dropped before is made again, empty
    and in the new shape, in the log that it has.

    ``properties`` come from ``tables.ownership``; schema and key are added here.
    """
    options = storage_options or {}
    present = inspect(target.uri, options)
    if present is None:
        metadata = _metadata(target, table_properties(target.schema, properties))
        try:
            with one_sentence(f"create table {target.name} at", target.uri):
                storage = open_storage(target.uri, options)
                create_table(storage, _protocol(target), metadata, now_ms=_now_ms())
        except TryAgain:
            present = inspect(target.uri, options)
            if present is None:  # not another process that was faster: a real failure
                raise
    if present is not None:
        _check_ours(target, properties, present)
        if present.is_dropped and _is_newer(properties, present):
            _make_again(target, properties, present, options)


def _is_newer(wanted: Mapping[str, str], present: TargetState) -> bool:
    """Than the newest DROP TABLE."""
    dropped = DdlIdentity.from_json(present.properties[DROPPED])
    return DdlIdentity.from_json(wanted[DDL]).position > dropped.position


def _make_again(
    target: Target, wanted: Mapping[str, str], present: TargetState, options: Mapping[str, str]
) -> None:
    """Its incarnation stays what it is: whoever takes the table up seals an older one."""
    assert present.schema is not None
    sources = dict.fromkeys(column.name for column in target.schema.delivered)
    order = TableDdl(
        target=target,
        ddl=DdlIdentity.from_json(wanted[DDL]),
        change=SchemaChange(before=present.schema, after=target.schema, sources=sources, fills={}),
        makes_again=True,
    )
    engine = MergeOnWriteEngine(options, keeps_up=False)
    try:
        engine.alter(order)
    finally:
        engine.close()


def _protocol(target: Target) -> Protocol:
    types = {delta_type(column.type) for column in target.schema.delivered}
    features = {"columnMapping", "deletionVectors"}
    if "timestamp_ntz" in types:
        features.add("timestampNtz")
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=frozenset(features),
        writer_features=frozenset(features),
    )


def _metadata(target: Target, properties: Mapping[str, str]) -> Metadata:
    columns = target.schema.delivered
    fields = [
        {
            "name": column.name,
            "type": log_type(delta_type(column.type)),
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{uuid.uuid4()}",
            },
        }
        for number, column in enumerate(columns, start=1)
    ]
    schema = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)
    return Metadata(
        fields={
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": {**properties, "delta.columnMapping.maxColumnId": str(len(columns))},
            "createdTime": _now_ms(),
        }
    )


def _now_ms() -> int:
    return int(time.time() * 1000)


def table_properties(schema: TableSchema, properties: Mapping[str, str]) -> dict[str, str]:
    """All properties of a new table: features, statistics for the key, ownership, schema."""
    found = {
        **TABLE_FEATURES,
        **UPKEEP,
        **properties,
        KEY: json.dumps(list(schema.key), ensure_ascii=False),
        SCHEMA: schema.to_json(),
    }
    types = {column.name: delta_type(column.type) for column in schema.delivered}
    return found | statistics_property({name: types[name] for name in [*schema.key, *types]})


def _check_ours(target: Target, wanted: Mapping[str, str], present: TargetState) -> None:
    where = f"table {target.name} at {target.uri}"
    if present.changefeed_id is None:
        raise TidelakeError(
            f"{where} was not made by Tidelake; move it away, or choose another sink-uri"
        )
    if present.changefeed_id != wanted[CHANGEFEED]:
        raise TidelakeError(
            f"{where} belongs to changefeed {present.changefeed_id!r}, not to"
            f" {wanted[CHANGEFEED]!r}; move it away, or choose another sink-uri"
        )
    if (present.incarnation or 0) > int(wanted[INCARNATION]):
        raise TidelakeError(
            f"{where} belongs to incarnation {present.incarnation} of {present.changefeed_id!r},"
            f" newer than {wanted[INCARNATION]}: another run has rewound it; end this one"
        )
    ddl = DdlIdentity.from_json(wanted[DDL])
    is_over = DROPPED in present.properties and not _is_newer(wanted, present)
    if not (ddl.same_as(present.ddl) or is_over or present.is_dropped):
        made = "an unknown statement" if present.ddl is None else f"ts {present.ddl.commit_ts}"
        raise TidelakeError(
            f"{where} was created by another DDL ({made}) than the one at"
            f" commit-ts {ddl.commit_ts}; move it away and replay from before that DDL"
        )
