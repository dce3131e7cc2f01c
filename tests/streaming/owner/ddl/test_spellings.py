"""Whose spelling of a name counts, and when nobody can know."""

from __future__ import annotations

import pytest

from conf.settings import FilterSettings
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from coordination.model import TableName, Ts
from streaming.changefeed.routes import Routes
from streaming.owner.ddl.spellings import Spellings
from streaming.owner.ddl.steps import DdlEvent
from streaming.protocols.contract import Block, Kind

LOWER, CAPITALS = TableName("shop", "orders"), TableName("shop", "Orders")
URI = "kafka://b:9092/t?protocol=canal-json&partition-num=1"


class Ground:
    def __init__(self, more: str = "&at-least-once=true") -> None:
        self.concerns: list[str | None] = []
        self.spellings = Spellings.of(
            parse_source_uri(URI + more),
            Routes((), FilterSettings()),
            lambda _, what: self.concerns.append(what),
        )

    def rows(self, *names: TableName) -> None:
        self.spellings.look(Block(kind=Kind.ROW, part="t/0", name=each) for each in names)

    def spelled(self, sql: str, name: TableName, *tables: TableName) -> TableName:
        event = DdlEvent(commit_ts=Ts(5), place=1, name=name, ddl_type="", query=sql)
        self.spellings.learn([event], tables)
        return self.spellings.spelled(event).name


TRUNCATE = "TRUNCATE TABLE Orders"


@pytest.mark.parametrize("tables", [(), (LOWER,)])
def test_a_table_that_is_known_in_lower_case_alone_is_meant(tables: tuple[TableName, ...]) -> None:
    ground = Ground()
    if not tables:
        ground.rows(LOWER)
    assert ground.spelled(TRUNCATE, CAPITALS, *tables) == LOWER


def test_a_table_that_nobody_knows_keeps_its_name() -> None:
    assert Ground().spelled(TRUNCATE, CAPITALS) == CAPITALS


def test_capitals_in_rows_tell_that_they_count() -> None:
    ground = Ground()
    ground.rows(LOWER, TableName("shop", "Users"))
    assert ground.spelled(TRUNCATE, CAPITALS) == CAPITALS
    assert "a DDL of shop.Orders is not taken for one of shop.orders: set" in str(ground.concerns)
    ground.rows(CAPITALS)
    assert ground.concerns[-1] is None


def test_two_known_tables_are_two() -> None:
    ground = Ground()
    assert ground.spelled(TRUNCATE, CAPITALS, LOWER, CAPITALS) == CAPITALS
    assert ground.concerns == []


def test_a_dropped_database_is_spelled_as_its_tables() -> None:
    ground = Ground()
    assert ground.spelled("DROP DATABASE Shop", TableName("Shop", ""), LOWER) == TableName(
        "shop", ""
    )


def test_the_old_name_of_a_rename_tells_too() -> None:
    ground = Ground()
    new = TableName("shop", "Done")
    found = ground.spelled("RENAME TABLE shop.Orders TO shop.Done", new, LOWER)
    assert found == TableName("shop", "done")


def test_a_table_that_a_ddl_has_made_and_rows_name_otherwise_stops_it() -> None:
    ground = Ground()
    ground.spellings.made(CAPITALS)
    ground.rows(LOWER)
    with pytest.raises(ConfigError, match=r"the CREATE TABLE of .* was read, and now rows"):
        ground.spelled(TRUNCATE, CAPITALS, CAPITALS)


def test_a_table_of_an_earlier_life_that_rows_name_otherwise_is_a_warning() -> None:
    ground = Ground()
    ground.rows(LOWER)
    assert ground.spelled(TRUNCATE, CAPITALS, CAPITALS) == CAPITALS
    assert "rows of shop.orders are not taken for those of shop.Orders" in str(ground.concerns)


@pytest.mark.parametrize("answer", ["true", "false"])
def test_the_source_uri_tells_it(answer: str) -> None:
    ground = Ground(f"&at-least-once=true&lower-case-names={answer}")
    found = ground.spelled(TRUNCATE, CAPITALS, LOWER)
    assert found == (LOWER if answer == "true" else CAPITALS)
    ground.spellings.made(CAPITALS)
    ground.rows(LOWER)
    assert ground.spelled(TRUNCATE, CAPITALS, CAPITALS) == found
    assert ground.concerns == []


def test_names_of_ticdc_are_as_tidb_has_them() -> None:
    ground = Ground("&enable-tidb-extension=true")
    ground.rows(LOWER)
    assert ground.spelled(TRUNCATE, CAPITALS, LOWER) == CAPITALS
