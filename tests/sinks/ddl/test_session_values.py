"""Which values of old rows depend on the session that ran a DDL, and what is done about it."""

from __future__ import annotations

import json
import logging

import pytest

from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.ddl.column_origin import ColumnOrigin
from sinks.ddl.session_values import SessionValues
from sinks.merge_on_write.alter.assumed import assumed
from sinks.target.engine_port import Target
from sinks.target.table_properties import TableProperties
from sinks.target.write_mode import WriteMode
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import CURRENT_TIMESTAMP, Column, TableSchema
from sinks.types.text_arrays import CastRules
from tests.own_lines import own_text

UNTOLD = CastRules(time_zone="UTC", zero_date="null")
TOLD = CastRules(time_zone="UTC", zero_date="null", ddl_time_zone="UTC")
TS = Ts(470620744142028800)
LITERAL = "2024-01-01 00:00:00"


def added(kind: str, text: str) -> ColumnOrigin:
    return ColumnOrigin(name="c", source=None, fill=(MySQLType.parse(kind), text))


def modified(was: str, now: str) -> ColumnOrigin:
    types = MySQLType.parse(was), MySQLType.parse(now)
    return ColumnOrigin(name="c", source="c", types=types)


@pytest.mark.parametrize(
    ("origin", "is_zoned", "is_timed"),
    [
        (added("timestamp", LITERAL), True, False),
        (added("timestamp", CURRENT_TIMESTAMP), False, True),
        (added("timestamp(6)", CURRENT_TIMESTAMP), False, True),
        (added("timestamp", "0000-00-00 00:00:00"), False, False),
        (added("datetime", LITERAL), False, False),
        (added("datetime(3)", CURRENT_TIMESTAMP), True, True),
        (added("date", CURRENT_TIMESTAMP), True, True),
        (added("time", "10:00:00"), False, False),
        (added("varchar(20)", CURRENT_TIMESTAMP), False, False),
        (added("int", "1"), False, False),
        (modified("timestamp", "datetime"), True, False),
        (modified("timestamp", "date"), True, False),
        (modified("timestamp", "time"), True, False),
        (modified("timestamp(3)", "varchar(30)"), True, False),
        (modified("timestamp", "bigint"), True, False),
        (modified("datetime", "timestamp"), True, False),
        (modified("date", "timestamp"), True, False),
        (modified("varchar(30)", "timestamp"), True, False),
        (modified("timestamp(6)", "timestamp"), False, False),
        (modified("datetime", "varchar(30)"), False, False),
        (ColumnOrigin(name="c", source="c"), False, False),
        (ColumnOrigin(name="c", source=None), False, False),
    ],
)
def test_what_depends_on_a_session(origin: ColumnOrigin, is_zoned: bool, is_timed: bool) -> None:
    values = SessionValues.of([origin], UNTOLD)
    assert (bool(values.zoned), bool(values.timed)) == (is_zoned, is_timed)
    told = SessionValues.of([origin], TOLD)
    assert (bool(told.zoned), bool(told.timed)) == (False, is_timed)


@pytest.mark.parametrize(
    ("form", "key", "why"),
    [
        (WriteMode(mode="history"), ("id",), "a history"),
        (WriteMode(mode="append"), ("id",), "a change log"),
        (WriteMode(), ("id", "c"), "rows are found by it"),
        (WriteMode(), ("id",), ""),
        (WriteMode(soft_delete=True), ("id",), ""),
    ],
)
def test_what_could_never_be_mended_is_refused(
    form: WriteMode, key: tuple[str, ...], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    columns = tuple(
        Column(name=each, type=MySQLType.parse(kind))
        for each, kind in (("id", "bigint"), ("c", "datetime"))
    )
    schema = TableSchema(columns=columns, key=key)
    name = TableName("shop", "visits")
    target = Target(name=name, uri="unused", schema=schema, app_id="a", form=form)
    values, notes = SessionValues(zoned=("c",), timed=("c",)), TableProperties(properties={})
    if why:
        with pytest.raises(TidelakeError, match=f"column c .*ddl-time-zone.*{why}"):
            assumed(values, target, notes, UNTOLD, TS)
        return
    with caplog.at_level(logging.WARNING):
        (text,) = assumed(values, target, notes, UNTOLD, TS).values()
    assert "table=shop.visits" in own_text(caplog)
    ((ts, told),) = json.loads(text)
    assert ts == TS
    assert told in own_text(caplog)
    assert not assumed(SessionValues(), target, notes, UNTOLD, TS)
