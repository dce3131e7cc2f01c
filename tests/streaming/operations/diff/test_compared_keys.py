"""Keys by which a database's rows are found again in the lake: of any type, of several columns, of
all."""

from __future__ import annotations

import pytest

from sinks.target.write_mode import WriteMode
from tests.streaming.operations.diff.rig import Rig

pytestmark = pytest.mark.mariadb


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("VARCHAR(20) COLLATE utf8mb4_general_ci", ["'a'", "'B'", "'é'", "''", "'A b'", "'ß'"]),
        ("VARBINARY(20)", ["'a'", "''", "0x00", "0xff00", "'A'"]),
        ("DECIMAL(30,10)", ["0", "-1.5", "99999999999.0000000001", "1.5"]),
        ("DATETIME(6)", ["'2020-01-01'", "'9999-12-31 23:59:59.999999'", "'2020-01-01 00:00:01'"]),
        ("TIMESTAMP(3)", ["'2020-01-01'", "'2038-01-01 00:00:00.123'", "'1990-06-01'"]),
        ("DATE", ["'2020-01-01'", "'0001-01-01'", "'0000-00-00'"]),
        ("TIME(2)", ["'-838:59:59'", "'00:00:00.01'", "'120:00:00'"]),
        ("DOUBLE", ["0.1", "-1e300", "3"]),
        ("FLOAT", ["0.1", "3333333.25", "-1e30"]),
        ("SET('b','a')", ["'a'", "'a,b'", "''"]),
        ("VARCHAR(20) CHARACTER SET latin1", ["'a'", "'é'", "'€'"]),
        ("CHAR(5) CHARACTER SET gbk", ["'中文'", "'a'", "''"]),
        ("BINARY(4)", ["'a'", "0x00"]),
        ("BIT(40)", ["1", "255", "1099511627775"]),
        ("ENUM('z','a')", ["'z'", "'a'"]),
        ("YEAR", ["0", "1999", "2155"]),
        ("BIGINT UNSIGNED", ["0", "18446744073709551615"]),
    ],
)
def test_keys_of_any_type_are_found_again(rig: Rig, key: str, values: list[str]) -> None:
    rig.sql(
        f"CREATE TABLE t (k {key} PRIMARY KEY, v INT) CHARACTER SET utf8mb4",
        *(f"INSERT INTO t VALUES ({value}, {at})" for at, value in enumerate(values)),
    )
    rig.make("t")
    rig.copy("t")
    assert rig.one("t", chunk_rows=1).result == "equal"
    rig.sql("UPDATE t SET v = v + 100")
    rig.passed("t", rig.log.ends(["binlog"]))
    found = rig.one("t", chunk_rows=2)
    assert (found.differing, found.open_rows) == (len(values), 0)
    assert {row.kind for row in found.rows} == {"changed"}


def test_a_key_of_several_columns(rig: Rig) -> None:
    rig.sql(
        "CREATE TABLE t (a INT, b VARCHAR(9), c INT, v INT, PRIMARY KEY (a, b, c))",
        "INSERT INTO t SELECT seq % 7, CONCAT('k', seq % 5), seq, seq FROM seq_1_to_500",
    )
    rig.make("t")
    rig.copy("t")
    assert rig.one("t", chunk_rows=13).result == "equal"
    rig.sql("DELETE FROM t WHERE c IN (3, 500)", "INSERT INTO t VALUES (1, 'k1', 9999, 0)")
    rig.passed("t", rig.log.ends(["binlog"]))
    found = rig.one("t", chunk_rows=13)
    assert sorted((row.kind, row.key["c"]) for row in found.rows) == [
        ("extra", 3),
        ("extra", 500),
        ("missing", 9999),
    ]


def test_a_table_by_all_its_columns(rig: Rig) -> None:
    rig.sql(
        "CREATE TABLE t (a INT, b VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, 'y'), (2, NULL)",
    )
    rig.make("t", form=WriteMode(all_columns=True))
    rig.copy("t")
    assert rig.one("t").result == "equal as a set"
    rig.sql("DELETE FROM t WHERE a IS NULL", "INSERT INTO t VALUES (NULL, NULL)")
    rig.passed("t", rig.log.ends(["binlog"]))
    found = rig.one("t")
    assert {(row.kind, row.key["a"], row.key["b"]) for row in found.rows} == {
        ("extra", None, "y"),
        ("missing", None, None),
    }
