"""Statements of one table run once more, and few of them that fail too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path

from pymysql import Connection
from pymysql.cursors import Cursor

from tests.differential.followed_tables import DATABASE, Stopped
from tests.differential.oracle import Failure, Oracle, Table, enter, run
from tests.differential.sessions import LAX, Session
from tests.differential.shrinking import shrunk
from tests.differential.statements import TableStatements


def replay(oracle: Oracle, statements: Sequence[str], *, looks_often: bool = True) -> None:
    """Of one table, in order: what stands before the first ALTER is copied. ``looks_often``:
    behind each ALTER, not only at the end."""
    _replay(oracle, {table_of(statements): statements}, looks_often)


def replay_together(oracle: Oracle, histories: Mapping[str, Sequence[str]]) -> None:
    """Of several tables in one life, each under its own name here."""
    _replay(oracle, dict(starmap(_under, histories.items())), looks_often=False)


def _under(name: str, statements: Sequence[str]) -> tuple[str, list[str]]:
    own = re.compile(rf"\b{DATABASE}\.{table_of(statements)}(?!\d)")
    return name, [own.sub(f"{DATABASE}.{name}", each) for each in statements]


def few_of(oracle: Oracle, failure: Failure) -> list[str]:
    """Few of its statements that fail too."""

    def still_fail(tried: Sequence[Sequence[str]]) -> list[bool]:
        names = [f"s{at}" for at in range(len(tried))]
        again = Oracle(oracle.server, asks_each=True)
        try:
            replay_together(again, dict(zip(names, tried, strict=True)))
        except Stopped:
            return [False] * len(tried)
        failed = {each.table.partition("_")[0] for each in again.findings.failures}
        return [f"{DATABASE}.{name}" in failed for name in names]

    return shrunk(failure.statements, still_fail)


def _replay(oracle: Oracle, histories: Mapping[str, Sequence[str]], looks_often: bool) -> None:
    """Of several tables, each as if it were alone."""
    with oracle.stage() as (connection, followed):
        tables = {name: Table(name, _unknown(name)) for name in histories}
        first = {name: _first_change(each) for name, each in histories.items()}
        for name, statements in histories.items():
            enter(connection, LAX)
            for each in statements[: first[name]]:
                run(connection, tables[name], each)
        followed.copy()
        with followed.followed() as life:
            oracle.look(connection, followed, life, tables, "the copy")
            for name, statements in histories.items():
                enter(connection, LAX)
                for each in statements[: first[name]]:
                    if each.startswith("SET "):
                        enter(connection, Session(mode="", settings=(each,)))
                for each in _replayed(connection, tables, name, statements[first[name] :]):
                    if looks_often and _is_alter(each):
                        oracle.look(connection, followed, life, tables, each)
            if tables:
                oracle.look(connection, followed, life, tables, "the end")


def _replayed(
    connection: Connection[Cursor],
    tables: dict[str, Table],
    name: str,
    statements: Sequence[str],
) -> Iterator[str]:
    """Each behind its run, until the table is one no more."""
    for each in statements:
        if name not in tables:
            return
        if run(connection, tables[name], each) and (path := renamed_to(each)):
            table = tables.pop(name)
            table.rename(path)
            name = table.name
            tables[name] = table
        yield each


def table_of(statements: Sequence[str]) -> str:
    """The name that its first statement gives it."""
    made = next(each for each in statements if each.startswith(f"CREATE TABLE {DATABASE}."))
    return made.split()[2].removeprefix(f"{DATABASE}.")


def _unknown(name: str) -> TableStatements:
    return TableStatements(table=f"{DATABASE}.{name}", is_mariadb=True, flavour="")


def _first_change(statements: Sequence[str]) -> int:
    return next((at for at, each in enumerate(statements) if _is_alter(each)), len(statements))


def _is_alter(statement: str) -> bool:
    return statement.startswith(("ALTER", "RENAME"))


def renamed_to(statement: str) -> str | None:
    """The table's name behind the statement, if it renames it."""
    found = re.search(r"^(?:RENAME TABLE .*|ALTER TABLE \S+ RENAME) TO (\S+)$", statement)
    return found and found[1]


def read_statements(file: Path) -> list[str]:
    """Those of a file, one a line, about one table."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [each.rstrip(";") for each in lines if each and not each.startswith("--")]
