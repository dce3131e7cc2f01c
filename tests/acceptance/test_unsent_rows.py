"""DDLs that bring rows which TiCDC does not send: they are there, whoever dies over it."""

from __future__ import annotations

import pytest

from coordination.failpoint import Failpoint
from tests.acceptance.small_tables import (
    A,
    B,
    MakeLives,
    made,
    marks,
    row,
    small_table,
    values,
)
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Ddl, encode_ddl
from tests.shop.feed import Message

PARTS = small_table("parts")
CREATE_PARTS = (
    "CREATE TABLE `shop`.`parts` (`id` BIGINT, `n` INT, `v` VARCHAR(20), PRIMARY KEY (`id`)) "
    "PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
)
BOTH = ("parts", "b")
pytestmark = pytest.mark.kafka


def ddl(ts: int, table: str, query: str, kind: str = "QUERY") -> Message:
    return 0, None, encode_ddl(Ddl("shop", table, kind, query), ts, 0)


def test_rows_that_nobody_sends_are_in_their_tables(new_lives: MakeLives) -> None:
    """A dropped table comes back, and once more under another name; a partition and a table
    exchange what they have."""
    lives = new_lives()
    messages = [
        *made(100, A, B),
        *[(n % 3, None, row(110 + n, n, f"v{n}")) for n in range(9)],
        ddl(200, "a", "DROP TABLE `shop`.`a`", "ERASE"),
        (1, None, row(210, 1, "other", table=B)),
        ddl(300, "a", "RECOVER TABLE `a`"),
        (2, None, row(310, 1, "new", op="UPDATE")),
        (1, None, row(310, 99, "new")),
        ddl(400, "a", "DROP TABLE `shop`.`a`", "ERASE"),
        *made(410, A),
        (1, None, row(420, 5, "second life")),
        ddl(500, "c", "FLASHBACK TABLE `a` TO `c`"),
        (0, None, row(510, 2, "of c", table=small_table("c"), op="UPDATE")),
        ddl(520, "parts", CREATE_PARTS, "CREATE"),
        *[(n % 3, None, row(530, n, f"p{n}", table=PARTS)) for n in (5, 6, 50)],
        ddl(
            540, "parts", "ALTER TABLE `shop`.`parts` EXCHANGE PARTITION `p0` WITH TABLE `shop`.`b`"
        ),
        (2, None, row(550, 5, "of b", table=B, op="UPDATE")),
        (2, None, row(550, 1, "of parts", table=PARTS, op="UPDATE")),
        *marks(601),
    ]
    lives.produce(messages)
    points = (Failpoint.BEFORE_DDL, Failpoint.AFTER_DDL, Failpoint.AFTER_PROGRESS)
    for point in (*points, Failpoint.AFTER_DDL):
        error = lives.live(f"{point}=raise:2", target_ts=600)
        assert error is None or f"failpoint {point}" in str(error)
    lives.produce([*messages, *marks(701)])
    lives.finish(target_ts=700)
    first = {n: f"v{n}" for n in range(9)}
    second = {**first, 1: "new", 99: "new"}
    wanted = {"a": {5: "second life"}, "c": {**second, 2: "of c"}}
    wanted |= {"b": {5: "of b", 6: "p6"}, "parts": {1: "of parts", 50: "p50"}}
    assert {name: values(lives, name) for name in wanted} == wanted
    assert (values(lives, "a~dropped-200"), values(lives, "a~dropped-400")) == (first, second)
    at = {cut["primary_ts"]: cut["tables"] for cut in lives.ledger()}
    for ts, tables in at.items():
        is_there = not (200 <= ts < 300 or 400 <= ts < 410)
        assert ("shop.a" in tables, "shop.c" in tables) == (is_there, ts >= 500)
        if 300 <= ts < 310:
            shown = read_rows(lives.warehouse / "shop" / "a", tables["shop.a"])
            assert {each["id"]: each["v"] for each in shown} == first
        if 540 <= ts < 550:
            both = [read_rows(lives.warehouse / "shop" / n, tables[f"shop.{n}"]) for n in BOTH]
            assert [{each["id"] for each in rows} for rows in both] == [{1, 50}, {5, 6}]
    assert not lives.dead_letters()
    lives.assert_history()
