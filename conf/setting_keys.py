"""Tables of every key of a changefeed file and of a server file, with what Tidelake does with it.

A key is *read*, *ignored* (it is about TiCDC's own work and changes nothing that arrives here), or
*not built* (it changes what must happen here, so only its harmless values are accepted). A key that
is in none of these tables is unknown, and an error. Names and meanings are TiCDC's where TiCDC has
the key; Tidelake's own keys are defined in `conf/settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from conf.settings import (
    BatchSettings,
    CaptureSettings,
    Changefeed,
    DeltaSink,
    EtcdSettings,
    EventFilter,
    KafkaSettings,
    SessionSettings,
    TableRule,
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
    """A key, or a whole table, that is accepted with any value and not used."""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """A key that is refused unless its value is one of the harmless ones."""

    reason: str
    harmless: tuple[object, ...] = ()


# A TOML table is a mapping; an array of tables is a list of one mapping, valid for each of them.
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
    Literal: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    tuple: "texts",
}


def keys_of(*parts: type) -> dict[str, UsedKey]:
    """The keys that these parts of the settings tree read, by name: one for each field that is a
    `setting`. Kind and choices come from the field's type."""
    found: dict[str, UsedKey] = {}
    for part in parts:
        types = get_type_hints(part)
        for each in fields(part):
            if (name := each.metadata.get("key")) is None:
                continue
            of, choices = types[each.name], ()
            if get_origin(of) in (Union, UnionType):  # … | None
                of = get_args(of)[0]
            kind = _KIND_OF[get_origin(of) or of]
            if get_origin(of) is tuple:
                of = get_args(of)[0]
            if get_origin(of) is Literal:
                choices = get_args(of)
            found[name] = UsedKey(kind, choices, each.metadata["replaced"])
    return found


TEXT, TEXTS = UsedKey("text"), UsedKey("texts")


def _ignored(*names: str) -> dict[str, Ignored]:
    return dict.fromkeys(names, Ignored())


# The values that `ignore-event` accepts; "alert table option" is TiCDC's spelling.
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

# The keys that describe a changefeed; all other keys say how a capture works.
CHANGEFEED_KEYS = {
    **{name: TEXT for name in ("changefeed-id", "source-uri", "sink-uri", "schema-file")},
    "case-sensitive": UsedKey("boolean"),
    **keys_of(Changefeed, KafkaSettings, DeltaSink),
}
CAPTURE_KEYS = {
    "etcd": TEXT,
    **keys_of(EtcdSettings, SessionSettings, BatchSettings, CaptureSettings),
}
# Tidelake's own keys: at the top of the file, or in the environment (TIDELAKE_SOURCE_URI).
OWN_KEYS = {**CHANGEFEED_KEYS, **CAPTURE_KEYS}
# The addresses of a capture, and the keys of its [security] table.
SERVER_KEYS = keys_of(TransportSettings)
_ADDRESSES = ("addr", "advertise-addr")

_EXPRESSIONS = NotBuilt("expressions over rows", ("",))
_AS_RULES = NotBuilt("write it as `rules`")
_FILTER: Table = {
    "rules": TEXTS,
    "event-filters": [
        {
            **keys_of(EventFilter),
            "ignore-event": UsedKey("texts", EVENT_TYPES),
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

_SINK: Table = {
    "protocol": TEXT,
    "topics": TEXTS,
    "dispatchers": [
        {
            "matcher": TEXTS,
            "topic": TEXT,
            # Rows are ordered by commit-ts, wherever TiCDC puts them.
            **_ignored("partition", "dispatcher", "index", "columns"),
        }
    ],
    "tables": [{**keys_of(TableRule)}],  # Tidelake's own
    "kafka-config": UsedKey("map"),
    "column-selectors": NotBuilt("rows would lack columns that the DDL names", ([],)),
    # About TiCDC's own work.
    **_ignored("transaction-atomicity", "encoder-concurrency", "enable-kafka-sink-v2"),
    **_ignored("advance-timeout-in-sec"),
    # About other kinds of TiCDC's sinks.
    **_ignored("terminator", "date-separator", "enable-partition-separator", "file-index-digit"),
    **_ignored("safe-mode", "pulsar-config", "mysql-config", "cloud-storage-config"),
    # About other protocols: avro, simple, debezium, csv, open-protocol.
    **_ignored("schema-registry", "debezium-disable-schema", "csv", "open", "debezium"),
    **_ignored("send-bootstrap-interval-in-sec", "send-bootstrap-in-msg-count"),
    **_ignored("send-bootstrap-to-all-partition", "send-all-bootstrap-at-start"),
    # With or without these, canal-json carries all that is needed here.
    **_ignored("only-output-updated-columns", "delete-only-output-handle-key-columns"),
    **_ignored("content-compatible"),
}

CHANGEFEED_FILE: Table = {
    **OWN_KEYS,
    "storage-options": UsedKey("map"),
    "filter": _FILTER,
    "sink": _SINK,
    "force-replicate": UsedKey("boolean"),
    "bdr-mode": NotBuilt("a lake has no changes of its own to send back", (False,)),
    "consistent": {
        "level": NotBuilt("redo logs", ("none", "")),
        # These have an effect only if there is a level.
        **_ignored("max-log-size", "flush-interval", "meta-flush-interval", "encoding-worker-num"),
        **_ignored("flush-worker-num", "storage", "use-file-backend", "compression"),
        **_ignored("flush-concurrency", "memory-usage"),
    },
    "integrity": {
        "integrity-check-level": NotBuilt("row checksums", ("none", "")),
        **_ignored("corruption-handle-level"),
    },
    # About TiCDC's own work. `sql-mode`: TiCDC sends DDLs as TiDB restored them.
    # `ignore-ineligible-table`: TiCDC leaves ineligible tables out of the topic.
    **_ignored("memory-quota", "check-gc-safe-point", "mounter", "scheduler", "synced-status"),
    **_ignored("sql-mode", "ignore-ineligible-table"),
    # Used in a cluster only. A `run` records a snapshot whenever its tables are at one timestamp,
    # and ends with its first error.
    **_ignored("enable-sync-point", "sync-point-interval", "sync-point-retention"),
    **_ignored("changefeed-error-stuck-duration"),
}

SERVER_FILE: Table = {
    **CAPTURE_KEYS,
    **{name: SERVER_KEYS[name] for name in _ADDRESSES},
    "security": {name: entry for name, entry in SERVER_KEYS.items() if name not in _ADDRESSES},
    # About TiCDC's own work.
    **_ignored("data-dir", "gc-ttl", "tz", "log-file", "log", "owner-flush-interval"),
    **_ignored("processor-flush-interval", "sorter", "kv-client", "debug"),
}
