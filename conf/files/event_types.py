"""TiCDC's names of events, which `ignore-event` of an event filter accepts."""

from __future__ import annotations

ROW_EVENTS = ("insert", "update", "delete")
COMPATIBLE_DDLS = (
    "create database", "alter database", "create table", "create index", "create view",
    "drop view", "alter table", "add table partition",
)  # fmt: skip
# "alert table option" is TiCDC's spelling.
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
    "alter ttl remove", "multi schema change", "add fulltext index", "create hybrid index",
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
