"""Column selectors and masks by tables and columns, in TiCDC's pattern language."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from conf.column_rules import ColumnMask, ColumnSelector, check_salt, told_masks, told_selectors
from conf.problems import SettingError
from conf.rows.event_filter import EventFilter
from conf.settings import Changefeed, DeltaSink, FilterSettings, TableRule
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from coordination.model import TableName
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.changefeed.target_forms import choice_of, hides, mask_salt, write_modes

T = TableName("shop", "orders")


def taken(columns: list[str], *names: str, matcher: str = "shop.*") -> list[str]:
    selector = ColumnSelector(matcher=(matcher,), columns=tuple(columns))
    choice = choice_of(T, (selector,), (), False)
    return [name for name in names if choice.takes(name)]


@pytest.mark.parametrize(
    ("columns", "left"),
    [
        (["*"], ["a", "b", "Ab", "c d"]),
        (["*", "!b"], ["a", "Ab", "c d"]),
        (["!b", "*"], ["a", "b", "Ab", "c d"]),
        (["a*"], ["a", "Ab"]),
        (["*", "!a?"], ["a", "b", "c d"]),
        (["`c d`", "[ab]"], ["a", "b", "c d"]),
        (["/^[ab]/", "!AB"], ["a", "b"]),
        (["!a"], []),
    ],
)
def test_the_last_pattern_that_matches_decides(columns: list[str], left: list[str]) -> None:
    assert taken(columns, "a", "b", "Ab", "c d") == left


def test_the_first_selector_that_takes_the_table_counts() -> None:
    one = ColumnSelector(matcher=("shop.o*",), columns=("a",))
    other = ColumnSelector(matcher=("*.*",), columns=("b",))
    choice = choice_of(T, (one, other), (), False)
    assert [name for name in "abc" if choice.takes(name)] == ["a"]
    assert choice_of(TableName("shop", "x"), (one,), (), False).is_all
    assert choice_of(T, (), (), False).takes("anything")


def test_the_first_mask_that_takes_the_column_counts() -> None:
    masks = (
        ColumnMask(matcher=("shop.*",), columns=("mail", "card*"), mask="sha256"),
        ColumnMask(matcher=("shop.orders",), columns=("*", "!id")),
    )
    choice = pickle.loads(pickle.dumps(choice_of(T, (), masks, False)))
    found = {name: choice.mask_of(name) for name in ("id", "mail", "CARD_no", "n")}
    assert found == {"id": "", "mail": "sha256", "CARD_no": "sha256", "n": "null"}
    sink = DeltaSink(warehouse="/w", column_masks=masks)
    hidden = hides(sink, case_sensitive=False)
    assert [hidden(T), hidden(None), hidden(TableName("other", "t"))] == [True, True, False]
    assert not hides(DeltaSink(warehouse="/w"), case_sensitive=False)(None)


@pytest.mark.parametrize("pattern", ["a.b", "", "!", "/a", "a b", "[a"])
def test_what_is_no_pattern_of_a_column_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"columns of sink\.column-selectors"):
        taken([pattern], "a")


def test_the_salt_is_a_reference_that_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match="give a reference to it"):
        check_salt("plain")
    (tmp_path / "salt").write_text("pepper\n")
    for reference in (f"${{file:{tmp_path}/salt}}", "${env:SALT}"):
        monkeypatch.setenv("SALT", "pepper")
        check_salt(reference)
        assert mask_salt(DeltaSink(warehouse="/w", mask_salt=reference)) == b"pepper"
    assert mask_salt(DeltaSink(warehouse="/w")) == b""
    monkeypatch.delenv("SALT")
    with pytest.raises(ConfigError, match="SALT"):
        mask_salt(DeltaSink(warehouse="/w", mask_salt="${env:SALT}"))


def test_rules_come_back_from_json() -> None:
    masks: list[dict[str, Any]] = [{"matcher": ["*.*"], "columns": ["a"], "mask": "sha256"}]
    assert told_masks(masks) == (ColumnMask(matcher=("*.*",), columns=("a",), mask="sha256"),)
    assert told_selectors([{"matcher": ["*.*"], "columns": ["a"]}]) == (
        ColumnSelector(matcher=("*.*",), columns=("a",)),
    )
    with pytest.raises(SettingError, match="no columns"):
        ColumnMask(matcher=("*.*",))


def expr(kind: str) -> EventFilter:
    return EventFilter(matcher=("shop.*",), **{f"ignore_{kind}_value_expr": "a > 1"})


@pytest.mark.parametrize(
    ("rule", "is_refused"),
    [
        (EventFilter(matcher=("shop.*",), ignore_event=("insert",)), True),
        (EventFilter(matcher=("shop.*",), ignore_event=("all dml",)), True),
        (EventFilter(matcher=("shop.*",), ignore_event=("delete", "truncate table")), False),
        (EventFilter(matcher=("other.*",), ignore_event=("update",)), False),
        (expr("insert"), True),
        (expr("update_old"), True),
        (expr("update_new"), True),
        (expr("delete"), False),
    ],
)
def test_rows_that_a_filter_leaves_out_are_not_counted(
    rule: EventFilter, *, is_refused: bool
) -> None:
    counted = TableRule(matcher=("shop.*",), key="rows")
    changefeed = Changefeed(
        id="f",
        source=parse_source_uri("mysql://reader@db:3306"),
        sink=DeltaSink(warehouse="lake", tables=(counted,)),
        filter=FilterSettings(event_filters=(rule,)),
    )
    forms = write_modes(changefeed)
    columns = (Column(name="a", type=MySQLType.parse("int")),)
    schema = forms.of(T).keyed(TableSchema(columns=columns, key=()))
    if is_refused:
        with pytest.raises(ConfigError, match=r"shop\.orders .*an event filter ignores"):
            forms.refuse(T, schema)
    else:
        forms.refuse(T, schema)
