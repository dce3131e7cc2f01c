"""How groups of patches are folded into transactions, and where a transaction is full."""

from __future__ import annotations

import random

import pytest

from coordination.orchestrator.transaction import (
    MAX_TXN_BYTES,
    ChangeRefused,
    Patch,
    TransactionTooLarge,
    fold,
    size_bytes,
)
from tests.coordination.orchestrator.key_values import adds, becomes, group


def nothing(_key: str) -> None:
    return None


def raises(error: Exception):
    def change(_old: bytes | None) -> bytes | None:
        raise error

    return Patch("/raises", change)


def test_patches_of_one_key_run_on_each_other_and_become_one_change():
    folded = fold([group(adds("/a", 1), adds("/a", 2)), group(adds("/a", 4))], nothing, 126)
    assert (folded.taken, folded.changes) == (2, {"/a": b"7"})


def test_what_ends_as_it_began_is_no_change():
    groups = [group(becomes("/a", b"2")), group(becomes("/a", b"1"), becomes("/b", None))]
    assert fold(groups, {"/a": b"1"}.get, 126).changes == {}


def test_an_empty_value_is_no_delete():
    groups = [group(becomes("/empty", b""), becomes("/gone", None))]
    assert fold(groups, {"/gone": b""}.get, 126).changes == {"/empty": b"", "/gone": None}


def test_nothing_is_left_of_a_refused_group_and_the_others_go_on():
    refused = group(adds("/a", 1), raises(ChangeRefused("no")), adds("/b", 2))
    groups = [group(adds("/a", 4)), refused, group(adds("/c", 1))]
    folded = fold(groups, nothing, 126, drops_refused=True)
    assert (folded.taken, folded.changes) == (3, {"/a": b"4", "/c": b"1"})
    with pytest.raises(ChangeRefused):
        fold(groups, nothing, 126)


def test_any_other_error_comes_out():
    with pytest.raises(ZeroDivisionError):
        fold([group(raises(ZeroDivisionError()))], nothing, 126)


@pytest.mark.parametrize("sizes", [(126,), (125, 1), (1,) * 126, (60, 66)])
def test_exactly_as_many_keys_as_fit_go_together(sizes: tuple[int, ...]):
    groups = [
        group(*(becomes(f"/{n}/{key}", b"x") for key in range(size)))
        for n, size in enumerate(sizes)
    ]
    assert fold(groups, nothing, 126).taken == len(sizes)
    assert fold([*groups, group(becomes("/more", b"x"))], nothing, 126).taken == len(sizes)


def test_exactly_as_many_bytes_as_fit_go_together():
    full = becomes("/key", b"x" * (MAX_TXN_BYTES - 8))
    assert fold([group(full)], nothing, 126).taken == 1
    assert fold([group(full), group(becomes("/k", b""))], nothing, 126).taken == 1
    almost = becomes("/key", b"x" * (MAX_TXN_BYTES - 8 - 4))
    folded = fold([group(almost), group(becomes("/k", b""))], nothing, 126)
    assert (folded.taken, size_bytes(folded.changes)) == (2, MAX_TXN_BYTES)


def test_bytes_of_a_key_are_those_of_its_utf8():
    assert size_bytes({"/ü": b"12"}) == 2 * 3 + 2


def test_a_group_too_large_by_itself_is_an_error_that_names_changefeed_and_counts():
    keys = [becomes(f"/tidb/cdc/default/task/position/{n}/shop", b"x") for n in range(127)]
    with pytest.raises(TransactionTooLarge, match=r"of shop changes .* 127 keys.* 126 keys"):
        fold([group(*keys)], nothing, 126)
    value = b"x" * (MAX_TXN_BYTES - 7)
    with pytest.raises(TransactionTooLarge, match=rf"of key .* {MAX_TXN_BYTES + 1} bytes"):
        fold([group(), group(becomes("/key", value))], nothing, 126)


def test_a_group_too_large_behind_another_lets_that_one_through_first():
    large = group(*(becomes(f"/{n}", b"x") for n in range(127)))
    assert fold([group(adds("/a", 1)), large], nothing, 126).taken == 1


def test_what_groups_without_a_change_have_read_takes_no_room():
    checks = [group(Patch(f"/{n}", lambda old: old, is_compared=True)) for n in range(200)]
    folded = fold([*checks, group(adds("/a", 1))], nothing, 126)
    assert (folded.taken, folded.changes, folded.reads) == (201, {"/a": b"1"}, frozenset())


def test_compared_reads_of_one_group_count_against_its_limit():
    checks = [Patch(f"/{n}", lambda old: old, is_compared=True) for n in range(126)]
    with pytest.raises(TransactionTooLarge, match="127 keys"):
        fold([group(*checks, adds("/a", 1))], nothing, 126)


def test_a_group_that_did_not_fit_leaves_no_trace():
    """TiCDC runs it on the shared map, and again for the next transaction: twice."""
    first = group(*(becomes(f"/{n}", b"5") for n in range(126)))
    second = group(adds("/0", 1), adds("/more", 1))
    values = {f"/{n}": b"0" for n in range(126)}
    folded = fold([first, second], values.get, 126)
    assert folded.changes["/0"] == b"5"
    assert "/more" not in folded.changes


@pytest.mark.seeds(50)
def test_folds_together_do_what_one_group_after_the_other_does(seed: int):
    random_ = random.Random(seed)
    keys = [f"/{n}" for n in range(12)]
    groups = [
        group(*(_random_patch(random_, keys) for _ in range(random_.randint(0, 5))))
        for _ in range(random_.randint(0, 20))
    ]
    expected: dict[str, bytes] = {}
    for each in groups:
        for patch in each:
            _set(expected, patch.key, patch.change(expected.get(patch.key)))
    actual: dict[str, bytes] = {}
    left = groups
    while left:
        folded = fold(left, actual.get, random_.randint(5, 8))
        assert folded.taken > 0
        for key, value in folded.changes.items():
            _set(actual, key, value)
        left = left[folded.taken :]
    assert actual == expected


def _random_patch(random_: random.Random, keys: list[str]) -> Patch:
    key = random_.choice(keys)
    return random_.choice([adds(key, random_.randint(1, 9)), becomes(key, None)])


def _set(values: dict[str, bytes], key: str, value: bytes | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
