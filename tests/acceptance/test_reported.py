"""Inputs after public bug reports lead to what the upstream database shows."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.acceptance.reported import at, ddl, mark, play, recording, row
from tests.acceptance.small_tables import MakeLives

pytestmark = pytest.mark.kafka


def test_a_recording_is_played_to_its_last_watermark(new_lives: MakeLives) -> None:
    made = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
    rows = [row(at(n), "t", {"id": f"{n}"}, {"id": "bigint"}) for n in (1, 2, 9)]
    lives = play(new_lives(1, partitions=None), [made, *rows, *mark(at(3))])
    assert lives.rows("t") == [{"id": 1}, {"id": 2}]
    assert not lives.dead_letters()


def test_a_default_has_the_backslashes_that_its_author_wrote(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("default-backslash"))
    assert lives.rows("files") == [
        {"id": 1, "owner_type": r"App\Models\User"},
        {"id": 2, "owner_type": r"App\Models\User"},
    ]


def test_a_default_is_an_element_though_the_two_are_written_in_two_ways(
    new_lives: MakeLives,
) -> None:
    lives = play(new_lives(1, partitions=None), recording("default-backslash-enum"))
    assert lives.rows("files") == [{"id": 1, "sep": "\\"}, {"id": 2, "sep": "/"}]


def test_a_table_like_an_unread_one_is_made_from_its_rows(new_lives: MakeLives) -> None:
    lives = play(new_lives(2, partitions=None), recording("like-unread"))
    assert lives.rows("ok") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert lives.rows("l1") == [{"id": 1, "v": "a"}]


def test_copies_of_tables_that_are_gone_or_told_by_rows_alone(new_lives: MakeLives) -> None:
    types = {"id": "bigint", "v": "varchar"}
    one = {"id": "1", "v": "a"}
    messages = [
        ddl(at(0), "gone", "CREATE TABLE `gone` (`id` BIGINT PRIMARY KEY,`x` INT)", kind="CREATE"),
        ddl(at(1), "gone", "DROP TABLE `shop`.`gone`", kind="ERASE"),
        ddl(at(2), "c", "CREATE TABLE `shop`.`c` LIKE `shop`.`gone`", kind="CREATE"),
        row(at(3), "c", one, types),
        ddl(at(4), "c", "ALTER TABLE `shop`.`c` ADD COLUMN `n` INT DEFAULT 5"),
        row(at(5), "c", {"id": "2", "v": "b", "n": "6"}, types | {"n": "int"}),
        ddl(at(6), "d", "CREATE TABLE `shop`.`d` LIKE `shop`.`C`", kind="CREATE"),
        row(at(7), "d", {"id": "3", "v": "c", "n": None}, types | {"n": "int"}),
        ddl(at(8), "e", "CREATE TABLE `shop`.`e` LIKE `shop`.`told`", kind="CREATE"),
        row(at(9), "e", {"id": "4", "p": "1.50"}, {"id": "bigint", "p": "decimal"}),
        row(at(9), "old", one, types),
        ddl(at(10), "f", "CREATE TABLE `shop`.`f` LIKE `shop`.`old`", kind="CREATE"),
        ddl(at(11), "g", "RENAME TABLE `shop`.`f` TO `shop`.`g`", kind="RENAME"),
        row(at(12), "g", {"id": "5", "v": None}, types),
        *mark(at(13)),
    ]
    told = "CREATE TABLE shop.told (id BIGINT PRIMARY KEY, p DECIMAL(10,2))"
    lives = play(new_lives(1, partitions=None), messages, schema_text=told)
    assert lives.rows("c") == [{"id": 1, "v": "a", "n": 5}, {"id": 2, "v": "b", "n": 6}]
    assert lives.rows("d") == [{"id": 3, "v": "c", "n": None}]
    assert lives.rows("e") == [{"id": 4, "p": Decimal("1.50")}]
    assert lives.rows("g") == [{"id": 5, "v": None}]
    assert not lives.dead_letters()
