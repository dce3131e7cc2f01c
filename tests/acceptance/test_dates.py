"""Dates that Delta does not have: one rule for all of them, in every place and every write mode
(docs/types.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from conf.settings import TableRule
from tests.acceptance.one_process import Lives
from tests.acceptance.reported import Texts, at, ddl, mark, play, recording, row
from tests.acceptance.small_tables import MakeLives
from tests.shop.feed import Message

pytestmark = pytest.mark.kafka

TYPES = {"id": "bigint", "d": "date", "dt": "datetime(3)", "ts": "timestamp", "v": "int"}
COLUMNS = "`id` BIGINT,`d` DATE NOT NULL,`dt` DATETIME(3),`ts` TIMESTAMP NOT NULL,`v` INT"
ZERO = ("0000-00-00", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00")
FEBRUARY = ("2021-02-31", "2021-02-31 10:00:00.000", "2021-02-30 23:59:59")
NO_DAY = ("2021-02-00", "2021-00-10 01:01:01.000", "2021-00-00 00:00:00")
YEAR_ZERO = ("0000-06-15", "0000-12-31 23:59:59.999", "0000-01-01 00:00:00")
GOOD = ("2020-01-02", "2020-01-02 03:04:05.678", "2020-01-02 03:04:05")
GOOD_CELLS = {
    "d": date(2020, 1, 2),
    "dt": datetime(2020, 1, 2, 3, 4, 5, 678000),  # noqa: DTZ001
    "ts": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
}
NULLS = dict.fromkeys(GOOD_CELLS)
MODES = {
    "up": TableRule(),
    "soft": TableRule(soft_delete=True),
    "hist": TableRule(write_mode="history"),
    "log": TableRule(write_mode="append"),
}


def made(table: str, key: str) -> Message:
    query = f"CREATE TABLE `shop`.`{table}` ({COLUMNS},PRIMARY KEY({key}))"
    return ddl(at(0), table, query, kind="CREATE")


def texts(id: int, dates: Sequence[str], v: int) -> Texts:
    return {"id": str(id), "v": str(v), **dict(zip(("d", "dt", "ts"), dates, strict=True))}


def change(
    n: int, table: str, kind: str, data: Texts, old: Texts | None = None, *key: str
) -> Message:
    return row(at(n), table, data, TYPES, kind=kind, old=old, key=key or ("id",))


def with_rules(lives: Lives, rules: Sequence[TableRule]) -> Lives:
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=tuple(rules))
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    return lives


def cells(lives: Lives, table: str, *names: str) -> list[dict[str, Any]]:
    return [{name: each[name] for name in (*TYPES, *names)} for each in lives.rows(table)]


def test_impossible_dates_and_the_year_0_are_null_and_no_row_is_lost(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("invalid-date"))
    assert lives.rows("bills") == [
        {"id": 1, "d": date(2021, 2, 28), "v": 5},
        {"id": 2, "d": None, "v": 7},
        {"id": 3, "d": None, "v": 3},
    ]
    assert lives.progress()["shop.bills"].null_dates in ({"d": 2}, {"d": 4})  # by the batches
    assert not lives.dead_letters()


def test_a_zero_date_in_a_key_is_a_row_like_others(new_lives: MakeLives) -> None:
    lives = play(new_lives(1, partitions=None), recording("zero-date-key"))
    assert lives.rows("bills") == [
        {"id": 1, "d": None, "v": 1},
        {"id": 2, "d": date(2024, 1, 1), "v": 2},
    ]
    assert lives.progress()["shop.bills"].null_dates == {"d": 1}
    assert not lives.dead_letters()


def rules_of(prefix: str) -> list[TableRule]:
    return [replace(each, matcher=(f"shop.{prefix}_{name}",)) for name, each in MODES.items()]


def test_every_kind_in_every_write_mode(new_lives: MakeLives) -> None:
    """In plain columns (``p_``), and zero dates in the key (``k_``)."""
    lives = with_rules(new_lives(1, partitions=None), [*rules_of("p"), *rules_of("k")])
    messages: list[Message] = []
    for mode in MODES:
        name = f"p_{mode}"
        messages.append(made(name, "`id`"))
        for id, dates in enumerate((ZERO, FEBRUARY, NO_DAY, YEAR_ZERO)):
            good, bad = texts(id, GOOD, 1), texts(id, dates, 2)
            messages += [
                change(1, name, "INSERT", good),
                change(2, name, "UPDATE", bad, good),
                change(3, name, "INSERT", texts(id + 10, dates, 3)),
                change(5, name, "UPDATE", texts(id, GOOD, 4), bad),
            ]
        name, key = f"k_{mode}", ("id", "d", "dt", "ts")
        zero, good = texts(1, ZERO, 1), texts(2, GOOD, 1)
        messages += [
            made(name, "`id`,`d`,`dt`,`ts`"),
            change(1, name, "INSERT", zero, None, *key),
            change(1, name, "INSERT", good, None, *key),
            change(1, name, "INSERT", texts(3, ZERO, 1), None, *key),
            change(2, name, "UPDATE", texts(1, ZERO, 2), zero, *key),
            change(5, name, "UPDATE", texts(2, ZERO, 3), good, *key),
            change(5, name, "DELETE", texts(3, ZERO, 1), None, *key),
            change(6, name, "INSERT", texts(4, FEBRUARY, 1), None, *key),
            change(6, name, "UPDATE", texts(1, FEBRUARY, 2), texts(1, ZERO, 2), *key),
        ]
    messages = sorted(messages, key=lambda each: each[2].split(b'"commitTs": ')[1])
    half = [each for each in messages if each[2].split(b'"commitTs": ')[1] < b"%d" % at(4)]
    lives.produce([*half, *mark(at(4))])
    lives.finish(target_ts=at(4) - 1)
    for mode in ("up", "soft"):
        found = {each["id"]: each for each in cells(lives, f"p_{mode}")}
        assert found == {
            id: {"id": id, **NULLS, "v": 2 if id < 10 else 3} for id in (0, 1, 2, 3, 10, 11, 12, 13)
        }
        assert {each["id"]: each["v"] for each in cells(lives, f"k_{mode}")} == {1: 2, 2: 1, 3: 1}
    lives.produce([*messages[len(half) :], *mark(at(9))])
    lives.finish(target_ts=at(9) - 1)

    found = {each["id"]: each for each in cells(lives, "p_up")}
    assert [found[id] for id in range(4)] == [{"id": id, **GOOD_CELLS, "v": 4} for id in range(4)]
    assert cells(lives, "k_up") == [{"id": 2, **NULLS, "v": 3}]
    flag = "_tidelake_deleted"
    gone = {(each["id"], each["d"], each[flag]) for each in cells(lives, "k_soft", flag)}
    assert gone == {
        (1, None, True), (2, None, False), (2, date(2020, 1, 2), True), (3, None, True)
    }  # fmt: skip
    ends = cells(lives, "k_hist", "_valid_from_ts", "_valid_to_ts")
    assert sorted((e["id"], e["v"], e["_valid_from_ts"], e["_valid_to_ts"] or 0) for e in ends) == [
        (1, 1, at(1), at(2)), (1, 2, at(2), at(6)), (2, 1, at(1), at(5)), (2, 3, at(5), 0),
        (3, 1, at(1), at(5)),
    ]  # fmt: skip
    assert len(lives.rows("k_log")) == 11  # 3 + 2 + 2 + 1 + 1 + 2
    assert len(lives.rows("p_log")) == 4 * 6
    progress = lives.progress()
    assert progress["shop.p_log"].null_dates == {"d": 12, "dt": 12, "ts": 12}
    assert all(progress[f"shop.{kind}_{mode}"].null_dates for mode in MODES for kind in "pk")
    letters = lives.dead_letters()
    assert len(letters) == 2 * 3  # a log has no key that could be merged
    assert {each["table_name"] for each in letters} == {"k_up", "k_soft", "k_hist"}
    assert all("'2021-02-31' is no date that Delta has" in each["message"] for each in letters)


def test_fail_makes_dead_letters_of_all_kinds(new_lives: MakeLives) -> None:
    kinds = (ZERO, FEBRUARY, NO_DAY, YEAR_ZERO)
    rows = [change(1, "t", "INSERT", texts(id, dates, 1)) for id, dates in enumerate(kinds)]
    good = change(1, "t", "INSERT", texts(9, GOOD, 1))
    messages = [made("t", "`id`"), *rows, good, *mark(at(3))]
    lives = play(new_lives(1, partitions=None), messages, zero_date="fail")
    assert cells(lives, "t") == [{"id": 9, **GOOD_CELLS, "v": 1}]
    assert len(lives.dead_letters()) == 4
    assert lives.progress()["shop.t"].null_dates == {}


def test_ddls_keep_the_rule(new_lives: MakeLives) -> None:
    """A default is NULL in old rows and counted; what was NULL for such a date is not taken for
    NULL by a conversion: the table stops there, and the others go on."""
    alter = "ALTER TABLE `shop`.`{}` {}"
    types = {"id": "bigint", "v": "int"}
    messages = [
        *(
            ddl(at(0), name, f"CREATE TABLE `{name}` (`id` BIGINT PRIMARY KEY,`v` INT)",
                kind="CREATE")
            for name in ("a", "b")
        ),
        *(row(at(1), name, {"id": "1", "v": "1"}, types) for name in ("a", "b")),
        ddl(at(2), "a", alter.format("a", "ADD COLUMN `d` DATE NOT NULL DEFAULT '0000-00-00'")),
        ddl(at(2), "b", alter.format("b", "ADD COLUMN `d` DATE NOT NULL DEFAULT '2020-01-02'")),
        ddl(at(3), "a", alter.format("a", "RENAME COLUMN `d` TO `day`")),
        ddl(at(4), "a", alter.format("a", "MODIFY COLUMN `day` DATETIME NOT NULL")),
        ddl(at(4), "b", alter.format("b", "MODIFY COLUMN `d` VARCHAR(30)")),
        *mark(at(5)),
        ddl(at(6), "a", alter.format("a", "MODIFY COLUMN `day` VARCHAR(30)")),
        *mark(at(7)),
    ]  # fmt: skip
    lives = new_lives(1, partitions=None)
    lives.produce(messages)
    life = lives.begin(target_ts=at(7) - 1)
    life.wait_until(lambda: any(row.state == "blocked" for row in lives.progress().values()))
    life.stop()
    assert lives.rows("a") == [{"id": 1, "v": 1, "day": None}]
    assert lives.rows("b") == [{"id": 1, "v": 1, "d": "2020-01-02"}]
    assert lives.progress()["shop.a"].null_dates == {"d": 1}
