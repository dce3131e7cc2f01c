"""A block-allow-list takes the same tables as in DM: its meaning written down, beside our rules."""

from __future__ import annotations

import random
import re

import pytest

from conf.problems import SettingError
from conf.settings import FilterSettings
from conf.task.block_allow_list import BlockAllowList
from conf.task.name_pattern import NamePattern
from coordination.model import TableName
from streaming.changefeed.filter import TableFilter

NAMES = ("shop", "shop-2", "Shop_3", "t1", "t10", "tmp_x", "a/b", "x!y", "[z", "größe")


def listed(**lists: object) -> BlockAllowList:
    return BlockAllowList(place="block-allow-list.a", case_sensitive=False, **lists)  # type: ignore[arg-type]


def takes(rules: tuple[str, ...], db: str, table: str) -> bool:
    return TableFilter(FilterSettings(rules=rules)).selects(TableName(db, table))


@pytest.mark.parametrize(
    ("lists", "rules"),
    [
        ({}, ("*.*",)),
        ({"do_dbs": ["shop", "~^t\\d+$"]}, ("shop.*", "/^t\\d+$/.*")),
        ({"ignore_dbs": ["tmp*"]}, ("*.*", "!tmp*.*")),
        # Who names databases to take has named those to leave: ignore-dbs is not looked at.
        ({"do_dbs": ["shop"], "ignore_dbs": ["shop"]}, ("shop.*",)),
        ({"do_tables": [("shop", "t?")]}, ("shop.t?",)),
        ({"ignore_tables": [("shop", "t1")]}, ("*.*", "!shop.t1")),
        # A table that is named to be taken is taken, and no other one is.
        ({"do_tables": [("shop", "t1")], "ignore_tables": [("shop", "*")]}, ("shop.t1",)),
        ({"do_dbs": ["shop"], "ignore_tables": [("shop", "t1")]}, ("shop.*", "!shop.t1")),
        ({"do_dbs": ["sh*"], "do_tables": [("shop", "t1"), ("x", "t1")]}, ("shop.t1",)),
        ({"do_dbs": ["shop", "x"], "do_tables": [("*", "t1")]}, ("shop.t1", "x.t1")),
        ({"do_tables": [("a", "*")], "ignore_dbs": ["a"]}, ("a.*", "!a.*")),
    ],
)
def test_rules(lists: dict[str, object], rules: tuple[str, ...]) -> None:
    assert listed(**lists).rules() == rules


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({"do_dbs": ["a*b"]}, "a * stands only at the end"),
        ({"do_dbs": ["~("]}, "is not a regular expression"),
        ({"do_tables": [("", "t")]}, "do-tables: db-name must not be empty"),
        ({"do_dbs": ["a*"], "do_tables": [("?b", "t")]}, "are both patterns"),
        ({"do_dbs": ["a"], "do_tables": [("b", "t")]}, "no table of do-tables is in a database"),
    ],
)
def test_what_is_refused(lists: dict[str, object], says: str) -> None:
    with pytest.raises(SettingError, match=re.escape(says)):
        listed(**lists).rules()


@pytest.mark.parametrize(
    "text", ["shop*", "t?", "[s-t]*", "[!s]*", "x!y", "[z", "a/b", "größe", "~^T\\d", "~a/b", "~/"]
)
def test_a_pattern_means_the_same_as_a_rule(text: str) -> None:
    pattern = NamePattern.of_list(text, "do-dbs")
    for name in NAMES:
        assert takes((f"{pattern.rule}.*",), name, "t") == pattern.takes(name), (text, name)


@pytest.mark.parametrize("seed", range(200))
def test_random_lists_take_what_dm_takes(seed: int) -> None:
    chosen = random.Random(seed)
    texts = [*NAMES, "sh*", "t1*", "~^t", "*", "tmp?x"]
    tables = [(chosen.choice(texts), chosen.choice(texts)) for _ in range(4)]
    lists = {
        "do_dbs": chosen.sample(NAMES, chosen.choice([0, 3])),
        "ignore_dbs": chosen.sample(texts, chosen.choice([0, 2])),
        "do_tables": tables[: chosen.choice([0, 2])],
        "ignore_tables": tables[2 : chosen.choice([2, 4])],
    }
    try:
        rules = listed(**lists).rules()
    except SettingError as error:
        assert "no table of do-tables" in str(error)  # noqa: PT017
        rules = ("!*.*",)
    for db in NAMES:
        for table in NAMES:
            assert takes(rules, db, table) == in_dm(lists, db, table), (lists, db, table)


def in_dm(lists: dict[str, list], db: str, table: str) -> bool:
    """DM's order of questions."""

    def is_in(key: str, *names: str) -> bool:
        rows = [(each,) if isinstance(each, str) else each for each in lists[key]]
        return any(
            all(NamePattern.of_list(p, key).takes(n) for p, n in zip(row, names, strict=True))
            for row in rows
        )

    if lists["do_dbs"]:
        if not is_in("do_dbs", db):
            return False
    elif is_in("ignore_dbs", db):
        return False
    if lists["do_tables"]:
        return is_in("do_tables", db, table)
    return not is_in("ignore_tables", db, table)
