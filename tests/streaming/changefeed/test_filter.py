"""TiCDC's filter: its pattern language, its rules of precedence, its event names."""

from __future__ import annotations

import pytest

from conf.files.event_types import ROW_EVENTS
from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings, TableRule
from coordination.errors import ConfigError
from coordination.model import TableName
from sinks.target.write_mode import UPSERT
from streaming.changefeed.filter import SYSTEM_SCHEMAS, TableFilter
from streaming.changefeed.target_forms import WriteModes


def _selects(rules: tuple[str, ...], name: str, *, case_sensitive: bool = False) -> bool:
    schema, _, table = name.partition("|")
    settings = FilterSettings(rules=rules, case_sensitive=case_sensitive)
    return TableFilter(settings).selects(TableName(schema, table))


@pytest.mark.parametrize(
    ("rules", "taken", "not_taken"),
    [
        (("*.*",), ["a|b", "中|文"], ["mysql|user"]),
        ((), ["a|b"], ["sys|x"]),
        (("shop.orders",), ["shop|orders", "SHOP|Orders"], ["shop|orders2", "shop|order"]),
        (("shop.*",), ["shop|x"], ["shop2|x", "ashop|x"]),
        (("  shop.a  ", "# shop.b", ""), ["shop|a"], ["shop|b"]),
        (("s?op.t_?",), ["shop|t_1", "s1op|t_x"], ["sop|t_1", "shop|t_"]),
        (("db[0-9].t[a-c]",), ["db1|tb"], ["dbx|tb", "db1|td", "db12|ta"]),
        (("db[!0-9].t",), ["dbx|t"], ["db1|t"]),
        (("d[^b].t",), ["d^|t", "db|t"], ["dx|t"]),
        ((r"d[\]a].t",), ["d]|t", "da|t"], ["db|t"]),
        ((r"a\.b.c\*d",), ["a.b|c*d"], ["a|b", "a.b|cxd"]),
        (("`a.b*`.`x``y`",), ["a.b*|x`y"], ["a.bc|x`y"]),
        (('"a ""q""".t',), ['a "q"|t'], ["a|t"]),
        (("/^a[0-9]+$/.*",), ["a12|x"], ["ba12|x", "a|x"]),
        (("/b/./t$/",), ["abc|xt"], ["ac|xt", "abc|tx"]),
        ((r"/^\w+$/.t",), ["a_1|t"], ["中|t"]),
        ((r"/^\W+$/.t",), ["中|t", "-|t"], ["a|t", "K|t", "_|t"]),
        ((r"/^\D+$/.t",), ["٣|t"], ["3|t"]),
        ((r"/^[\d\s-]\S$/.t",), ["3\u2003|t"], ["3 |t", "٣a|t"]),
        ((r"/\bfoo\B/.t",), ["中foos|t"], ["afoos|t", "foo中|t"]),
        ((r"/a\/b/.t",), ["a/b|t"], ["ab|t"]),
        (("订单.表_*",), ["订单|表_1"], ["订|表_1"]),
        (("s$_.t",), ["s$_|t"], ["s|t"]),
        (("shop.*", "!shop.tmp"), ["shop|a"], ["shop|tmp"]),
        (("!shop.tmp", "shop.*"), ["shop|tmp"], []),
        (("*.*", "!shop.*", "shop.a"), ["x|y", "shop|a"], ["shop|b"]),
        (("!shop.a",), [], ["shop|a", "shop|b"]),
        ((".t",), [], ["shop|t"]),
        (("*.*", "!*.*"), [], ["a|b"]),
    ],
)
def test_rules(rules: tuple[str, ...], taken: list[str], not_taken: list[str]) -> None:
    assert [name for name in taken + not_taken if _selects(rules, name)] == taken


@pytest.mark.parametrize(
    "rule", ["shop.Orders", "/SHOP/.Orders", "[r-t]hop.Orders", '"shop".Orders']
)
def test_case_counts_only_where_the_user_says_so(rule: str) -> None:
    assert _selects((rule,), "SHOP|ORDERS")
    assert not _selects((rule,), "sHoP|ORDERS", case_sensitive=True)


@pytest.mark.parametrize("schema", sorted(SYSTEM_SCHEMAS))
def test_system_schemas_are_never_taken(schema: str) -> None:
    assert not _selects((f"{schema}.*", "*.*"), f"{schema}|t")
    assert not _selects(("*.*",), f"{schema.upper()}|t", case_sensitive=True)


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (("shop.orders",), True),
        (("other.*",), False),
        (("shop.*", "!shop.orders"), True),
        (("shop.*", "!shop.*"), False),
    ],
)
def test_a_schema_is_taken_where_a_table_of_it_can_be(rules: tuple[str, ...], taken: bool) -> None:
    assert _selects(rules, "shop|") == taken


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("shop", "a point"),
        ("shop.", "pattern is missing"),
        ("!", "pattern is missing"),
        ("a.b.c", "nothing may follow"),
        ("`a`b.c", "a point"),
        ("/a.b", "has no end"),
        ("/a(/.b", "cannot be read"),
        ("/[[:alpha:]]/.b", "cannot be read"),
        (r"/[\W]/.b", r"cannot be read: \W in brackets"),
        ('"a.b', "has no end"),
        ("``.b", "has no end"),
        ("a[b.c", "range"),
        ("a[z-a].c", "cannot be read"),
        ("a\\n.c", "no escape"),
        ("a.c\\", "no escape"),
        ("a-b.c", "quotes"),
        ("a b.c", "quotes"),
        ("@rules.txt", "file"),
    ],
)
def test_a_bad_rule_is_quoted(rule: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableFilter(FilterSettings(rules=(rule,)))
    assert repr(rule) in str(error.value)
    assert why in str(error.value)
    event_filter = EventFilter(matcher=(rule,))
    with pytest.raises(ConfigError):
        TableFilter(FilterSettings(event_filters=(event_filter,)))


def _events(*event_filters: EventFilter) -> TableFilter:
    return TableFilter(FilterSettings(event_filters=event_filters))


ORDERS = TableName("shop", "Orders")


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        (("insert",), {"insert"}),
        (("update", "delete"), {"update", "delete"}),
        (("Delete ",), {"delete"}),
        (("all dml",), frozenset(ROW_EVENTS)),
        (("all",), frozenset(ROW_EVENTS)),
        (("all ddl", "drop table"), set()),
        (("none", "insert"), set()),
        (("insert", "none dml", "update"), {"insert"}),
        ((), set()),
    ],
)
def test_row_events(ignored: tuple[str, ...], expected: set[str]) -> None:
    events = _events(EventFilter(matcher=("shop.orders",), ignore_event=ignored))
    assert events.ignored_row_events(ORDERS) == expected
    assert events.ignored_row_events(TableName("shop", "other")) == frozenset()


def test_event_filters_of_one_table_add_up() -> None:
    events = _events(
        EventFilter(matcher=("shop.*",), ignore_event=("delete",)),
        EventFilter(matcher=("*.*", "!shop.x"), ignore_event=("update",)),
    )
    assert events.ignored_row_events(ORDERS) == {"update", "delete"}
    assert events.ignored_row_events(TableName("shop", "x")) == {"delete"}


@pytest.mark.parametrize(
    ("ignored", "events", "expected"),
    [
        (("drop table",), ("drop table",), True),
        (("drop table",), ("truncate table",), False),
        (("alter table",), ("add column", "alter table"), True),
        (("add column",), ("add column", "alter table"), True),
        (("add column",), ("multi schema change", "alter table"), False),
        (("drop schema",), ("drop database",), True),
        (("drop database",), ("drop database", "drop schema"), True),
        (("all ddl",), ("rename table",), True),
        (("all ddl",), (), True),
        (("all",), (), True),
        (("all dml",), ("rename table",), False),
        (("none ddl", "all"), ("rename table",), False),
        (("incompatible ddl changes",), ("drop column", "alter table"), True),
        (("incompatible ddl changes",), ("create table",), False),
        (("insert",), (), False),
    ],
)
def test_ddls_by_event(ignored: tuple[str, ...], events: tuple[str, ...], expected: bool) -> None:
    table_filter = _events(EventFilter(matcher=("shop.*",), ignore_event=ignored))
    assert table_filter.ignores_ddl(ORDERS, events, "x") == expected
    assert table_filter.ignores_ddl(TableName("shop", ""), events, "x") == expected
    assert not table_filter.ignores_ddl(TableName("other", "t"), events, "x")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("^drop table",), True),
        (("^TABLE",), False),
        (("nothing", r"old_\d+`"), True),
        ((), False),
    ],
)
def test_ddls_by_sql(patterns: tuple[str, ...], expected: bool) -> None:
    table_filter = _events(EventFilter(matcher=("*.*",), ignore_sql=patterns))
    query = "DROP TABLE `shop`.`old_17`"
    assert table_filter.ignores_ddl(ORDERS, ("drop table",), query) == expected
    assert table_filter.ignored_row_events(ORDERS) == frozenset()


@pytest.mark.parametrize("event", ["drop", "", "insert,update", "alter table option"])
def test_an_unknown_event_is_quoted(event: str) -> None:
    with pytest.raises(ConfigError, match=f"ignore-event {event!r}"):
        _events(EventFilter(matcher=("*.*",), ignore_event=(event,)))


@pytest.mark.parametrize("pattern", ["(", "[[:digit:]]", r"\pL", "a**"])
def test_a_bad_sql_pattern_is_quoted(pattern: str) -> None:
    with pytest.raises(ConfigError) as error:
        _events(EventFilter(matcher=("*.*",), ignore_sql=(pattern,)))
    assert repr(pattern) in str(error.value)


def test_the_first_rule_that_matches_says_how_a_table_is_written() -> None:
    rules = (
        TableRule(matcher=("shop.*", "!shop.orders"), write_mode="append"),
        TableRule(matcher=("shop.orders", "*.log"), write_mode="upsert"),
        TableRule(matcher=("*.*",), write_mode="append"),
    )
    names = [TableName(*name.split(".")) for name in ("shop.a", "SHOP.Orders", "x.log", "x.y")]
    modes = [WriteModes(rules).of(name).mode for name in names]
    assert modes == ["append", "upsert", "upsert", "append"]
    case_sensitive = WriteModes(rules, case_sensitive=True)
    assert case_sensitive.of(TableName("SHOP", "Orders")).is_log
    assert WriteModes().of(TableName("shop", "a")) == UPSERT
    with pytest.raises(ConfigError, match=r"matcher of sink\.tables 'shop': a point must part"):
        WriteModes((TableRule(matcher=("shop",)),))
