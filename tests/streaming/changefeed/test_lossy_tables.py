"""Tables with columns of which the messages lose something: refused with ``strict-types``, whether
they are new or there already, and shown by what the control tables have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conf.column_rules import ColumnSelector
from conf.settings import Changefeed, DeltaSink
from conf.sources.source_uri import parse_source_uri
from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.control.schemas import SchemaRow, columns_of
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.changefeed.preflight import findings
from streaming.changefeed.refused.lossy_tables import lossy_tables
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from streaming.protocols.decoders import losses_of
from streaming.protocols.rows.losses import LossyTypes
from tests.streaming.changefeed.test_table_registry import CREATED, NAME, PROGRESS, ROW

SCHEMA = TableSchema(
    columns=(
        Column(name="id", type=MySQLType.parse("bigint"), nullable=False),
        Column(name="d", type=MySQLType.parse("date")),
        Column(name="v", type=MySQLType.parse("timestamp"), generated="virtual"),
    ),
    key=("id",),
)
TICDCS = losses_of("debezium", is_numbered=False)
STRICT = WriteModes(lossy=LossyTypes(TICDCS, "protocol=debezium", is_strict=True))


def test_strict_types_refuse_new_tables_and_those_that_are_there(tmp_path: Path) -> None:
    sink = DeltaSink(warehouse=str(tmp_path))
    with pytest.raises(TidelakeError, match=r"table shop\.a: strict-types: .* of d \(a date"):
        TableRegistry(sink, ROW, STRICT).create(NAME, SCHEMA, CREATED, Ts(5))
    assert not (tmp_path / "shop").exists()
    told = WriteModes(lossy=LossyTypes(TICDCS, "protocol=debezium"))
    TableRegistry(sink, ROW, told).create(NAME, SCHEMA, CREATED, Ts(5))
    with pytest.raises(TidelakeError, match=r"table shop\.a: strict-types: "):
        TableRegistry(sink, ROW, STRICT).resume({NAME: replace(PROGRESS, incarnation=2)})
    exact = replace(SCHEMA, columns=SCHEMA.columns[:1])
    TableRegistry(sink, ROW, STRICT).create(TableName("shop", "b"), exact, CREATED, Ts(5))


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_check_refuses_those_of_the_schema_file(tmp_path: Path, is_strict: bool) -> None:
    uri = f"file://{tmp_path}/r.jsonl?protocol=debezium&enable-tidb-extension=true"
    sql = "CREATE TABLE shop.a (id INT PRIMARY KEY, d DATE, e DATE);"
    changefeed = Changefeed(
        id="shop",
        source=parse_source_uri(uri),
        sink=DeltaSink(
            warehouse=str(tmp_path / "lake"),
            column_selectors=(ColumnSelector(matcher=("shop.*",), columns=("*", "!e")),),
        ),
        schema_text=sql,
        strict_types=is_strict,
    )
    said = [str(each) for each in findings(changefeed, is_new=False)]
    refused = [
        each for each in said if "strict-types: protocol=debezium loses values of d (" in each
    ]
    assert len(refused) == is_strict


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ('{"protocol": "debezium"}', ["d"]),
        ('{"protocol": "debezium", "delivery": "at-least-once"}', None),
        ('{"protocol": "canal-json"}', None),
        ('{"protocol": "binlog"}', None),
        (None, None),
    ],
)
def test_they_are_shown_by_the_control_tables(rules: str | None, wanted: list[str] | None) -> None:
    shape = SchemaRow(
        changefeed_id="shop",
        schema_name=NAME.schema,
        table_name=NAME.table,
        generation=1,
        commit_ts=5,
        statement="",
        columns=columns_of(SCHEMA),
        key=("id",),
    )
    found = lossy_tables(replace(ROW, row_rules=rules), lambda: {NAME: shape})
    assert [*found.get(NAME, ())] == (wanted or [])
