"""Rows as hashes: what is found to differ, in memory and in files, beside a comparison by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from streaming.operations.diff.fingerprints import (
    SEVERAL,
    Batch,
    Fingerprints,
    by_key,
    differing,
    hashed,
    is_among,
    key_hashes,
    key_set,
    parts_for,
)

Rows = Mapping[str, str]
SMALL = 4096  # bytes of memory, so that rows go to files


def batch(rows: list[tuple[str, str]], place: int = -1) -> Batch:
    columns = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
    return Batch((next(columns),), (next(columns),), place)


def filled(rows: list[tuple[str, str]], parts: int, memory_bytes: int = 1 << 20) -> Fingerprints:
    found = Fingerprints(parts, memory_bytes=memory_bytes)
    for at in range(0, len(rows), 100):
        found.add(hashed(batch(rows[at : at + 100], place=at)))
    return found


@pytest.mark.parametrize("parts", [1, 8])
@pytest.mark.parametrize("memory_bytes", [1 << 20, SMALL])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_that_differs_is_found_and_no_other(
    parts: int, memory_bytes: int, seed: int
) -> None:
    chance = random.Random(seed)
    ours = {f"k{number}": f"v{number}" for number in range(2000)}
    theirs = dict(ours)
    for key in chance.sample(sorted(ours), 30):
        theirs[key] = "changed"
    for key in chance.sample(sorted(ours), 20):
        theirs.pop(key)
        ours[f"{key} of the lake"] = "v"
    wanted = {key for key in ours | theirs if ours.get(key) != theirs.get(key)}
    with (
        filled(list(ours.items()), parts, memory_bytes) as lake,
        filled(chance.sample(list(theirs.items()), len(theirs)), parts, memory_bytes) as database,
    ):
        found, total = differing(lake, database, 1000)
        some, same_total = differing(lake, database, 7)
    of_key = dict(
        zip(
            key_hashes(hashed(batch([(key, "") for key in sorted(ours | theirs)]))),
            sorted(ours | theirs),
            strict=True,
        )
    )
    assert {of_key[each.key] for each in found} == wanted
    assert (total, len(some), same_total) == (len(wanted), 7, len(wanted))
    for each in found:
        assert (each.lake is None) == (of_key[each.key] not in ours)
        assert (each.database is None) == (of_key[each.key] not in theirs)
        assert (each.place == -1) == (of_key[each.key] not in theirs)


def test_a_row_that_the_lake_has_twice_differs() -> None:
    with filled([("a", "1"), ("a", "1"), ("b", "2")], 1) as lake, filled([("a", "1")], 1) as there:
        found, total = differing(lake, there, 10)
    assert total == 2
    assert {each.lake for each in found} == {SEVERAL, found[1].lake, found[0].lake}
    assert SEVERAL in {each.lake for each in found}


def test_equal_rows_of_a_database_are_one() -> None:
    with filled([("a", "1")], 1) as lake, filled([("a", "1")] * 3, 1) as database:
        assert differing(lake, database, 10) == ([], 0)


@pytest.mark.parametrize(("there", "differ"), [(3, 0), (2, 1), (4, 1), (0, 1)])
def test_where_rows_are_counted_a_row_is_there_as_often(there: int, differ: int) -> None:
    rows = [("a", "")] * 3 + [("b", "")]
    with filled(rows, 2) as lake, filled([("b", ""), *[("a", "")] * there], 2) as database:
        assert differing(lake, database, 10, counts_rows=True)[1] == differ


def test_nothing_on_both_sides() -> None:
    with Fingerprints(4) as lake, Fingerprints(4) as database:
        assert differing(lake, database, 10) == ([], 0)


def test_a_table_of_key_columns_alone() -> None:
    key = pa.array([1, 2, None], pa.int32())
    with Fingerprints(1) as lake, Fingerprints(1) as database:
        lake.add(hashed(Batch((key,), ())))
        database.add(hashed(Batch((key.slice(1),), ())))
        found, total = differing(lake, database, 10)
    assert (total, found[0].database) == (1, None)


def test_null_is_a_cell_of_its_own() -> None:
    key = (pa.array(["a", "b"]),)
    with Fingerprints(1) as lake, Fingerprints(1) as database:
        lake.add(hashed(Batch(key, (pa.array([None, ""], pa.string()),))))
        database.add(hashed(Batch(key, (pa.array(["", ""], pa.string()),))))
        assert differing(lake, database, 10)[1] == 1


def test_long_values_differ_by_their_last_byte() -> None:
    long = "x" * 1_000_000
    rows = [("a", long), ("b", long), ("c", "short"), (long, "k"), ("d", "y" * 513)]
    with (
        filled(rows, 1) as lake,
        filled([*rows[:1], ("b", f"{long[:-1]}y"), *rows[2:]], 1) as there,
    ):
        found, total = differing(lake, there, 10)
    assert (total, found[0].key) == (1, key_hashes(hashed(batch([("b", "")])))[0])


def test_rows_are_picked_by_their_keys() -> None:
    rows = hashed(batch([("a", "1"), ("b", "2"), ("b", "3"), ("c", "4"), ("c", "4")]))
    a, b, _, c, _ = key_hashes(rows)
    assert is_among(rows, key_set([b, a])).tolist() == [True, True, True, False, False]
    assert not is_among(rows, key_set([])).any()
    found = by_key(rows)
    assert found[b] == SEVERAL
    assert found[c] != SEVERAL  # equal rows


@pytest.mark.parametrize(("rows", "parts"), [(0, 1), (1, 1), (10**7, 16), (10**12, 256)])
def test_parts_are_as_large_as_memory_allows(rows: int, parts: int) -> None:
    assert parts_for(rows) == parts


def test_a_row_that_the_table_could_not_hold_equals_none() -> None:
    key, null = (pa.array(["a", "b"]),), (pa.array([None, None], pa.int32()),)
    with Fingerprints(1) as lake, Fingerprints(1) as database:
        lake.add(hashed(Batch(key, null)))
        database.add(hashed(Batch(key, null, strange=np.array([True, False]))))
        found, total = differing(lake, database, 10)
    assert (total, found[0].key) == (1, key_hashes(hashed(batch([("a", "")])))[0])
