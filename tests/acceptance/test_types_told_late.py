"""A column's type changes: TIME, whose text depends on its digits, and types of which messages do
not tell everything. What old rows show is what TiDB shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from conf.settings import TableRule
from coordination.model import Ts
from tests.acceptance.one_process import Lives
from tests.acceptance.reported import at, ddl, mark, play, recording, row
from tests.acceptance.small_tables import MakeLives
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

RULES = (
    TableRule(matcher=("shop.soft",), soft_delete=True),
    TableRule(matcher=("shop.log",), write_mode="append"),
    TableRule(matcher=("shop.hist",), write_mode="history"),
    TableRule(matcher=("shop.whole",), key="all-columns"),
)
TYPES = {"id": "bigint", "t": "time", "v": "int"}
KEY = ("id", "t")
EIGHT, HALF = "08:00:00", "-09:30:00"


def test_a_key_has_the_new_digits(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("time-fsp-key"))
    assert lives.rows("slots") == [{"id": 2, "t": "09:30:00.000", "v": 2}]
    assert not lives.dead_letters()


def test_a_column_has_the_new_digits(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("time-fsp-text"))
    assert lives.rows("slots") == [
        {"id": 1, "t": "08:00:00.500000"}, {"id": 2, "t": "08:00:00.500000"},
    ]  # fmt: skip


def test_a_float_is_rounded_only_where_tidb_writes_rows_anew(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("float-scale-no-rewrite"))
    assert lives.rows("m") == [{"id": 1, "c": 1.2345}, {"id": 2, "c": 1.23}]


def test_a_half_below_zero_is_rounded_up(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("negative-time-half"))
    assert lives.rows("m") == [{"id": 1, "t": "-00:00:01"}]


def test_digits_that_no_definition_tells_are_rounded(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("undeclared-fsp"))
    assert lives.rows("old") == [
        {
            "id": 1,
            "d": datetime(2024, 1, 1, 0, 0, 0, 123000),  # noqa: DTZ001
            "s": datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC),
            "t": "10:11:13.000",
        },
        {
            "id": 2,
            "d": datetime(2024, 1, 1, 0, 0, 0, 123000),  # noqa: DTZ001
            "s": datetime(2024, 1, 1, 0, 0, 0, 999000, tzinfo=UTC),
            "t": "10:11:12.999",
        },
    ]


def written(
    name: str, n: int, values: tuple[int, str, int], kind: str = "INSERT", old: int | None = None
) -> Message:
    data = {column: f"{value}" for column, value in zip(TYPES, values, strict=True)}
    before = None if old is None else {**data, "v": f"{old}"}
    key = None if name in ("whole", "uniq") else KEY
    return row(at(n), name, data, TYPES, kind=kind, old=before, key=key)


def feed(name: str, change: str) -> list[Message]:
    """A row that stays, one that is deleted and one that is updated, by the new digits."""
    keys = {
        "whole": "",
        "uniq": ", UNIQUE KEY `u` (`id`, `t`)",
    }
    key = keys.get(name, ", PRIMARY KEY (`id`, `t`)")
    create = f"CREATE TABLE `shop`.`{name}` (`id` BIGINT NOT NULL, `t` TIME NOT NULL, `v` INT{key})"
    return [
        ddl(at(0), name, create, kind="CREATE"),
        *(written(name, id, (id, t, 1)) for id, t in ((1, EIGHT), (2, HALF), (3, EIGHT))),
        ddl(at(10), name, f"ALTER TABLE `shop`.`{name}` {change}"),
        written(name, 11, (1, EIGHT + ".000", 1), "DELETE"),
        written(name, 12, (2, HALF + ".000", 2), "UPDATE", old=1),
        written(name, 13, (4, "08:00:00.250", 1)),
    ]


def test_in_every_mode_and_after_a_rewind(new_lives: MakeLives) -> None:
    lives = new_lives(1, partitions=None)
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=RULES)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    modify = "MODIFY COLUMN `t` TIME(3) NOT NULL"
    for name in ("plain", "soft", "log", "hist", "whole", "uniq"):
        lives.produce(feed(name, modify))
    lives.produce(mark(at(20)))
    kept = [(2, f"{HALF}.000", 2), (3, f"{EIGHT}.000", 1), (4, "08:00:00.250", 1)]

    def agree() -> None:
        for name in ("plain", "whole", "uniq"):
            assert cells(lives, name) == kept, name
        deleted = [(1, f"{EIGHT}.000", 1)]
        alive = [each for each in lives.rows("soft") if not each["_tidelake_deleted"]]
        assert [tuple(each.values())[:3] for each in alive] == kept
        assert cells(lives, "soft") == deleted + kept
        changed = [(2, f"{HALF}.000", 1), *kept]
        assert sorted(cells(lives, "hist")) == sorted(deleted + changed)
        before = [(2, f"{HALF}.000", 1)]  # of the UPDATE
        assert sorted(cells(lives, "log")) == sorted(deleted * 2 + before + changed)
        assert {each["t"] for each in lives.rows("log") if each["id"] != 4} == {
            f"{EIGHT}.000", f"{HALF}.000",
        }  # fmt: skip
        assert not lives.dead_letters()

    lives.finish(target_ts=at(15))
    agree()
    lives.finish(target_ts=at(16), overwrite_checkpoint_ts=Ts(at(2)))
    agree()


def cells(lives: Lives, table: str) -> list[tuple[Any, ...]]:
    return [(each["id"], each["t"], each["v"]) for each in lives.rows(table)]


def test_a_renamed_column_two_at_once_and_more_digits_twice(new_lives: MakeLives) -> None:
    create = "CREATE TABLE `shop`.`m` (`id` BIGINT PRIMARY KEY, `a` TIME(2), `b` TIME)"
    types = {"id": "bigint", "a": "time", "b": "time"}
    later = {"id": "bigint", "c": "time", "b": "time"}
    lives = play(
        new_lives(1, partitions=None),
        [
            ddl(at(0), "m", create, kind="CREATE"),
            row(at(1), "m", {"id": "1", "a": "01:00:00.25", "b": "-00:00:01"}, types),
            row(at(1), "m", {"id": "2", "a": None, "b": "838:59:59"}, types),
            ddl(at(2), "m", "ALTER TABLE `m` CHANGE COLUMN `a` `c` TIME(4), MODIFY `b` TIME(1)"),
            row(at(3), "m", {"id": "3", "c": "01:00:00.2500", "b": "-00:00:01.0"}, later),
            ddl(at(4), "m", "ALTER TABLE `m` MODIFY COLUMN `c` TIME(6), MODIFY `b` VARCHAR(20)"),
            *mark(at(9)),
        ],
    )
    assert lives.rows("m") == [
        {"id": 1, "c": "01:00:00.250000", "b": "-00:00:01.0"},
        {"id": 2, "c": None, "b": "838:59:59.0"},
        {"id": 3, "c": "01:00:00.250000", "b": "-00:00:01.0"},
    ]


UNTOLD = {"id": "bigint", "d": "datetime", "n": "datetime", "f": "double"}
TO_TEXT = "ALTER TABLE `shop`.`old` MODIFY COLUMN {} VARCHAR(30)"


def untold(n: int, id: int, *, d: str, null: str | None, f: str = "1.5") -> Message:
    return row(at(n), "old", {"id": f"{id}", "d": d, "n": null, "f": f}, UNTOLD)


def test_a_text_has_the_digits_that_the_newest_row_tells(new_lives: MakeLives) -> None:
    rows = [untold(1, 1, d="2024-01-01 00:00:00.500", null=None)]
    change = ddl(at(3), "old", TO_TEXT.format("`d`"))
    lives = play(new_lives(1, partitions=None), [*rows, *mark(at(2)), change, *mark(at(9))])
    assert [each["d"] for each in lives.rows("old")] == ["2024-01-01 00:00:00.500"]


def test_digits_that_nothing_tells_wait_for_an_operator_or_the_schema_file(
    new_lives: MakeLives,
) -> None:
    """It is a DATETIME that was NULL in the row that told the table."""
    lives = new_lives(1, partitions=None)
    moment = "2024-01-01 00:00:00"
    lives.produce([untold(1, 1, d=moment, null=f"{moment}.250")])
    lives.produce([untold(2, 2, d=moment, null=None), *mark(at(3))])
    lives.produce([ddl(at(4), "old", TO_TEXT.format("`n`")), *mark(at(9))])
    error = lives.live(target_ts=at(8))
    text = str(error)
    for part in ("shop.old", "column n", "number of digits of its fraction", "--schema-file"):
        assert part in text, text
    assert "tidelake ddl skip" in text
    assert [each["n"] for each in lives.rows("old")][1] is None
    file = (
        "USE shop; CREATE TABLE `old` (`id` bigint PRIMARY KEY, `d` datetime, `n` datetime(3), "
        "`f` double);"
    )
    lives.finish(target_ts=at(8), schema_text=file)
    assert [each["n"] for each in lives.rows("old")] == [f"{moment}.250", None]


@pytest.mark.parametrize(("f", "waits"), [("1.5", False), ("1.2345", True)])
def test_a_float_of_unknown_digits_waits_where_it_would_look_other(
    new_lives: MakeLives, f: str, waits: bool
) -> None:
    lives = new_lives(1, partitions=None)
    lives.produce([untold(1, 1, d="2024-01-01 00:00:00", null=None, f=f), *mark(at(2))])
    change = "ALTER TABLE `shop`.`old` MODIFY COLUMN `f` DOUBLE(30,2)"
    lives.produce([ddl(at(3), "old", change), *mark(at(9))])
    error = lives.live(target_ts=at(8))
    assert ("column f" in str(error)) is waits
    assert [each["f"] for each in lives.rows("old")] == [float(f)]


def test_unknown_digits_are_rounded_and_keys_found_again(new_lives: MakeLives) -> None:
    """In the newest row ``d`` is NULL; the TIME in the key is told by its value."""
    types = {"id": "bigint", "t": "time", "d": "datetime"}
    key = ("id", "t")

    def event(n: int, id: int, t: str, d: str | None, kind: str = "INSERT") -> Message:
        return row(at(n), "old", {"id": f"{id}", "t": t, "d": d}, types, kind=kind, key=key)

    change = "ALTER TABLE `shop`.`old` MODIFY `t` TIME(2) NOT NULL, CHANGE `d` `e` DATETIME"
    later = {"id": "1", "t": "08:00:00.50", "e": "2024-01-01 00:00:01"}
    lives = play(
        new_lives(1, partitions=None),
        [
            event(1, 1, "08:00:00.5", "2024-01-01 00:00:00.500000"),
            event(1, 2, "08:00:00.0", "2024-01-01 00:00:00.499999"),
            event(2, 3, "09:00:00.0", None),
            *mark(at(3)),
            ddl(at(4), "old", change),
            row(at(5), "old", later, types | {"e": "datetime"}, kind="DELETE", key=key),
            *mark(at(9)),
        ],
    )
    moment = datetime(2024, 1, 1)  # noqa: DTZ001
    assert lives.rows("old") == [
        {"id": 2, "t": "08:00:00.00", "e": moment}, {"id": 3, "t": "09:00:00.00", "e": None},
    ]  # fmt: skip
    assert not lives.dead_letters()


def test_the_schema_file_tells_names_too(new_lives: MakeLives) -> None:
    lives = new_lives(1, partitions=None)
    types = {"id": "bigint", "e": "enum", "s": "set"}
    lives.produce([row(at(1), "old", {"id": "1", "e": "1", "s": "3"}, types), *mark(at(2))])
    change = "ALTER TABLE `shop`.`old` MODIFY `e` ENUM('y','x'), MODIFY `s` VARCHAR(20)"
    lives.produce([ddl(at(4), "old", change), *mark(at(9))])
    assert "column s" in str(lives.live(target_ts=at(8)))
    assert lives.rows("old") == [{"id": 1, "e": "1", "s": "3"}]
    file = "USE shop; CREATE TABLE old (id BIGINT PRIMARY KEY, e ENUM('x','y'), s SET('b','a'))"
    lives.finish(target_ts=at(8), schema_text=file)
    assert lives.rows("old") == [{"id": 1, "e": "x", "s": "b,a"}]
