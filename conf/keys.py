"""Every key of a changefeed file, and what Tidelake does with it: data, no logic.

A key is *read*, *ignored* (it is about TiCDC's own work and changes nothing that arrives here), or
*not built* (it changes what must happen here; only its harmless values pass). What is in none of
these tables is unknown, and an error. Names and meanings are TiCDC's where TiCDC has the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UsedKey:
    """A value that Tidelake uses. ``kind`` is one of the names in ``KINDS``."""

    kind: str
    choices: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)  # former choices: what to do instead


@dataclass(frozen=True, slots=True)
class Ignored:
    """Accepted whatever it says (a whole table too)."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """Refused, unless it has one of the harmless values."""

    reason: str
    harmless: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A TOML table; ``many`` for an array of them."""

    keys: Mapping[str, Entry]
    many: bool = False


Entry = UsedKey | Ignored | NotBuilt | Table

KINDS: Mapping[str, str] = {
    "text": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "texts": "a list of strings",
    "map": "a table of strings",
}

_REPLACED_ENGINES = {
    "delta-rs": "its merge was replaced by merge-on-write, which auto (the default) takes: "
    "leave the key out"
}
_OTHER_SINK = "it is about another kind of TiCDC sink"
_TICDC_ITSELF = "it is about TiCDC's own work"
_SENT_WHOLE = "canal-json with it carries all that is needed here"

# What `ignore-event` may name; "alert table option" is TiCDC's spelling.
EVENT_TYPES = (
    "all", "all dml", "all ddl", "none", "none ddl", "none dml", "insert", "update", "delete",
    "create database", "drop database", "alter database", "create schema", "drop schema",
    "alter schema", "create table", "drop table", "truncate table", "rename table", "alter table",
    "create index", "drop index", "create view", "drop view", "add table partition",
    "drop table partition", "truncate table partition", "reorganize table partition",
    "rebuild table partition", "coalesce table partition", "split table partition",
    "exchange table partition", "alter table partitioning", "remove table partitioning",
    "add foreign key", "drop foreign key", "alert table option", "value range decrease",
    "precision decrease", "modify column", "rename column", "rename index", "drop column",
    "drop primary key", "drop unique key", "add primary key", "modify default value",
    "modify constraint", "modify columns order", "modify charset", "modify collation",
    "remove auto increment", "modify storage engine", "modify schema charset and collate",
    "modify table charset and collate", "modify table comment", "recover table", "add column",
    "set default value", "rebase auto id", "alter index visibility", "alter ttl info",
    "alter ttl remove", "multi schema change", "incompatible ddl changes",
)  # fmt: skip

# Tidelake's own keys: at the top of the file, or in the environment (TIDELAKE_SOURCE_URI).
OWN_KEYS: Mapping[str, UsedKey] = {
    "changefeed-id": UsedKey("text"),
    "source-uri": UsedKey("text"),
    "kafka-group-id": UsedKey("text"),
    "kafka-client-rack": UsedKey("text"),
    "sink-uri": UsedKey("text"),
    "start-ts": UsedKey("integer"),
    "target-ts": UsedKey("integer"),
    "overwrite-checkpoint-ts": UsedKey("integer"),
    "case-sensitive": UsedKey("boolean"),
    "zero-date": UsedKey("text", ("null", "fail")),
    "on-error": UsedKey("text", ("dead-letter", "fail")),
    "on-unknown-column": UsedKey("text", ("dead-letter", "drop")),
    "apply-engine": UsedKey("text", ("auto", "merge-on-write", "spark"), _REPLACED_ENGINES),
    "allow-unsafe-commits": UsedKey("boolean"),
    "etcd": UsedKey("text"),
    "etcd-ca": UsedKey("text"),
    "etcd-cert": UsedKey("text"),
    "etcd-key": UsedKey("text"),
    "etcd-user": UsedKey("text"),
    "etcd-password": UsedKey("text"),
    "cluster-id": UsedKey("text"),
    "capture-session-ttl": UsedKey("integer"),
    "session-safety-margin-s": UsedKey("number"),
    "answer-timeout-s": UsedKey("number"),
    "stall-timeout-s": UsedKey("number"),
    "max-batch-messages": UsedKey("integer"),
    "first-batch-messages": UsedKey("integer"),
    "apply-threads": UsedKey("integer"),
    "min-commit-interval-s": UsedKey("number"),
    "key-index-memory-mib": UsedKey("integer"),
    "carry-warn-rows": UsedKey("integer"),
    "quiet-s": UsedKey("number"),
    "log-format": UsedKey("text", ("text", "json")),
    "log-level": UsedKey("text", ("DEBUG", "INFO", "WARNING", "ERROR")),
}

# Of a capture that serves a cluster: in its file all but addresses stand in [security].
SERVER_KEYS: Mapping[str, UsedKey] = {
    "addr": UsedKey("text"),
    "advertise-addr": UsedKey("text"),
    "ca-path": UsedKey("text"),
    "cert-path": UsedKey("text"),
    "key-path": UsedKey("text"),
    "mtls": UsedKey("boolean"),
    "cert-allowed-cn": UsedKey("texts"),
    "operator-allowed-cn": UsedKey("texts"),
}

_EVENT_FILTER = Table(
    {
        "matcher": UsedKey("texts"),
        "ignore-event": UsedKey("texts", EVENT_TYPES),
        "ignore-sql": UsedKey("texts"),
        "ignore-insert-value-expr": NotBuilt("expressions over rows", ("",)),
        "ignore-update-new-value-expr": NotBuilt("expressions over rows", ("",)),
        "ignore-update-old-value-expr": NotBuilt("expressions over rows", ("",)),
        "ignore-delete-value-expr": NotBuilt("expressions over rows", ("",)),
    },
    many=True,
)

_FILTER = Table(
    {
        "rules": UsedKey("texts"),
        "event-filters": _EVENT_FILTER,
        "ignore-txn-start-ts": NotBuilt("canal-json does not carry start-ts", ([],)),
        "do-tables": NotBuilt("write it as `rules`"),
        "do-dbs": NotBuilt("write it as `rules`"),
        "ignore-tables": NotBuilt("write it as `rules`"),
        "ignore-dbs": NotBuilt("write it as `rules`"),
    }
)

_DISPATCHER = Table(
    {
        "matcher": UsedKey("texts"),
        "topic": UsedKey("text"),
        "partition": Ignored("rows are ordered by commit-ts, wherever TiCDC puts them"),
        "dispatcher": Ignored("rows are ordered by commit-ts, wherever TiCDC puts them"),
        "index": Ignored("rows are ordered by commit-ts, wherever TiCDC puts them"),
        "columns": Ignored("rows are ordered by commit-ts, wherever TiCDC puts them"),
    },
    many=True,
)

# `[sink.kafka-config]` has the URI's parameters by the same names: conf/source_uri.py knows them.
KAFKA_CONFIG_TABLES = ("codec-config", "large-message-handle")
KAFKA_CONFIG_IGNORED = ("glue-schema-registry-config",)

_SINK_IGNORED: Mapping[str, str] = {
    "transaction-atomicity": _TICDC_ITSELF,
    "schema-registry": "it is for avro",
    "encoder-concurrency": _TICDC_ITSELF,
    "terminator": _OTHER_SINK,
    "date-separator": _OTHER_SINK,
    "enable-partition-separator": _OTHER_SINK,
    "file-index-digit": _OTHER_SINK,
    "enable-kafka-sink-v2": _TICDC_ITSELF,
    "only-output-updated-columns": _SENT_WHOLE,
    "delete-only-output-handle-key-columns": _SENT_WHOLE,
    "content-compatible": _SENT_WHOLE,
    "safe-mode": _OTHER_SINK,
    "advance-timeout-in-sec": _TICDC_ITSELF,
    "send-bootstrap-interval-in-sec": "it is for the simple protocol",
    "send-bootstrap-in-msg-count": "it is for the simple protocol",
    "send-bootstrap-to-all-partition": "it is for the simple protocol",
    "send-all-bootstrap-at-start": "it is for the simple protocol",
    "debezium-disable-schema": "it is for debezium",
    "csv": "it is for csv",
    "open": "it is for open-protocol",
    "debezium": "it is for debezium",
    "pulsar-config": _OTHER_SINK,
    "mysql-config": _OTHER_SINK,
    "cloud-storage-config": _OTHER_SINK,
}

_SINK = Table(
    {
        "protocol": UsedKey("text"),
        "topics": UsedKey("texts"),
        "dispatchers": _DISPATCHER,
        "kafka-config": UsedKey("map"),
        "column-selectors": NotBuilt("rows would lack columns that the DDL names", ([],)),
        **{name: Ignored(reason) for name, reason in _SINK_IGNORED.items()},
    }
)

CHANGEFEED_FILE = Table(
    {
        **OWN_KEYS,
        "storage-options": UsedKey("map"),
        "filter": _FILTER,
        "sink": _SINK,
        "memory-quota": Ignored(_TICDC_ITSELF),
        "ignore-ineligible-table": Ignored("TiCDC then leaves such tables out of the topic"),
        "check-gc-safe-point": Ignored(_TICDC_ITSELF),
        "sync-point-interval": Ignored("it only counts in a cluster, with enable-sync-point"),
        "sync-point-retention": Ignored("it only counts with enable-sync-point"),
        "changefeed-error-stuck-duration": Ignored(
            "it only counts in a cluster: a run ends with its first error"
        ),
        "sql-mode": Ignored("TiCDC sends DDLs as TiDB restored them"),
        "mounter": Ignored(_TICDC_ITSELF),
        "scheduler": Ignored(_TICDC_ITSELF),
        "synced-status": Ignored(_TICDC_ITSELF),
        "force-replicate": NotBuilt("tables without a key", (False,)),
        "enable-sync-point": Ignored("a run records a snapshot whenever its tables meet"),
        "bdr-mode": NotBuilt("a lake has no changes of its own to send back", (False,)),
        "consistent": Table(
            {
                "level": NotBuilt("redo logs", ("none", "")),
                **{
                    name: Ignored("it only counts with a redo level")
                    for name in (
                        "max-log-size",
                        "flush-interval",
                        "meta-flush-interval",
                        "encoding-worker-num",
                        "flush-worker-num",
                        "storage",
                        "use-file-backend",
                        "compression",
                        "flush-concurrency",
                        "memory-usage",
                    )
                },
            }
        ),
        "integrity": Table(
            {
                "integrity-check-level": NotBuilt("row checksums", ("none", "")),
                "corruption-handle-level": Ignored("it only counts with a check level"),
            }
        ),
    }
)
