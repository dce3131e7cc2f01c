"""Every key of a changefeed file and of a server file, and what Tidelake does with it: data.

A key is *read*, *ignored* (it is about TiCDC's own work and changes nothing that arrives here), or
*not built* (it changes what must happen here; only its harmless values pass). What is in none of
these tables is unknown, and an error. Names and meanings are TiCDC's where TiCDC has the key.
Tidelake's own are those of `conf/settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from conf.settings import (
    BatchSettings,
    CaptureSettings,
    Changefeed,
    DeltaSink,
    EtcdSettings,
    KafkaSource,
    SessionSettings,
    TransportSettings,
)


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


# A table is a mapping, an array of tables a list with what each of them may have.
Entry = UsedKey | Ignored | NotBuilt | Mapping[str, Any] | list[Mapping[str, Any]]
Table = Mapping[str, Entry]

KINDS: Mapping[str, str] = {
    "text": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "texts": "a list of strings",
    "map": "a table of strings",
}
_KIND_OF: Mapping[object, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    tuple[str, ...]: "texts",
}


def keys_of(*parts: type) -> dict[str, UsedKey]:
    """Of the fields of these parts of the tree that are set by one key each."""
    found: dict[str, UsedKey] = {}
    for part in parts:
        types = get_type_hints(part)
        for each in fields(part):
            if (name := each.metadata.get("key")) is None:
                continue
            of, choices = types[each.name], ()
            if get_origin(of) is UnionType:  # … | None
                of = get_args(of)[0]
            if get_origin(of) is Literal:
                of, choices = str, get_args(of)
            found[name] = UsedKey(_KIND_OF[of], choices, each.metadata["replaced"])
    return found


TEXT, TEXTS = UsedKey("text"), UsedKey("texts")
_OTHER_SINK: Final = "it is about another kind of TiCDC sink"
_TICDC_ITSELF: Final = "it is about TiCDC's own work"
_SENT_WHOLE: Final = "canal-json with it carries all that is needed here"
_BY_COMMIT_TS: Final = "rows are ordered by commit-ts, wherever TiCDC puts them"

# What `ignore-event` may name; "alert table option" is TiCDC's spelling.
ROW_EVENTS = ("insert", "update", "delete")
COMPATIBLE_DDLS = (
    "create database", "alter database", "create table", "create index", "create view",
    "drop view", "alter table", "add table partition",
)  # fmt: skip
INCOMPATIBLE_DDLS = (
    "drop database", "drop table", "truncate table", "rename table", "drop index",
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
    "alter ttl remove", "multi schema change",
)  # fmt: skip
EVENT_GROUPS = (
    "all", "all dml", "all ddl", "none", "none ddl", "none dml", "incompatible ddl changes",
)  # fmt: skip
EVENT_ALIASES = {
    "create schema": "create database",
    "drop schema": "drop database",
    "alter schema": "alter database",
}
EVENT_TYPES = (*EVENT_GROUPS, *ROW_EVENTS, *COMPATIBLE_DDLS, *INCOMPATIBLE_DDLS, *EVENT_ALIASES)

# What a changefeed is; all else says how a capture works.
CHANGEFEED_KEYS = {
    **{name: TEXT for name in ("changefeed-id", "source-uri", "sink-uri")},
    "case-sensitive": UsedKey("boolean"),
    **keys_of(Changefeed, KafkaSource, DeltaSink),
}
CAPTURE_KEYS = {
    "etcd": TEXT,
    **keys_of(EtcdSettings, SessionSettings, BatchSettings, CaptureSettings),
}
# Tidelake's own keys: at the top of the file, or in the environment (TIDELAKE_SOURCE_URI).
OWN_KEYS = {**CHANGEFEED_KEYS, **CAPTURE_KEYS}
# Where a capture is found, and its [security].
SERVER_KEYS = keys_of(TransportSettings)
_ADDRESSES = ("addr", "advertise-addr")

_EXPRESSIONS = NotBuilt("expressions over rows", ("",))
_AS_RULES = NotBuilt("write it as `rules`")
_FILTER: Table = {
    "rules": TEXTS,
    "event-filters": [
        {
            "matcher": TEXTS,
            "ignore-event": UsedKey("texts", EVENT_TYPES),
            "ignore-sql": TEXTS,
            "ignore-insert-value-expr": _EXPRESSIONS,
            "ignore-update-new-value-expr": _EXPRESSIONS,
            "ignore-update-old-value-expr": _EXPRESSIONS,
            "ignore-delete-value-expr": _EXPRESSIONS,
        }
    ],
    "ignore-txn-start-ts": NotBuilt("canal-json does not carry start-ts", ([],)),
    "do-tables": _AS_RULES,
    "do-dbs": _AS_RULES,
    "ignore-tables": _AS_RULES,
    "ignore-dbs": _AS_RULES,
}

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

_SINK: Table = {
    "protocol": TEXT,
    "topics": TEXTS,
    "dispatchers": [
        {
            "matcher": TEXTS,
            "topic": TEXT,
            **{
                name: Ignored(_BY_COMMIT_TS)
                for name in ("partition", "dispatcher", "index", "columns")
            },
        }
    ],
    "kafka-config": UsedKey("map"),
    "column-selectors": NotBuilt("rows would lack columns that the DDL names", ([],)),
    **{name: Ignored(reason) for name, reason in _SINK_IGNORED.items()},
}

CHANGEFEED_FILE: Table = {
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
    "consistent": {
        "level": NotBuilt("redo logs", ("none", "")),
        **{
            name: Ignored("it only counts with a redo level")
            for name in (
                *("max-log-size", "flush-interval", "meta-flush-interval", "encoding-worker-num"),
                *("flush-worker-num", "storage", "use-file-backend", "compression"),
                *("flush-concurrency", "memory-usage"),
            )
        },
    },
    "integrity": {
        "integrity-check-level": NotBuilt("row checksums", ("none", "")),
        "corruption-handle-level": Ignored("it only counts with a check level"),
    },
}

SERVER_FILE: Table = {
    **CAPTURE_KEYS,
    **{name: SERVER_KEYS[name] for name in _ADDRESSES},
    "security": {name: entry for name, entry in SERVER_KEYS.items() if name not in _ADDRESSES},
    **{
        name: Ignored(_TICDC_ITSELF)
        for name in (
            *("data-dir", "gc-ttl", "tz", "log-file", "log", "owner-flush-interval"),
            *("processor-flush-interval", "sorter", "kv-client", "debug"),
        )
    },
}
