"""Reads Delta tables with delta-rs as Python rows, and says where two sets of rows differ first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

Row = Mapping[str, Any]


def read_rows(uri: str | Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows, at a version or now; understands deletion vectors and column mapping."""
    table = DeltaTable(str(uri), version=version)
    batches = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return pa.table(batches).to_pylist()


def first_difference(
    expected: Iterable[Row], actual: Iterable[Row], key: Sequence[str] | None
) -> str | None:
    """None where both hold the same rows; else one line about the lowest key that differs.

    Without a key both sides are bags. Only the columns of the expected rows count where the
    actual ones have more; a column that is missing is a difference.
    """
    if key is None:
        return _bag_difference(list(expected), list(actual))
    wanted = _by_key(expected, key)
    found = _by_key(actual, key)
    if isinstance(wanted, str) or isinstance(found, str):
        return f"expected: {wanted}" if isinstance(wanted, str) else f"actual: {found}"
    for at in sorted(wanted.keys() | found.keys(), key=repr):
        if at not in found:
            return f"row {_shown(key, at)} is missing; expected {dict(wanted[at])}"
        if at not in wanted:
            return f"row {_shown(key, at)} should not be there: {dict(found[at])}"
        if (difference := _row_difference(wanted[at], found[at])) is not None:
            return f"row {_shown(key, at)}: {difference}"
    return None


def _by_key(rows: Iterable[Row], key: Sequence[str]) -> dict[tuple[Any, ...], Row] | str:
    """Rows by key, or a line about the key that is there twice."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        at = tuple(row[column] for column in key)
        if at in found:
            return f"row {_shown(key, at)} is there twice: {dict(found[at])} and {dict(row)}"
        found[at] = row
    return found


def _row_difference(expected: Row, actual: Row) -> str | None:
    for column, value in expected.items():
        if column not in actual:
            return f"column {column} is missing"
        if not _equal(value, actual[column]):
            return f"{column} is {actual[column]!r}, expected {value!r}"
    return None


def _bag_difference(expected: list[Row], actual: list[Row]) -> str | None:
    left = list(actual)
    for row in expected:
        match = next((i for i, other in enumerate(left) if not _row_difference(row, other)), None)
        if match is None:
            return f"row {dict(row)} is missing"
        left.pop(match)
    return f"row {dict(left[0])} should not be there" if left else None


def _equal(expected: Any, actual: Any) -> bool:
    """Same type and value: ``True`` is not ``1``, ``Decimal(1)`` is not ``1``."""
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_equal, expected, actual))
    if isinstance(expected, float) and isinstance(actual, float) and math.isnan(expected):
        return math.isnan(actual)
    return type(expected) is type(actual) and bool(expected == actual)


def _shown(key: Sequence[str], at: tuple[Any, ...]) -> str:
    return ", ".join(f"{column}={value!r}" for column, value in zip(key, at, strict=True))
