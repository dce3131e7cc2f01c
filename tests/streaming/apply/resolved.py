"""What ``changes`` makes of a test's rows, and what every test asks of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from coordination.model import Ts
from sinks.types.delta_types import arrow_of, arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.apply.changes import TableChanges, changes
from streaming.apply.row_block import RowBlock
from streaming.apply.table_task import ChangeRules, TableTask
from streaming.apply.values.row_errors import ERRORS
from tests.streaming.apply.blocks import A, Row, Text, blocks_of

RULES = ChangeRules(time_zone="UTC", zero_date="null", protocol="canal-json")


def schema(key: Sequence[str] = ("id",), **types: str) -> TableSchema:
    columns = tuple(
        Column(name=name, type=MySQLType.parse(text), nullable=name not in key)
        for name, text in types.items()
    )
    return TableSchema(columns=columns, key=tuple(key))


PLAIN = schema(id="bigint", v="varchar(20)")


def row(op: str, ts: int, data: Text, old: Text | None = None, **more: Any) -> Row:
    return Row(op=op, ts=ts, data=data, old=old, **more)


def numbered(rows: Iterable[Row]) -> list[Row]:
    """With offsets in this order."""
    return [replace(each, position=offset) for offset, each in enumerate(rows)]


def resolved(
    rows: Iterable[Row] | Sequence[RowBlock],
    of: TableSchema = PLAIN,
    limit: int = 1000,
    rules: ChangeRules = RULES,
    **more: Any,
) -> TableChanges:
    given = list(rows)
    blocks = [each for each in given if isinstance(each, RowBlock)]
    blocks += blocks_of([each for each in given if isinstance(each, Row)])
    task = TableTask(name=A, schema=of, checkpoint=Ts(more.pop("checkpoint", 0)), **more)
    found = changes(task, blocks, Ts(limit), rules)
    wanted = {each.name: arrow_type(each.stored) for each in of.delivered}
    behind = {name: arrow_of(kind) for name, kind in task.form.columns.items()}
    wanted |= {**behind, "_op ": pa.string()}
    assert dict(zip(found.rows.schema.names, found.rows.schema.types, strict=True)) == wanted
    assert found.errors.schema == ERRORS
    found.rows.validate(full=True)
    found.errors.validate(full=True)
    return found


def by_key(found: TableChanges, *key: str) -> dict[Any, Any]:
    """Key -> its new ``v``, None where it is deleted; every key once."""
    values: dict[Any, Any] = {}
    for each in found.rows.to_pylist():
        at = tuple(each[name] for name in key) if key else each["id"]
        assert at not in values, f"{at} twice"
        values[at] = each["v"] if each["_op "] == "U" else None
    return values


def errors(found: TableChanges) -> dict[int, tuple[str, str]]:
    """Offset -> class and message; every row once."""
    rows = found.errors.to_pylist()
    by_offset = {each["position"]: (each["error_class"], each["message"]) for each in rows}
    assert len(by_offset) == len(rows)
    return by_offset
