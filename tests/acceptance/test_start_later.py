"""A stream that begins above its tables' CREATE TABLE: with a schema file, and with what their rows
tell alone."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import ConfigError
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import MakeLives, marks
from tests.shop.canal_json import Change, Column, Ddl, Op, Table, encode_change, encode_ddl
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

KIND = "enum('new','it''s')"
COLUMNS = (Column("code", "bigint"), Column("price", "decimal(9,2)"), Column("kind", KIND))
LATE = Table(schema="shop", name="late", columns=COLUMNS, primary_key=(), handle_key=("code",))
KEYED = Table(
    schema="shop", name="keyed", columns=COLUMNS, primary_key=("code",), handle_key=("code",)
)
FILE = f"""
USE shop;
CREATE TABLE `late` (`code` bigint NOT NULL, `price` decimal(9,2) NOT NULL, `kind` {KIND},
  `twice` decimal(20,2) AS (`price` * 2) VIRTUAL, UNIQUE KEY `by_code` (`code`)) ENGINE=InnoDB;
"""


def change(
    table: Table, ts: int, code: int, price: str, kind: str | None, *, op: Op = "INSERT"
) -> Message:
    row = {"code": code, "price": Decimal(price), "kind": kind}
    old = row if op == "UPDATE" else None
    return 1, None, encode_change(Change(table=table, op=op, row=row, old=old), ts, 0)


def alter(table: Table, ts: int, what: str) -> Message:
    ddl = Ddl("shop", table.name, "ALTER", f"ALTER TABLE `shop`.`{table.name}` {what}")
    return 0, None, encode_ddl(ddl, ts, 0)


def types(lives: Lives, table: str) -> dict[str, pa.DataType]:
    schema = pa.schema(DeltaTable(f"{lives.uri}/shop/{table}").schema().to_arrow())
    return {field.name: field.type for field in schema}


def test_what_the_schema_file_says_is_right_from_the_first_row(new_lives: MakeLives) -> None:
    """Below the start the table was another; the DDL above it runs on top of the file's shape."""
    lives = new_lives()
    older = Table(
        schema="shop", name="late", columns=COLUMNS[:1], primary_key=(), handle_key=("code",)
    )
    before = encode_change(Change(table=older, op="INSERT", row={"code": 9}), 50, 0)
    lives.produce([(1, None, before), *marks(60)])
    lives.produce([change(LATE, 120, 1, "1.50", "it's"), change(LATE, 121, 2, "2.25", None)])
    lives.produce([alter(LATE, 130, "ADD COLUMN `n` INT NOT NULL DEFAULT 7")])
    lives.produce([change(LATE, 122, 1, "3.00", "new", op="UPDATE"), *marks(150)])

    lives.finish(start_ts=100, target_ts=140, schema_text=FILE)

    assert types(lives, "late")["price"] == pa.decimal128(9, 2)
    assert lives.rows("late") == [
        {"code": 1, "price": Decimal("3.00"), "kind": "new", "n": 7},
        {"code": 2, "price": Decimal("2.25"), "kind": None, "n": 7},
    ]
    assert not lives.dead_letters()
    lives.assert_history()


def test_where_file_and_message_differ_nothing_is_made(new_lives: MakeLives) -> None:
    lives = new_lives()
    lives.produce([change(LATE, 120, 1, "1.50", "it's"), *marks(150)])
    error = lives.live(
        start_ts=100, target_ts=140, schema_text=FILE.replace("decimal(9,2) NOT", "double NOT")
    )
    assert isinstance(error, ConfigError)
    assert "column price is double in the file and decimal there" in str(error)
    assert not (lives.warehouse / "shop" / "late").exists()
    lives.finish(start_ts=100, target_ts=140, schema_text=FILE)
    assert [row["price"] for row in lives.rows("late")] == [Decimal("1.50")]


def test_what_messages_did_not_tell_is_repaired_by_the_ddl_that_says_it(
    new_lives: MakeLives,
) -> None:
    """Rows and DDL are resolved at once: the DDL is not passed over."""
    lives = new_lives()
    lives.produce([change(KEYED, 120, 1, "1.50", "it's"), change(KEYED, 121, 2, "2.25", None)])
    lives.produce([alter(KEYED, 130, f"MODIFY COLUMN `kind` {KIND}")])
    lives.produce([change(KEYED, 135, 3, "3.00", "new"), *marks(150)])
    lives.finish(start_ts=100, target_ts=140)
    assert [(row["code"], row["price"], row["kind"]) for row in lives.rows("keyed")] == [
        (1, "1.50", "it's"), (2, "2.25", None), (3, "3.00", "new"),
    ]  # fmt: skip

    lives.produce([alter(KEYED, 160, "MODIFY COLUMN `price` DECIMAL(9,2)")])
    lives.produce([change(KEYED, 165, 4, "4.00", "it's"), *marks(180)])
    lives.finish(start_ts=100, target_ts=170)
    assert types(lives, "keyed")["price"] == pa.decimal128(9, 2)
    assert [row["price"] for row in lives.rows("keyed")] == [
        Decimal("1.50"), Decimal("2.25"), Decimal("3.00"), Decimal("4.00"),
    ]  # fmt: skip
    assert not lives.dead_letters()
    lives.assert_history()
