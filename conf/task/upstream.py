"""An instance of a task file as the tables of a changefeed file: `mysql`, `filter`, `sink`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from conf.problems import SettingError, require, unknown
from conf.sources.binlog_uri import OF_A_DUMP
from conf.task.block_allow_list import BlockAllowList
from conf.task.event_rules import event_filter
from conf.task.models import (
    EventRule,
    ExpressionRule,
    Instance,
    ListedTable,
    Loader,
    Mydumper,
    TaskFile,
)
from conf.task.routes import route_table

_Named = TypeVar("_Named")


def parameters(file: TaskFile, instance: Instance) -> dict[str, Any]:
    """The parameters of the source URI. Raises SettingError."""
    found: dict[str, Any] = {"task-mode": file.task_mode, **_begin(file, instance)}
    if instance.server is not None:
        security = instance.server.security
        found |= {"password": instance.server.password} if instance.server.password else {}
        tls = {"ca": security.ssl_ca, "cert": security.ssl_cert, "key": security.ssl_key}
        found |= {name: path for name, path in tls.items() if path}
    copied = _unit(
        *("mydumper", file.mydumpers, instance.mydumper_config_name, instance.mydumper, Mydumper())
    )
    found |= _folder(file, instance)
    found["connections"] = instance.mydumper_thread or copied.threads
    return found | ({"chunk-rows": copied.rows} if copied.rows else {})


def _folder(file: TaskFile, instance: Instance) -> dict[str, str]:
    """The folder of a dump, which a loader names in DM, where the task leaves or finds one."""
    loaded = _unit(
        *("loader", file.loaders, instance.loader_config_name, instance.loader, Loader())
    )
    if file.task_mode not in OF_A_DUMP:
        return {}
    require(
        loaded.dir.startswith("/"),
        f"loaders: a task of mode {file.task_mode} needs the folder of its dump: dir, an absolute "
        "path",
    )
    return {"dump-dir": loaded.dir}


def _unit(
    kind: str, known: Mapping[str, _Named], name: str, own: _Named | None, default: _Named
) -> _Named:
    """The configuration of one of an instance's units: by name, or of its own."""
    _refuse_unused(f"{kind}s", known, [name] if name else [])
    require(
        not name or own is None,
        f"mysql-instances: {kind} and {kind}-config-name: leave one of them out",
    )
    return _of(f"{kind}s", known, name) if name else own or default


def _begin(file: TaskFile, instance: Instance) -> dict[str, Any]:
    """The place in the binlog. As in DM a task of mode `all` has none: its copy says where."""
    meta = instance.meta
    require(
        meta is None or bool(meta.binlog_name or meta.binlog_gtid),
        "mysql-instances.meta: it has neither binlog-name nor binlog-gtid",
    )
    if file.task_mode != "incremental":
        return {}
    if meta is None:
        raise SettingError(
            "mysql-instances: an incremental task needs meta, with a binlog-name or a binlog-gtid"
        )
    if meta.binlog_name:
        return {"binlog-name": meta.binlog_name, "binlog-pos": max(meta.binlog_pos, 4)}
    return {"binlog-gtid": meta.binlog_gtid}


def filter_table(file: TaskFile, instance: Instance) -> dict[str, Any]:
    """Raises SettingError."""
    name = instance.block_allow_list
    _refuse_unused("block-allow-list", file.block_allow_list, [name] if name else [])
    _refuse_unused("filters", file.filters, instance.filter_rules)
    found: dict[str, Any] = {}
    if name:
        listed = _of("block-allow-list", file.block_allow_list, name)
        found["rules"] = list(
            BlockAllowList(
                place=f"block-allow-list.{name}",
                case_sensitive=file.case_sensitive,
                do_dbs=listed.do_dbs,
                do_tables=_pairs(listed.do_tables),
                ignore_dbs=listed.ignore_dbs,
                ignore_tables=_pairs(listed.ignore_tables),
            ).rules()
        )
    rules = [(each, _of("filters", file.filters, each)) for each in instance.filter_rules]
    _refuse_unused("expression-filter", file.expression_filter, instance.expression_filters)
    conditions = [
        _of("expression-filter", file.expression_filter, each)
        for each in instance.expression_filters
    ]
    if rules or conditions:
        events = [_event_filter(*each) for each in rules]
        found["event-filters"] = [*events, *(_value_filter(each) for each in conditions)]
    return found


def sink_table(file: TaskFile, instance: Instance) -> dict[str, Any]:
    """Raises SettingError."""
    _refuse_unused("routes", file.routes, instance.route_rules)
    rows = route_table(
        {each: _of("routes", file.routes, each) for each in instance.route_rules},
        source_id=instance.source_id,
        checks_left_out=file.ignore_checking_items,
    )
    return {"routes": rows} if rows else {}


def _event_filter(name: str, rule: EventRule) -> dict[str, Any]:
    made = event_filter(
        f"filters.{name}",
        schema_pattern=rule.schema_pattern,
        table_pattern=rule.table_pattern,
        events=rule.events,
        sql_pattern=rule.sql_pattern,
        is_do=rule.action == "Do",
    )
    found = {
        "matcher": list(made.matcher),
        "ignore-event": list(made.ignore_event),
        "ignore-sql": list(made.ignore_sql),
    }
    return {name: each for name, each in found.items() if each}


def _value_filter(rule: ExpressionRule) -> dict[str, Any]:
    schema, table = (each.replace('"', '""') for each in (rule.schema_, rule.table))
    found = {
        "ignore-insert-value-expr": rule.insert_value_expr,
        "ignore-update-old-value-expr": rule.update_old_value_expr,
        "ignore-update-new-value-expr": rule.update_new_value_expr,
        "ignore-delete-value-expr": rule.delete_value_expr,
    }
    given = {name: each for name, each in found.items() if each}
    return {"matcher": [f'"{schema}"."{table}"'], **given, "ignore-update-if": "both"}


def _pairs(tables: Iterable[ListedTable]) -> list[tuple[str, str]]:
    return [(each.db_name, each.tbl_name) for each in tables]


def _of(key: str, found: Mapping[str, _Named], name: str) -> _Named:
    require(name in found, unknown(f"name in {key}", name, found, most_listed=8))
    return found[name]


def _refuse_unused(key: str, found: Iterable[str], used: Iterable[str]) -> None:
    unused = sorted(set(found) - set(used))
    require(not unused, f"{key}: no instance uses {', '.join(unused)}: leave it out, or name it")
