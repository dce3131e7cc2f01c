"""Conditions mean what they mean in SQL: a MariaDB evaluates random ones on the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from conf.rows.conditions import read_condition
from coordination.errors import ConfigError, TidelakeError
from sinks.types.casts.columns import cast_column
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastRules
from streaming.apply.values.conditions import TypedColumn, holds
from tests.services.database_server import DatabaseServer

RULES = CastRules(time_zone="Asia/Shanghai", zero_date="null")
TYPES = {
    "i": "int", "j": "tinyint", "u": "bigint unsigned", "m": "decimal(12,3)",
    "d": "double", "f": "float", "t": "varchar(20)", "s": "varchar(20)", "b": "varbinary(10)",
    "e": "enum('new','old','Old')", "day": "date", "at": "datetime(3)", "ts": "timestamp(2)",
    "y": "year", "w": "bit(5)",
}  # fmt: skip
NUMBERS = ("0", "1", "-1", "2", "7", "100", "1.5", "-0.001", "2.250", "1e2", "'7'", "'1.5'")
TEXTS = ("''", "'a'", "'A'", "'a '", "'ab'", "'it''s'", "'é'", "'10'", "'%'", "'a\\\\b'")
DAYS = ("'2024-02-29'", "'2026-01-31'", "'1999-12-31 23:59:59'", "'2026-01-31 09:30:00.25'")
PATTERNS = ("'a%'", "'%'", "'_'", "'%b'", "'a\\\\%'", "'é'", "''", "'%\\\\_%'", "'A_'")
CONSTANTS = {
    **dict.fromkeys("ijumdfw", NUMBERS),
    **dict.fromkeys("ts", TEXTS),
    "b": TEXTS,
    "e": ("'new'", "'old'", "'Old'", "'none'"),
    **dict.fromkeys(("day", "at", "ts"), DAYS),
    "y": ("1999", "2026", "'2024'"),
}
ALIKE = ("ijumdfw", "ts", ("day", "at"))
TOKENS = ("a", "A", "ab", "a ", "b", "é", "10", "it's", "", "%", "a_b", "a\\b")


def column(name: str) -> Column:
    return Column(name=name, type=MySQLType.parse(TYPES[name]))


def value(dice: random.Random, name: str) -> str | None:
    """As a text that both MariaDB and the casts read; None: NULL."""
    if dice.random() < 0.15:
        return None
    day = dice.choice(["1999-12-31", "2024-02-29", "2026-01-31"])
    makes: dict[str, Callable[[], Any]] = {
        "i": lambda: dice.choice([0, 1, -1, 2, 7, 100, 2**31 - 1]),
        "j": lambda: dice.choice([0, 1, -1, 2, 7, 100]),
        "u": lambda: dice.choice([0, 1, 2, 7, 2**63, 2**64 - 1]),
        "m": lambda: f"{dice.choice([0, 1, -1, 1.5, 2.25, 7, 100, -0.001]):.3f}",
        "d": lambda: dice.choice([0.0, 1.5, -1.0, 7.0, 1e2, 0.1]),
        "f": lambda: dice.choice([0.0, 1.5, -1.0, 7.0, 100.0, 2.25]),
        "t": lambda: dice.choice(TOKENS),
        "s": lambda: dice.choice(TOKENS),
        "b": lambda: dice.choice(["a", "A", "a ", "ab", "10", ""]),
        "e": lambda: dice.choice(["new", "old", "Old"]),
        "day": lambda: day,
        "at": lambda: f"{day} {dice.choice(['00:00:00.000', '09:30:00.250', '23:59:59.000'])}",
        "ts": lambda: f"{day} {dice.choice(['00:00:00.00', '09:30:00.25', '23:59:59.00'])}",
        "y": lambda: dice.choice([1999, 2024, 2026]),
        "w": lambda: dice.choice([0, 1, 2, 7, 31]),
    }
    return str(makes[name]())


def condition(dice: random.Random, depth: int = 0) -> str:  # noqa: PLR0911 - one per kind
    kind = dice.random()
    if depth < 3 and kind < 0.35:
        op = dice.choice(["AND", "OR", "XOR", "AND", "OR"])
        return f"{condition(dice, depth + 1)} {op} {condition(dice, depth + 1)}"
    if depth < 3 and kind < 0.45:
        return f"NOT ({condition(dice, depth + 1)})"
    if depth < 3 and kind < 0.5:
        is_what = dice.choice(["TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT UNKNOWN"])
        return f"({condition(dice, depth + 1)}) IS {is_what}"
    name = dice.choice(list(TYPES))
    constants, op = CONSTANTS[name], dice.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
    if kind < 0.55:
        return f"`{name}` IS {dice.choice(['', 'NOT '])}NULL"
    if kind < 0.62:
        some = ", ".join(dice.choices([*constants, "NULL"], k=3))
        return f"`{name}` {dice.choice(['', 'NOT '])}IN ({some})"
    if kind < 0.69:
        low, high = dice.choices(constants, k=2)
        return f"`{name}` {dice.choice(['', 'NOT '])}BETWEEN {low} AND {high}"
    if kind < 0.76:
        return f"`{dice.choice('ts')}` {dice.choice(['', 'NOT '])}LIKE {dice.choice(PATTERNS)}"
    if kind < 0.83:
        one, other = dice.choices(dice.choice(ALIKE), k=2)
        return f"`{one}` {op} `{other}`"
    if kind < 0.9:
        calculated = dice.choice(["`i` % 2", "`j` + 1", "`i` DIV `j`", "-`j`", "`j` * `j` - 3"])
        return f"{calculated} {op} {dice.choice(['0', '1', '-1', '`i`', '1.5'])}"
    sides = [f"`{name}`", dice.choice([*constants, "NULL"])]
    return f" {op} ".join(sides if dice.random() < 0.8 else sides[::-1])


@pytest.mark.mariadb
def test_random_conditions_are_as_a_server_evaluates_them(mariadb: DatabaseServer) -> None:
    """Texts have a collation that compares bytes and passes over blanks at the end, as TiDB's
    default does."""
    dice = random.Random(31)
    rows = [{name: value(dice, name) for name in TYPES} for _ in range(60)]
    conditions = [condition(dice) for _ in range(400)]
    binary = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    with (
        mariadb.database("asked", binary) as schema,
        mariadb.connect(database=schema) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("SET time_zone = '+08:00'")
        kinds = ", ".join(f"`{name}` {kind} NULL" for name, kind in TYPES.items())
        cursor.execute(f"CREATE TABLE t (n INT PRIMARY KEY, {kinds})")
        marks = ", ".join(["%s"] * (1 + len(TYPES)))
        typed = [{**row, "w": None if row["w"] is None else int(row["w"])} for row in rows]
        given = [(n, *(row[name] for name in TYPES)) for n, row in enumerate(typed)]
        cursor.executemany(f"INSERT INTO t VALUES ({marks})", given)
        asked = ", ".join(f"({each})" for each in conditions).replace("%", "%%")
        cursor.execute(f"SELECT {asked} FROM t ORDER BY n", ())
        answers = list(zip(*cursor.fetchall(), strict=True))
    columns = dict(typed_columns(rows))
    for text, answer in zip(conditions, answers, strict=True):
        found = holds(read_condition(text), columns, len(rows), RULES).to_pylist()
        wanted = [None if each is None else bool(each) for each in answer]
        wrong = [n for n in range(len(rows)) if found[n] != wanted[n]]
        assert not wrong, (text, rows[wrong[0]], found[wrong[0]], wanted[wrong[0]])


def typed_columns(rows: list[dict[str, str | None]]) -> Iterator[tuple[str, TypedColumn]]:
    for name in TYPES:
        of = column(name)
        texts = [row[name] for row in rows]
        if name == "e":
            places = {"new": "1", "old": "2", "Old": "3", None: None}
            texts = [places[each] for each in texts]
        cast = cast_column(pa.array(texts, pa.string()), of, RULES)
        assert cast.failed is None, name
        yield name, TypedColumn(of, cast.values)


ONE = [{**dict.fromkeys(TYPES, "1"), "day": None, "at": None, "ts": None, "y": "2026", "e": "new"}]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("t = 1", "at character 5: column t is no number: write the constant in quotes"),
        ("i = 'x'", "at character 5: column i is a number, and this is none"),
        ("day > '2021-02-31'", "at character 7: column day is a date or a time"),
        ("day = 20260131", "column day is no number"),
        ("y = 26", "at character 5: write a year with four digits"),
        ("i = t", "at character 3: columns i and t are not compared: their types differ"),
        ("at = ts", "columns at and ts are not compared"),
        ("u + 1 > 0", "whole numbers below 2^63 alone, and column u"),
        ("i + 1.5 > 0", "only whole numbers are calculated with"),
        ("1 = 2", "it compares two constants"),
        ("i LIKE '1'", "LIKE wants a text, and column i is none"),
    ],
)
def test_types_that_do_not_go_together_are_refused(text: str, told: str) -> None:
    rows = [{**row, "day": "2026-01-31", "at": None, "ts": None} for row in ONE]
    with pytest.raises(ConfigError, match="at character") as refused:
        holds(read_condition(text), dict(typed_columns(rows)), 1, RULES)
    assert told in str(refused.value)


def test_a_result_out_of_range_is_an_error_as_in_mysql() -> None:
    columns = dict(typed_columns(ONE))
    for text in ("i * 9223372036854775807 * 2 > 0", "w - 2 < 5", "y - 3000 < 0"):
        with pytest.raises(TidelakeError, match="out of range"):
            holds(read_condition(text), columns, 1, RULES)


def test_a_decimal_without_digits_and_json_are_only_asked_for_null() -> None:
    for kind in ("json", "time", "decimal", "point", "uuid"):
        of = Column(name="c", type=MySQLType.parse(kind).as_untold())
        columns = {"c": TypedColumn(of, pa.array([None, "1"]))}
        asked = holds(read_condition("c IS NULL"), columns, 2, RULES)
        assert asked.to_pylist() == [True, False]
        with pytest.raises(ConfigError, match="ask IS NULL alone"):
            holds(read_condition("c = 'x'"), columns, 2, RULES)
