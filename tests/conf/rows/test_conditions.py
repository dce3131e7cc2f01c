"""Conditions are read with MySQL's precedence, and what is not read is refused with its place."""

from __future__ import annotations

from decimal import Decimal

import pytest

from conf.problems import SettingError
from conf.rows.conditions import (
    Arithmetic,
    Compare,
    Constant,
    Is,
    IsNull,
    Like,
    Logic,
    Name,
    Not,
    Truth,
    columns_of,
    read_condition,
)


def shown(node: object) -> str:  # noqa: PLR0911 - one per kind
    match node:
        case Name(text=text):
            return text
        case Constant(value=value):
            return repr(value)
        case Arithmetic() | Compare():
            return f"({shown(node.left)} {node.op} {shown(node.right)})"
        case Logic():
            return "(" + f" {node.op} ".join(shown(each) for each in node.parts) + ")"
        case Not():
            return f"(NOT {shown(node.condition)})"
        case Is():
            return f"({shown(node.condition)} IS {node.truth})"
        case IsNull():
            return f"({shown(node.value)} IS NULL)"
        case Like():
            return f"({shown(node.value)} LIKE {node.pattern!r} {node.escape!r})"
        case Truth(value=value):
            return str(value).upper()
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a=1 OR b=2 AND c=3", "((a = 1) OR ((b = 2) AND (c = 3)))"),
        ("a=1 xor b=2 and c=3 || d=4", "(((a = 1) XOR ((b = 2) AND (c = 3))) OR (d = 4))"),
        ("not a = 1 and b != 2", "((NOT (a = 1)) AND (b <> 2))"),
        ("NOT a IS NULL", "(NOT (a IS NULL))"),
        ("a is not null && b <=> null", "((NOT (a IS NULL)) AND (b <=> None))"),
        ("(a > 1) IS NOT TRUE", "(NOT ((a > 1) IS True))"),
        ("a in (1, 2.5, 'x')", "((a = 1) OR (a = Decimal('2.5')) OR (a = 'x'))"),
        ("a not between 1 and 2 and b", None),
        ("a not between 1 and -2", "(NOT ((a >= 1) AND (a <= -2)))"),
        ("a + 2 * b % 3 - 1 < 1e2", "(((a + ((2 * b) % 3)) - 1) < 100.0)"),
        ("-a DIV 2 = 1", "(((0 - a) DIV 2) = 1)"),
        ("`a``b` like 'x\\_%' escape '|'", "(a`b LIKE 'x\\\\_%' '|')"),
        ("n = 'it''s' or n = \"a\\n\"", "((n = \"it's\") OR (n = 'a\\n'))"),
        ("d >= DATE '2026-01-31'", "(d >= '2026-01-31')"),
        ("名 = '值'", "(名 = '值')"),
        ("true", "TRUE"),
        ("a = true", "(a = 1)"),
    ],
)
def test_what_binds_tighter_is_read_first(text: str, read: str | None) -> None:
    if read is None:
        with pytest.raises(SettingError, match="a value stands where a condition must"):
            read_condition(text)
    else:
        assert shown(read_condition(text)) == read


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a >", "at character 4 (the end): a value is missing here"),
        ("lower(a) = 'x'", "at character 1 (lower(a) = 'x'): the function lower is not known"),
        ("a", "at character 1 (a): a value stands where a condition must, such as c <> 0"),
        ("a = 1 = 1", "at character 3 (= 1 = 1): a condition stands where a value must"),
        ("t.a = 1", "at character 1 (t.a = 1): name the column alone"),
        ("a = 1; drop", "at character 6 (; drop): this is not read here"),
        ("a = 1 b = 2", "at character 7 (b = 2): this is not read here"),
        ("a / 2 = 1", "at character 3 (/ 2 = 1): this is not read here"),
        ("a regexp 'x'", "at character 3 (regexp 'x'): this is not read here"),
        ("case when a then 1 end", "at character 1 (case when a then 1 e): CASE is not read"),
        ("a = 'open", "at character 5 ('open): this is not read here"),
        ("a like b", "at character 8 (b): the pattern of LIKE must be a text"),
        ("a in ()", "at character 7 ()): a value is missing here"),
        ("(a = 1", "at character 7 (the end): ) is missing here"),
        ("(" * 60 + "a", "it is nested more than 50 deep"),
        ("a = " + "9" * 39, "a number has at most 38 digits"),
        ("a is 1", "at character 6 (1): NULL, TRUE, FALSE or UNKNOWN must stand"),
    ],
)
def test_what_is_not_read_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_condition(text)
    assert told in str(refused.value)


def test_a_long_list_is_flat() -> None:
    found = read_condition(f"a IN ({', '.join(map(str, range(5000)))})")
    assert len({name.text for name in columns_of(found)}) == 1
    assert isinstance(read_condition("1.50 = a"), Compare)
    assert read_condition("a = 1.50").right == Constant(5, Decimal("1.50"))  # type: ignore[union-attr]
