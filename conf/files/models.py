"""The models of a changefeed file and of a server file: every key of theirs.

A key is *read*, *ignored* (it is about TiCDC's own work and changes nothing that arrives here), or
*not built* (it changes what must happen here, so only its harmless values are accepted). A key that
is in none of these tables is unknown, and an error. Names and meanings are TiCDC's where TiCDC has
the key; types, defaults and bounds of Tidelake's own keys come from the settings tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, create_model
from pydantic.json_schema import WithJsonSchema

from conf.column_rules import ColumnMask, ColumnSelector
from conf.files.event_types import EVENT_TYPES
from conf.files.keys import (
    ADDRESSES,
    CAPTURE_KEYS,
    OWN_KEYS,
    SERVER_KEYS,
    Key,
    keys_of,
)
from conf.problems import SettingError
from conf.route_rules import RouteRule
from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings, TableRule
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.kafka_security import NOT_BUILT
from conf.sources.source_parameters import KAFKA_CONFIG_IGNORED, KAFKA_CONFIG_TABLES, KNOWN


class Table(BaseModel):
    """A table of a file. It only checks: the values are taken from the document itself."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        defer_build=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


Fields = dict[str, Any]  # by a key's name with "_" for "-": its type, and pydantic's Field


def _table(title: str, *parts: Fields) -> type[Table]:
    merged = {name: each for part in parts for name, each in part.items()}
    return create_model(title, __base__=Table, **merged)


def _read(keys: Mapping[str, Key]) -> Fields:
    return {
        name.replace("-", "_"): _used(key.type, key.says, key.default) for name, key in keys.items()
    }


def _used(of: Any, says: str, default: object = None) -> Any:
    if get_origin(of) is tuple:
        of = Annotated[of, Strict(False)]  # a file has lists
    return (of, Field(default, description=says))


def _ignored(*names: str) -> Fields:
    says = "TiCDC's: it is accepted, and changes nothing here"
    return {name.replace("-", "_"): (Any, Field(None, description=says)) for name in names}


def _not_built(reason: str, *harmless: object) -> Any:
    def check(value: object) -> object:
        if value not in harmless:
            raise SettingError(f"is not built yet ({reason}): leave it out")
        return value

    accepted: dict[str, Any] = {"enum": list(harmless)} if harmless else {"not": {}}
    schema = WithJsonSchema({**accepted, "description": f"not built yet ({reason})"})
    return (Annotated[Any, AfterValidator(check), schema], None)


def _refused(why: str, *harmless: object) -> Any:
    """``why``: the reason and what to do, behind the key's name."""

    def check(value: object) -> object:
        if value not in harmless:
            raise SettingError(f": {why}")
        return value

    schema = WithJsonSchema({"enum": list(harmless), "description": why})
    return (Annotated[Any, AfterValidator(check), schema], None)


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise SettingError(f": {text!r} is not a regular expression: {error}") from error
    return text


def _kafka_config() -> Any:
    """conf/load.py checks the names that are in it; an editor learns them here."""
    known: dict[str, Any] = {name: {} for name in KNOWN if name not in NOT_BUILT}
    table = {"type": "object", "additionalProperties": False, "properties": known}
    tables = dict.fromkeys(KAFKA_CONFIG_TABLES, table)
    ignored: dict[str, Any] = {name: {} for name in KAFKA_CONFIG_IGNORED}
    schema = {**table, "properties": {**known, **tables, **ignored}}
    return Annotated[dict[str, Any], WithJsonSchema(schema)]


Texts = tuple[str, ...]
_AS_RULES = _not_built("write it as `rules`")
_EVENTS = keys_of(EventFilter)
_EVENTS["ignore-event"] = replace(
    _EVENTS["ignore-event"],
    type=tuple[Literal[EVENT_TYPES], ...],  # type: ignore[valid-type]
)
_EVENTS["ignore-sql"] = replace(
    _EVENTS["ignore-sql"], type=tuple[Annotated[str, AfterValidator(_is_pattern)], ...]
)
_FILTER = keys_of(FilterSettings)
_RULES = {name: _FILTER[name] for name in ("rules", "dml-filters")}

_EventFilter = _table(
    "EventFilter",
    _read(_EVENTS),
    {
        "ignore_update_only_columns": _used(
            Texts, 'UPDATEs of no other columns are ignored by TiCDC: with dml-filters = "ticdc"'
        )
    },
)
_Filter = _table(
    "Filter",
    _read(_RULES),
    {
        "event_filters": _used(list[_EventFilter], "events to pass over, as in TiCDC"),  # type: ignore[valid-type]
        "ignore_txn_start_ts": _not_built("messages do not carry start-ts", []),
        "do_tables": _AS_RULES,
        "do_dbs": _AS_RULES,
        "ignore_tables": _AS_RULES,
        "ignore_dbs": _AS_RULES,
    },
)
_Dispatcher = _table(
    "Dispatcher",
    {
        "matcher": _used(Texts, "the tables"),
        "topic": _used(str, "the topic of their messages, which is read too"),
    },
    # Rows are ordered by commit-ts, wherever TiCDC puts them.
    _ignored("partition", "dispatcher", "index", "columns"),
    dict.fromkeys(
        ("target_schema", "target_table"),
        _refused(
            "TiCDC writes these tables under other names, and rules here go by the names in its "
            "messages: leave it out of the file here, and write [filter] and [sink] rules for "
            "the names that TiCDC writes",
            "",
        ),
    ),
)
_TableRule = _table("TableRule", _read(keys_of(TableRule)))
_ColumnSelector = _table("ColumnSelector", _read(keys_of(ColumnSelector)))
_ColumnMask = _table("ColumnMask", _read(keys_of(ColumnMask)))


def _extract(of: str) -> Any:
    """The table of a column that says which ``of`` a row came from."""
    says = f"the value: the groups of this regular expression in the name of the {of}, joined"
    return _table(
        f"Extract{of.capitalize()}",
        {
            f"{of}_regexp": _used(str, says, ""),
            "target_column": _used(str, "the column's name, in the target", ""),
        },
    )


_Route = _table(
    "Route",
    _read(keys_of(RouteRule)),
    {
        f"extract_{of}": _used(_extract(of), f"a column that says which {of} a row came from")
        for of in ("table", "schema", "source")
    },
)
# `[sink.cloud-storage-config]`: the rest steers TiCDC's writers.
_cloud_storage_config = _table(
    "CloudStorageConfig",
    {"use_table_id_as_path": _used(bool, "as the parameter of a folder's source URI")},
    _ignored("worker-count", "flush-interval", "file-size", "output-column-id"),
    _ignored("file-expiration-days", "file-cleanup-cron-spec", "flush-concurrency"),
    {"output_raw_change_event": _used(bool, "as the parameter of a folder's source URI")},
    _ignored("spool-disk-quota", "spool-base-dir"),
)
_OLD_VALUE: Fields = {"output_old_value": _used(bool, "whether UPDATEs have their old row")}
_Open = _table("Open", _OLD_VALUE)
_Debezium = _table("Debezium", _OLD_VALUE, _ignored("include-start-ts"))
_Sink = _table(
    "Sink",
    {
        "protocol": _used(str, "as the source URI's parameter"),
        "schema_registry": _used(str, "as the source URI's parameter"),
        "topics": _used(Texts, "topics to read beside the one of the URI, names or expressions"),
        "dispatchers": _used(list[_Dispatcher], "TiCDC's dispatchers: their topics are read"),  # type: ignore[valid-type]
        "tables": _used(list[_TableRule], "how tables are written; the first that matches counts"),  # type: ignore[valid-type]
        "routes": _used(list[_Route], "which target each table goes into"),  # type: ignore[valid-type]
        "date_separator": _used(str, "as the parameter of a folder's source URI"),
        "terminator": _used(str, "as the parameter of a folder's source URI"),
        "csv": _used(dict[str, Any], "parameters of a folder's source URI by the same names"),
        "cloud_storage_config": _used(_cloud_storage_config, "how TiCDC writes a folder"),
        "kafka_config": _used(_kafka_config(), "parameters of the source URI by the same names"),
        "open": _used(_Open, "how TiCDC writes open-protocol"),
        "debezium": _used(_Debezium, "how TiCDC writes debezium"),
        "column_selectors": _used(
            list[_ColumnSelector],  # type: ignore[valid-type]
            "which columns tables have, as in TiCDC",
        ),
        "column_masks": _used(list[_ColumnMask], "which columns are masked"),  # type: ignore[valid-type]
        "mask_salt": _used(
            str,
            "put before each value that a mask of `sha256` hashes: a reference, `${env:…}` or "
            "`${file:…}`. Without it short values can be found out by trying",
        ),
    },
    {
        "case_sensitive": _refused(
            "write case-sensitive at the top of the file: it holds for the rules of [sink] too",
            False,
        )
    },
    # About TiCDC's own work.
    _ignored("force-replicate", "integrity"),
    _ignored("transaction-atomicity", "encoder-concurrency", "enable-kafka-sink-v2"),
    _ignored("advance-timeout-in-sec"),
    # About other kinds of TiCDC's sinks.
    _ignored("enable-partition-separator", "file-index-digit"),
    _ignored("safe-mode", "pulsar-config", "mysql-config"),
    # About other protocols: simple, debezium, csv, open-protocol.
    _ignored("debezium-disable-schema"),
    _ignored("send-bootstrap-interval-in-sec", "send-bootstrap-in-msg-count"),
    _ignored("send-bootstrap-to-all-partition", "send-all-bootstrap-at-start"),
    # With or without these, the messages carry all that is needed here.
    _ignored("only-output-updated-columns", "delete-only-output-handle-key-columns"),
    _ignored("content-compatible"),
)
_Consistent = _table(
    "Consistent",
    {"level": _not_built("redo logs", "none", "")},
    # These have an effect only if there is a level.
    _ignored("max-log-size", "flush-interval", "meta-flush-interval", "encoding-worker-num"),
    _ignored("flush-worker-num", "storage", "use-file-backend", "compression"),
    _ignored("flush-concurrency", "memory-usage", "event-collector-batch-count"),
)
_Cyclic = _table(
    "CyclicReplication",
    {"enable": _not_built("a lake has no changes of its own to send back", False)},
    _ignored("replica-id", "filter-replica-ids", "id-buckets", "sync-ddl"),
)
_Integrity = _table(
    "Integrity",
    {
        "integrity_check_level": _used(Literal["none", "correctness"], "the key of that name"),
        "corruption_handle_level": _used(Literal["warn", "error"], "the key of that name"),
    },
)

_Mysql = _table("Mysql", _read(keys_of(BinlogSettings)))

ChangefeedFile = _table(
    "ChangefeedFile",
    _read({name: key for name, key in OWN_KEYS.items() if name != "schema-text"}),
    {
        "mysql": _used(_Mysql, "parameters of a mysql:// source URI by the same names"),
        "storage_options": _used(dict[str, str], "what the store of the warehouse needs (Storage)"),
        "filter": _used(_Filter, "which tables and events are taken, as in TiCDC"),
        "sink": _used(_Sink, "TiCDC's settings of its sink, and how tables are written"),
        "force_replicate": _used(bool, "as in TiCDC: tables without a key are sent too"),
        "bdr_mode": _not_built("a lake has no changes of its own to send back", False),
        "enable_active_active": _refused(
            "tables of clusters that are written side by side have columns by which TiDB settles "
            "conflicts, and nothing here does. Give the changefeed of one cluster, without it",
            False,
        ),
        "enable_old_value": _refused(
            "without old values a changed key leaves the row of the old one in the table. Set it to"
            " true in the TiCDC changefeed (later releases always have old values), and here",
            True,
        ),
        "cyclic_replication": _used(_Cyclic, "TiCDC's cyclic replication"),
        "consistent": _used(_Consistent, "TiCDC's redo logs"),
        "integrity": _used(_Integrity, "TiCDC's row checksums"),
    },
    # About TiCDC's own work. `sql-mode`: TiCDC sends DDLs as TiDB restored them.
    # `ignore-ineligible-table`: TiCDC leaves ineligible tables out of the topic.
    _ignored("memory-quota", "check-gc-safe-point", "mounter", "scheduler", "synced-status"),
    _ignored("sql-mode", "ignore-ineligible-table", "performance-mode", "enable-table-monitor"),
    _ignored("event-collector-batch-count", "event-collector-batch-bytes"),
    _ignored("active-active-progress-interval", "active-active-sync-stats-interval"),
    # Used in a cluster only. A `run` records a snapshot whenever its tables are at one timestamp,
    # and ends with its first error.
    _ignored("enable-sync-point", "sync-point-interval", "sync-point-retention"),
    _ignored("changefeed-error-stuck-duration"),
)

_Security = _table(
    "Security",
    _read({name: key for name, key in SERVER_KEYS.items() if name not in ADDRESSES}),
)
ServerFile = _table(
    "ServerFile",
    _read(CAPTURE_KEYS),
    _read({name: SERVER_KEYS[name] for name in ADDRESSES}),
    {"security": _used(_Security, "TLS between captures: used if `ca-path` is given")},
    # About TiCDC's own work.
    _ignored("data-dir", "gc-ttl", "tz", "log-file", "log", "owner-flush-interval"),
    _ignored("processor-flush-interval", "sorter", "kv-client", "debug"),
)

# What file, environment and arguments give together.
GivenValues = _table("GivenValues", _read({**OWN_KEYS, **SERVER_KEYS}))
