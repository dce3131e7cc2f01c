"""How many groups of patches fit into one transaction, and what they come to together. Pure.

    groups ──run on a copy──► changes ──fits?──► folded; one that does not begins the next fold

A group that does not fit leaves no trace: it is run anew, on newer values, in the next fold.
The limits are inclusive (TiCDC's `>=` loops for ever at exactly 128 keys).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import TryAgain
from coordination.etcd.client import Compare, Delete, Op, Put
from coordination.orchestrator.patch import PatchGroup, PatchSkipped
from coordination.orchestrator.reactor import TransactionTooLarge

MAX_TXN_BYTES: Final = 1024 * (1024 + 256)  # TiCDC's, below etcd's --max-request-bytes of 1.5 MiB
NAMED_IN_ERROR: Final = 3  # changefeeds

Values = Callable[[str], bytes | None]
Changes = Mapping[str, bytes | None]  # None: delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What the first `taken` groups change together; intermediate values are gone."""

    taken: int
    changes: Changes
    reads: frozenset[str] = frozenset()  # keys that must be as they were read, changed or not


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransaction:
    """Do `ops` if all `compares` hold, and if the delete counter is still `counter`."""

    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]
    counter: int


def fold(groups: Sequence[PatchGroup], values: Values, max_keys: int) -> Fold:
    """As many groups from the front as one transaction can hold.

    Stops before a group that raises ``TryAgain`` (it and those after it wait); raises
    ``TransactionTooLarge`` if the first one with a change exceeds a limit by itself.
    """
    changes: Changes = {}
    reads: frozenset[str] = frozenset()
    for taken, group in enumerate(groups):
        try:
            larger = _run(group, changes, values)
        except TryAgain:
            return Fold(taken=taken, changes=changes, reads=reads)
        if larger == changes:
            continue  # nothing is written on account of what it read
        more_reads = reads.union(patch.key for patch in group if patch.is_compared)
        keys = len(more_reads.union(larger))
        if keys > max_keys or size_bytes(larger) > MAX_TXN_BYTES:
            if changes:
                return Fold(taken=taken, changes=changes, reads=reads)
            raise TransactionTooLarge(_too_large(larger, keys, max_keys))
        changes, reads = larger, more_reads
    return Fold(taken=len(groups), changes=changes, reads=reads)


def size_bytes(changes: Changes) -> int:
    """As TiCDC counts: a key stands in its compare and in its put."""
    return sum(2 * len(key.encode()) + len(value or b"") for key, value in changes.items())


def counter_compare(counter_key: str, counter: int) -> Compare:
    """That nobody has deleted anything since: absent at 0, as before the first delete."""
    if counter == 0:
        return Compare(counter_key, "create", "=", 0)
    return Compare(counter_key, "value", "=", str(counter).encode())


def counter_put(counter_key: str, counter: int) -> Put:
    return Put(counter_key, str(counter + 1).encode())


def ops_of(changes: Changes) -> tuple[Op, ...]:
    return tuple(
        Delete(key) if value is None else Put(key, value) for key, value in changes.items()
    )


def _run(group: PatchGroup, before: Changes, values: Values) -> Changes:
    """`before` with the group's changes on top; what ends as it began is no change."""
    changes = dict(before)
    for patch in group:
        old = changes[patch.key] if patch.key in changes else values(patch.key)
        try:
            changes[patch.key] = patch.change(old)
        except PatchSkipped:
            continue
    return {key: value for key, value in changes.items() if value != values(key)}


def _too_large(changes: Changes, keys: int, max_keys: int) -> str:
    names = sorted({key.rpartition("/")[2] for key in changes})  # every key ends with its ID
    more = f" and {len(names) - NAMED_IN_ERROR} more" if len(names) > NAMED_IN_ERROR else ""
    return (
        f"one group of patches of {', '.join(names[:NAMED_IN_ERROR])}{more} changes or depends on "
        f"{keys} keys, with {size_bytes(changes)} bytes, but a transaction may have {max_keys} "
        f"keys beside its guards, and {MAX_TXN_BYTES} bytes: split the group"
    )
