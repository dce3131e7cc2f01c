"""Who is last, by numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sinks.types.key_hash import Keys
from sinks.types.last_per_key import joined_keys, last_per_key


def keys(first: Sequence[int], second: Sequence[int] | None = None) -> Keys:
    if second is None:
        return Keys(np.array(first, np.int64), None)
    return Keys(np.array(first, np.uint64), np.array(second, np.uint64))


@pytest.mark.seeds(1)
@pytest.mark.parametrize("is_hash", [False, True])
def test_the_greatest_of_each_key_by_column_after_column(is_hash: bool, seed: int) -> None:
    """Against a dict; the hashes are so poor that halves are often equal."""
    chance = np.random.default_rng(seed)
    for rows in range(60):
        first, second = chance.integers(0, 4, rows), chance.integers(0, 3, rows)
        order = [chance.integers(0, 3, rows), chance.integers(0, 3, rows), chance.permutation(rows)]
        last: dict[tuple[int, ...], int] = {}
        for row in range(rows):
            key = (int(first[row]), int(second[row])) if is_hash else (int(first[row]),)
            place = [column[row] for column in order]
            if key not in last or place > [column[last[key]] for column in order]:
                last[key] = row
        found = last_per_key(keys(first, second if is_hash else None), order).tolist()
        assert found == sorted(last.values())


def test_no_rows_have_no_last() -> None:
    assert last_per_key(joined_keys([]), []).tolist() == []
    assert last_per_key(joined_keys([keys([]), keys([])]), []).tolist() == []


def test_parts_without_rows_do_not_tell_what_keys_are() -> None:
    """An empty part's keys are numbers, even where the others' are hashes."""
    joined = joined_keys([keys([]), keys([1, 2], [5, 6]), keys([]), keys([3], [7])])
    assert (joined.first.tolist(), joined.first.dtype) == ([1, 2, 3], np.uint64)
    assert joined.second is not None
    assert joined.second.tolist() == [5, 6, 7]
