"""A DDL that a sender sends again: in an at-least-once changefeed it gets a new commit-ts."""

from __future__ import annotations

import pytest

from sinks.types.table_schema import TableSchema
from tests.streaming.owner.ddl.test_plan import create, ddl, planned

CREATED = ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, c INT, d VARCHAR(9), e INT, UNIQUE u (e))")


def schema() -> TableSchema:
    (creation,) = planned([CREATED]).creations
    found: TableSchema = creation.table.schema  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize(
    "changes",
    [
        "ADD COLUMN c INT",
        "ADD COLUMN (C INT, d VARCHAR(9))",
        "DROP COLUMN gone",
        "CHANGE old c INT",
        "CHANGE gone d VARCHAR(9), ADD COLUMN c INT AFTER id",
        "RENAME COLUMN gone TO c",
        "DROP COLUMN gone, DROP INDEX i, ADD INDEX j (c)",
        "ADD UNIQUE u (e)",
    ],
)
def test_one_whose_effect_is_there_is_over(changes: str) -> None:
    again = ddl(20, f"ALTER TABLE t {changes}", kind="ALTER")
    known = {"known": ["t"], "schema": schema(), "seen": {"t": 10}}
    found = planned([again], **known, comes_again=True)
    assert found.held == ()
    assert found.runs is not None
    assert found.runs.change is None, "it is noted, and the shape stays"
    exact = planned([again], **known)
    assert len(exact.held) == 1, "a DDL that TiCDC orders is not over"


@pytest.mark.parametrize(
    "changes",
    [
        "ADD COLUMN c BIGINT",
        "ADD COLUMN c INT, DROP COLUMN d, DROP COLUMN gone",
        "CHANGE e c INT",
        "RENAME COLUMN gone TO lost",
        "ADD UNIQUE u (c)",
    ],
)
def test_one_of_another_effect_waits_for_an_operator(changes: str) -> None:
    other = ddl(20, f"ALTER TABLE t {changes}", kind="ALTER")
    found = planned([other], known=["t"], schema=schema(), seen={"t": 10}, comes_again=True)
    assert len(found.held) == 1


def test_a_new_one_runs() -> None:
    new = ddl(20, "ALTER TABLE t ADD COLUMN f INT", kind="ALTER")
    found = planned([new], known=["t"], schema=schema(), seen={"t": 10}, comes_again=True)
    assert found.runs is not None
    assert found.runs.change is not None
    assert planned([create(20)], known=["t"], comes_again=True).creations == ()
