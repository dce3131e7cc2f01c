"""The models of a task file: every key that DM has.

A key is *read*, *idle* (it is about DM's own work or about TiDB, and changes nothing here), or *not
built* (it changes what must happen here, so only its harmless values are accepted). `from` of an
instance is that of DM's source file, since a cluster here has no sources of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, Strict

from conf.files.event_types import EVENT_TYPES
from conf.files.models import Table
from conf.problems import SettingError
from conf.rows.conditions import read_condition

IDLE: Final = "idle"
Idle = Annotated[Any, IDLE]
Texts = Annotated[tuple[str, ...], Strict(False)]  # a file has lists
Event = Literal[EVENT_TYPES]  # type: ignore[valid-type]


def _not_built(reason: str, *harmless: object) -> AfterValidator:
    def check(value: object) -> object:
        if value and value not in harmless:
            raise SettingError(f"is not built yet ({reason}): leave it out")
        return value

    return AfterValidator(check)


def _shard_mode(value: str) -> str:
    if value == "optimistic":
        raise SettingError(": optimistic is not built: a DDL waits for all shards (pessimistic)")
    return value


def _is_condition(text: str) -> str:
    if text:
        read_condition(text)
    return text


Condition = Annotated[str, AfterValidator(_is_condition)]


class Security(Table):
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None


class Server(Table):
    """`from`: the server that is read."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    user: str
    password: str = ""
    security: Security = Security()
    max_allowed_packet: Idle = None
    session: Idle = None


class Meta(Table):
    binlog_name: str = ""
    binlog_pos: Annotated[int, Field(ge=0, lt=2**32)] = 4
    binlog_gtid: str = ""


class Mydumper(Table):
    threads: Annotated[int, Field(ge=1, le=1024)] = 4
    rows: Annotated[int, Field(ge=0, lt=2**31)] = 0
    where: Annotated[str, _not_built("expressions over rows")] = ""
    extra_args: Annotated[str, _not_built("mydumper is not what copies tables")] = ""
    mydumper_path: Idle = None
    chunk_filesize: Idle = None
    statement_size: Idle = None
    skip_tz_utc: Idle = None


class Loader(Table):
    dir: str = ""
    pool_size: Idle = None
    sorting_dir_physical: Idle = None
    import_mode: Idle = None
    on_duplicate: Idle = None
    on_duplicate_logical: Idle = None
    on_duplicate_physical: Idle = None
    disk_quota_physical: Idle = None
    checksum_physical: Idle = None
    analyze: Idle = None
    range_concurrency: Idle = None
    compress_kv_pairs: Idle = None
    pd_addr: Idle = None


class Instance(Table):
    source_id: str
    server: Server | None = Field(None, alias="from")
    meta: Meta | None = None
    filter_rules: Texts = ()
    route_rules: Texts = ()
    expression_filters: Texts = ()
    column_mapping_rules: Annotated[Any, _not_built("DM has given them up")] = None
    block_allow_list: str = ""
    mydumper_config_name: str = ""
    mydumper: Mydumper | None = None
    mydumper_thread: Annotated[int, Field(ge=0, le=1024)] = 0
    loader_config_name: str = ""
    loader: Loader | None = None
    loader_thread: Idle = None
    syncer_config_name: Idle = None
    syncer: Idle = None
    syncer_thread: Idle = None
    validator_config_name: Idle = None


class ListedTable(Table):
    db_name: str
    tbl_name: str


Tables = Annotated[tuple[ListedTable, ...], Strict(False)]


class Listed(Table):
    """One block-allow-list."""

    do_dbs: Texts = ()
    do_tables: Tables = ()
    ignore_dbs: Texts = ()
    ignore_tables: Tables = ()


class EventRule(Table):
    """One of `filters`."""

    schema_pattern: str
    table_pattern: str = ""
    events: Annotated[tuple[Event, ...], Strict(False)] = ()
    sql_pattern: Texts = ()
    action: Literal["Ignore", "Do"]


class ExpressionRule(Table):
    """One of `expression-filter`; schema and table are names, not patterns."""

    schema_: str = Field(alias="schema")
    table: str
    insert_value_expr: Condition = ""
    update_old_value_expr: Condition = ""
    update_new_value_expr: Condition = ""
    delete_value_expr: Condition = ""


class TableExtract(Table):
    table_regexp: str
    target_column: str


class SchemaExtract(Table):
    schema_regexp: str
    target_column: str


class SourceExtract(Table):
    source_regexp: str
    target_column: str


class Route(Table):
    """One of `routes`."""

    schema_pattern: str
    table_pattern: str = ""
    target_schema: str
    target_table: str = ""
    extract_table: TableExtract | None = None
    extract_schema: SchemaExtract | None = None
    extract_source: SourceExtract | None = None


class TaskFile(Table):
    name: str
    task_mode: Literal["all", "incremental", "full", "dump", "load&sync"]
    case_sensitive: bool = False
    mysql_instances: list[Instance]
    block_allow_list: dict[str, Listed] = Field({})
    filters: dict[str, EventRule] = Field({})
    expression_filter: dict[str, ExpressionRule] = Field({})
    mydumpers: dict[str, Mydumper] = Field({})
    loaders: dict[str, Loader] = Field({})
    routes: dict[str, Route] = Field({})
    ignore_checking_items: Texts = ()
    # Shards wait for each other in any case.
    shard_mode: Annotated[Literal["", "pessimistic", "optimistic"], AfterValidator(_shard_mode)] = (
        ""
    )
    is_sharding: Idle = None
    # Not built.
    strict_optimistic_shard_mode: Annotated[
        Any, _not_built("DDLs of shards run pessimistically")
    ] = None
    column_mappings: Annotated[Any, _not_built("DM has given them up")] = None
    black_white_list: Annotated[Any, _not_built("its name is block-allow-list")] = None
    # About DM's own work, and about TiDB.
    target_database: Idle = None
    meta_schema: Idle = None
    syncers: Idle = None
    validators: Idle = None
    timezone: Idle = None
    online_ddl: Idle = None
    online_ddl_scheme: Idle = None
    shadow_table_rules: Idle = None
    trash_table_rules: Idle = None
    enable_heartbeat: Idle = None
    heartbeat_update_interval: Idle = None
    heartbeat_report_interval: Idle = None
    collation_compatible: Idle = Field(None, alias="collation_compatible")
    mariadb2tidb: Idle = None
    clean_dump_file: Idle = None
    ansi_quotes: Idle = None
    remove_meta: Idle = None
    experimental: Idle = None


def idle_keys(found: object, path: str = "") -> Iterator[str]:
    """The keys that are given and change nothing here, with their paths."""
    if isinstance(found, Table):
        for name, field in type(found).model_fields.items():
            if name in found.model_fields_set:
                key = f"{path}{field.alias}"
                if IDLE in field.metadata:
                    yield key
                else:
                    yield from idle_keys(getattr(found, name), f"{key}.")
    elif isinstance(found, list):
        for each in found:
            yield from idle_keys(each, path)
    elif isinstance(found, Mapping):
        for name, each in found.items():
            yield from idle_keys(each, f"{path}{name}.")
