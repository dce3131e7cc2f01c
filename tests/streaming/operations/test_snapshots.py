"""All tables as of one moment: found in the ledger, opened without Spark, told as SQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, time_tso
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from streaming.operations.snapshots import (
    BY_COMMIT_AGE,
    LedgerSnapshot,
    SnapshotTable,
    find_snapshot,
    register_views,
    reported,
    sql_text,
)
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import change, ddl, rows
from tests.sinks.merge_on_write.orders import target, write
from tests.streaming.lake import Lake

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BEFORE, AFTER = time_tso(AT), time_tso(AT + SECOND)  # a rename lies between
ID = column("id", "bigint")
RENAMED = change(ID, column("w", "varchar(20)"), renamed={"w": "v"})


def filled(lake: Lake) -> Lake:
    """orders at version 1 is of BEFORE; then v becomes w, and a row comes."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    for name in ("orders", "customers"):
        uri = str(lake.tables / name)
        create(target(uri), properties={})
        engine.apply(write(uri, 10, {1: "a", 2: "b"}))
    lake.publish(BEFORE, orders=1, customers=1)
    orders = str(lake.tables / "orders")
    engine.alter(ddl(orders, RENAMED))
    engine.apply(rows(orders, 101, RENAMED.after, {"id": 3, "w": "c"}))
    lake.publish(AFTER, orders=3, customers=1)
    engine.close()
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return filled(Lake(tmp_path_factory.mktemp("snapshots")))


def test_a_time_without_a_zone_is_refused_with_one_that_has_it(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="write 2026-01-31T00:00:00Z for UTC"):
        lake.find("2026-01-31")


@pytest.mark.parametrize("as_of", [None, AFTER, "2026-01-31T12:00:01Z", AT + 9 * SECOND])
def test_the_newest_shows_the_new_shape(lake: Lake, as_of: int | str | datetime | None) -> None:
    snapshot = lake.find(as_of)
    assert snapshot.primary_ts == AFTER
    orders = snapshot.open("shop.orders")
    assert orders.types == {"id": "bigint", "w": "string"}
    assert sorted(orders.to_table()["w"].to_pylist()) == ["a", "b", "c"]
    assert snapshot.open("shop.customers").count_rows() == 2


@pytest.mark.parametrize(
    ("as_of", "found"),
    [
        ("9999-12-31T23:59:59.9999Z", AFTER),
        ("9999-12-31T23:59:59-14:00", AFTER),
        ("9" * 19, AFTER),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_time_may_be_beyond_all_tsos(lake: Lake, as_of: str, found: int | None) -> None:
    if found is not None:
        assert lake.find(as_of).primary_ts == found
        return
    with pytest.raises(TidelakeError, match="has no snapshot"):
        lake.find(as_of)


@pytest.mark.parametrize("as_of", [BEFORE, AFTER - 1, "2026-01-31T13:00:00.5+01:00"])
def test_an_older_one_shows_old_names(lake: Lake, as_of: int | str) -> None:
    snapshot = lake.find(as_of)
    assert snapshot.primary_ts == BEFORE
    assert snapshot.open("shop.orders").to_table().sort_by("id").to_pylist() == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]


def test_what_is_not_there_is_a_sentence(lake: Lake) -> None:
    with pytest.raises(TidelakeError, match=rf"no snapshot at or below {BEFORE - 1} .*earliest"):
        lake.find(BEFORE - 1)
    with pytest.raises(TidelakeError, match=r"no table shop\.items, but shop\.customers, shop\.or"):
        lake.find().open("shop.items")
    with pytest.raises(ConfigError, match="neither a TSO nor a time"):
        lake.find("noon")
    with pytest.raises(ConfigError, match="has no time zone"):
        lake.find(datetime(2026, 1, 31))  # noqa: DTZ001
    with pytest.raises(ConfigError, match="has no changefeed 'crm'"):
        find_snapshot(lake.uri, "crm")
    with pytest.raises(TidelakeError, match="no changefeed has run"):
        find_snapshot("delta:///nowhere/at/all")


def test_a_changefeed_without_a_cut_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(TidelakeError, match=r"has no snapshot in .*`tidelake progress` shows"):
        Lake(tmp_path).find()


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.publish(BEFORE, orders=1)
    with pytest.raises(
        TidelakeError, match=r"table shop\.orders: there is no Delta table any more"
    ):
        lake.find().open("shop.orders")
    (look,) = reported(lake.find()).tables
    assert (look.rows, dict(look.types)) == (None, {})
    assert "there is no Delta table any more" in str(look.problem)


def test_the_report_has_rows_and_types(lake: Lake) -> None:
    found = reported(lake.find(BEFORE)).to_json()
    assert [(table["table"], table["version"], table["rows"]) for table in found["tables"]] == [
        ("shop.customers", 1, 2),
        ("shop.orders", 1, 2),
    ]
    assert found["tables"][1]["columns"] == {"id": "bigint", "v": "string"}
    assert found["tables"][1]["problem"] is None


def named(lake: Lake, *names: tuple[str, str]) -> LedgerSnapshot:
    tables = (SnapshotTable(name=TableName(*name), uri="/l`ke/x", version=7) for name in names)
    return replace(lake.find(BEFORE), tables=tuple(tables))


def test_sql_for_each_reader(lake: Lake) -> None:
    of = named(lake, ("shop", 'or"d`ers'))
    spark, databricks = (sql_text(of, each).splitlines() for each in ("spark", "databricks"))
    assert (spark[0], spark[2:]) == (databricks[0], databricks[2:])
    assert databricks[1] == f"-- If a version is refused for its age: {spark[1]}"
    assert spark[0] == f"-- shop as of {BEFORE} (2026-01-31T12:00:00+00:00)"
    assert spark[1:] == [
        f"SET {BY_COMMIT_AGE} = false;",
        'CREATE OR REPLACE TEMPORARY VIEW `shop_or"d``ers` AS '
        "SELECT * FROM delta.`/l``ke/x` VERSION AS OF 7;",
    ]
    assert sql_text(of, "trino").splitlines()[-1] == (
        'CREATE OR REPLACE VIEW "shop_or""d`ers" AS '
        'SELECT * FROM "shop"."or""d`ers" FOR VERSION AS OF 7;'
    )
    assert sql_text(of, "duckdb").splitlines()[1:] == [
        "INSTALL delta; LOAD delta;",
        'CREATE OR REPLACE VIEW "shop_or""d`ers" AS '
        "SELECT * FROM delta_scan('/l`ke/x', version => 7);",
    ]


def test_two_tables_of_one_view_name_are_refused(lake: Lake) -> None:
    of = named(lake, ("a", "b_c"), ("A_B", "c"))
    with pytest.raises(TidelakeError, match=r"a\.b_c and A_B\.c would both be the view A_B_c"):
        sql_text(of, "spark")
    with pytest.raises(TidelakeError, match="one after the other"):
        register_views(None, of)  # type: ignore[arg-type]  # it is not asked yet
