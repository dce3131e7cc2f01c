"""Which files are folded: few enough that a scan is quick, seldom enough that writing is cheap."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from sinks.merge_on_write.upkeep.fold_choice import (
    FAN_OUT,
    FULL_BYTES,
    FULL_MEMORY_BYTES,
    FULL_ROWS,
    MAX_DEAD,
    MIN_DEAD_BYTES,
    MIN_DEBT_BYTES,
    PRESSED_FAN_OUT,
    FoldCandidate,
    choose,
)

HALF = FULL_BYTES // 2


def file(
    path: int, size: int, *, rows: int = 100, live: int | None = None, vector_bytes: int = 0
) -> FoldCandidate:
    live = rows if live is None else live
    return FoldCandidate(path=str(path), size=size, rows=rows, live=live, vector_bytes=vector_bytes)


def chosen(*files: FoldCandidate, rows_wait: bool = False) -> list[str]:
    return sorted(choose(files, rows_wait=rows_wait))


def test_as_many_of_one_size_are_folded():
    small = [file(number, 1000 + number) for number in range(FAN_OUT)]
    assert chosen(*small[1:]) == []
    assert len(chosen(*small)) == FAN_OUT
    assert chosen(*small[1:], file(99, FULL_BYTES // 8)) == []


@pytest.mark.parametrize(
    "half_full",
    [
        dict(size=HALF),
        dict(size=1000, rows=FULL_ROWS // 2),
        dict(size=1000, rows=100, memory_bytes=FULL_MEMORY_BYTES // 2),
    ],
    ids=["bytes", "rows", "memory"],
)
def test_files_that_are_half_full_are_left_alone(half_full: dict[str, int]):
    """Six files of a million rows were folded into six files of a million rows, for ever."""
    rows = half_full.setdefault("rows", 100)
    files = [
        FoldCandidate(path=str(number), live=rows, **half_full) for number in range(3 * FAN_OUT)
    ]
    assert chosen(*files) == []


def test_the_smallest_come_first():
    large = [file(number, HALF // 2) for number in range(FAN_OUT)]
    small = [file(100 + number, 10) for number in range(FAN_OUT)]
    assert chosen(*large, *small) == sorted(each.path for each in small)


def test_while_rows_wait_only_what_writing_gains_by_is_done():
    small = [file(number, 1000) for number in range(PRESSED_FAN_OUT)]
    assert chosen(*small[1:], rows_wait=True) == []
    assert len(chosen(*small, rows_wait=True)) == PRESSED_FAN_OUT
    size = 4 * MIN_DEAD_BYTES
    assert chosen(file(1, size, live=60), rows_wait=True) == []
    assert chosen(file(1, size, live=60, vector_bytes=size), rows_wait=True) == ["1"]


def test_a_file_that_is_largely_dead_is_written_anew_by_itself():
    size = 4 * MIN_DEAD_BYTES
    assert chosen(file(1, size, live=60), file(2, size)) == ["1"]
    assert chosen(file(1, size, live=70)) == []
    assert chosen(file(1, 4 * FULL_BYTES, live=60)) == ["1"]
    assert chosen(file(1, MIN_DEAD_BYTES, live=10)) == []  # not worth a commit


def test_a_file_whose_vectors_cost_more_than_itself_is_written_anew():
    size = 2 * MIN_DEBT_BYTES
    assert chosen(file(1, size, live=99, vector_bytes=size), file(2, size)) == ["1"]
    assert chosen(file(1, size, live=99, vector_bytes=size - 1)) == []
    assert chosen(file(1, 100, live=99, vector_bytes=MIN_DEBT_BYTES - 1)) == []  # no commit's worth
    assert chosen(file(1, size, vector_bytes=size)) == [], "it has no vector now"


def test_commits_that_hit_a_file_everywhere_write_as_little_as_can_be():
    """Against any other number of commits after which it is written anew."""
    size, hits, commits = 35_000_000, 30, 5_000

    def written(anew: Callable[[int, int], bool]) -> int:
        total = dead = vectors = 0
        for _ in range(commits):
            dead += hits
            vectors += 2 * dead
            total += 2 * dead
            if anew(dead, vectors):
                total, dead, vectors = total + size, 0, 0
        return total

    ours = written(
        lambda dead, vectors: bool(
            chosen(file(1, size, rows=10**6, live=10**6 - dead, vector_bytes=vectors))
        )
    )
    every = (
        partial(lambda most, dead, _: dead >= most, most) for most in range(3000, 300_000, 3000)
    )
    assert ours < 1.2 * min(map(written, every))
    assert ours < written(lambda *_: False) / 2


def test_a_fold_makes_one_file_at_the_most():
    files = [file(number, FULL_BYTES // 4) for number in range(3 * FAN_OUT)]
    assert len(chosen(*files)) == 4
    files = [file(number, 10 * FULL_BYTES, live=60) for number in range(3)]
    assert len(chosen(*files)) == 1


def test_nothing_and_empty_files():
    assert chosen() == []
    assert chosen(file(1, 0, rows=0), file(2, 10, rows=0, live=0)) == []
    assert len(chosen(*(file(number, 1, rows=0) for number in range(FAN_OUT)))) == FAN_OUT


@pytest.mark.seeds(10)
def test_a_table_comes_to_rest(seed: int):
    """Whatever there is: folds end, and leave few small files and none that is largely dead."""
    dice = random.Random(seed)
    files = {
        str(number): file(
            number,
            int(10 ** dice.uniform(2, 9)),
            rows=dice.randint(0, 1000),
            live=dice.choice((0, None)),
        )
        for number in range(dice.randint(0, 400))
    }
    for fresh in range(1000, 1000 + 2 * len(files) + 1):
        paths = choose(files.values())
        if not paths:
            break
        taken = [files.pop(path) for path in paths]
        assert len(paths) == 1 or sum(each.fullness for each in taken) <= 1
        if live := sum(each.live for each in taken):
            size = sum(each.live_bytes for each in taken)
            files[str(fresh)] = file(fresh, size, rows=live)
    else:
        pytest.fail("it never ends")
    small = [each for each in files.values() if each.fullness < 1 / 2]
    assert len(small) < 5 * FAN_OUT
    assert not [
        each
        for each in files.values()
        if each.size - each.live_bytes >= MIN_DEAD_BYTES
        and each.live < (1 - MAX_DEAD) * each.rows - 1
    ]


def test_a_row_is_written_again_once_for_each_size():
    """Ten thousand commits of one size: few files, and few bytes written for each byte of them."""
    files: dict[str, FoldCandidate] = {}
    written, most = 0, 0
    for number in range(10_000):
        files[str(number)] = file(number, 20_000)
        paths = choose(files.values())
        if paths:
            size = sum(files.pop(path).size for path in paths)
            written += size
            files[f"f{number}"] = FoldCandidate(path=f"f{number}", size=size, rows=1, live=1)
        most = max(most, len(files))
    assert most < 5 * FAN_OUT
    assert written < 5 * 10_000 * 20_000
