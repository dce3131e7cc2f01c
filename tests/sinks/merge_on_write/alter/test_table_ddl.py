"""What each kind of DDL says of itself. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sinks.merge_on_write.alter.table_ddl import (
    AlterTable,
    DropTable,
    ExchangeRows,
    MakeAgain,
    NotedDdl,
    RemovePartitions,
    TableDdl,
    Truncate,
)
from sinks.target.engine_port import Target
from sinks.target.write_mode import WriteMode
from tests.sinks.merge_on_write.ddls import ADD_N, ddl
from tests.sinks.merge_on_write.orders import target

TABLE = target("")
LOG = replace(TABLE, form=WriteMode(mode="append"))
ANSWERS = ("removes_all", "removes_rows", "ends_rows", "bars_recovery", "takes_rows_elsewhere")


def made(kind: type[TableDdl], of: Target = TABLE, **more: Any) -> TableDdl:
    return kind(target=of, ddl=ddl("", None).ddl, **more)


@pytest.mark.parametrize(
    ("order", "answers", "operation"),
    [
        (made(AlterTable, change=ADD_N), set(), "ALTER TABLE"),
        (made(MakeAgain, change=ADD_N), set(), "ALTER TABLE"),
        (made(NotedDdl), {"bars_recovery"}, "ALTER TABLE"),
        (
            made(Truncate),
            {"removes_all", "removes_rows", "ends_rows", "bars_recovery"},
            "TRUNCATE",
        ),
        (made(Truncate, LOG), {"ends_rows", "bars_recovery"}, "ALTER TABLE"),
        (
            made(RemovePartitions, change=None, partitions=("p",)),
            {"removes_rows", "ends_rows"},
            "TRUNCATE",
        ),
        (made(DropTable, on_drop="keep"), {"removes_all", "removes_rows"}, "TRUNCATE"),
        (
            made(DropTable, on_drop="rename"),
            {"removes_all", "removes_rows", "takes_rows_elsewhere"},
            "RENAME TABLE",
        ),
        (
            made(ExchangeRows, comes=lambda: iter(())),
            {"removes_all", "removes_rows", "ends_rows", "takes_rows_elsewhere"},
            "EXCHANGE PARTITION",
        ),
        (
            made(ExchangeRows, comes=lambda: iter(()), partitions=("p",)),
            {"removes_rows", "ends_rows", "takes_rows_elsewhere"},
            "EXCHANGE PARTITION",
        ),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, TableDdl) else "",
)
def test_what_a_kind_answers(order: TableDdl, answers: set[str], operation: str) -> None:
    assert {name for name in ANSWERS if getattr(order, name)} == answers
    assert order.operation == operation
    assert order.is_only_noted == isinstance(order, NotedDdl)


def test_files_are_sorted_by_the_key_that_the_table_has_afterwards() -> None:
    other = replace(ADD_N, after=replace(ADD_N.after, key=("v",)))
    assert made(AlterTable, change=other).sorted_by == ("v",)
    assert made(Truncate).sorted_by == TABLE.sorted_by
    removal = made(RemovePartitions, change=None, partitions=("p",))
    assert removal.sorted_by == TABLE.sorted_by
