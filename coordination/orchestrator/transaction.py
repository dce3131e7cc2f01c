"""What a reactor wants changed in etcd: functions over values, in groups; and how many groups fit
into one transaction. Pure.

    groups ──run on a copy──► changes ──fits?──► folded; one that does not begins the next fold

A patch is a function from a key's old value to its new one. It is run on the newest value that is
known, and again on a newer one if another writer was faster. The changes of a group that does not
fit are dropped, and the group is run again, on newer values, in the next fold.
The limits are inclusive (TiCDC's `>=` loops for ever at exactly 128 keys).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import TidelakeError

MAX_TXN_BYTES: Final = 1024 * (1024 + 256)  # TiCDC's, below etcd's --max-request-bytes of 1.5 MiB
NAMED_IN_ERROR: Final = 3  # changefeeds

Changes = Mapping[str, bytes | None]  # None: delete


class ChangeRefused(TidelakeError):
    """Raised by a change that is not possible on the newest values: nothing is written of its
    group."""


class TransactionTooLarge(TidelakeError):
    """One group needs more keys or bytes than one transaction may have: a fault of the code that
    made the group."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One key's change. ``None`` is an absent key, ``b""`` an empty value; a result equal to the
    argument is no change.

    ``change`` may be run several times, so it must not have effects of its own. ``ChangeRefused``
    leaves its whole group out; any other error ends the worker.

    ``is_compared`` puts the key's mod-revision among the transaction's conditions even if the
    change leaves the value as it is: so what a patch has only *read* still holds at the commit."""

    key: str
    change: Callable[[bytes | None], bytes | None]
    is_compared: bool = False


PatchGroup = tuple[Patch, ...]  # in one transaction, all or none; groups are committed in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What the first `taken` groups change together: each key's last value."""

    taken: int
    changes: Changes
    reads: frozenset[str] = frozenset()  # keys that must not have changed since they were read


def fold(
    groups: Sequence[PatchGroup],
    values: Callable[[str], bytes | None],
    max_keys: int,
    *,
    drops_refused: bool = False,
) -> Fold:
    """Folds as many groups, from the front, as one transaction can hold. ``drops_refused``: a
    refused group changes nothing, and is no error.

    Raises ``TransactionTooLarge`` if the first group with a change exceeds a limit by itself, and
    the errors of patches.
    """
    changes: Changes = {}
    reads: frozenset[str] = frozenset()
    for taken, group in enumerate(groups):
        try:
            larger = _run(group, changes, values)
        except ChangeRefused:
            if not drops_refused:
                raise
            continue
        if larger == changes:
            continue  # it changes nothing, so nothing depends on what it read
        more_reads = reads.union(patch.key for patch in group if patch.is_compared)
        keys = len(more_reads.union(larger))
        if keys > max_keys or size_bytes(larger) > MAX_TXN_BYTES:
            if changes:
                return Fold(taken=taken, changes=changes, reads=reads)
            raise TransactionTooLarge(_too_large(larger, keys, max_keys))
        changes, reads = larger, more_reads
    return Fold(taken=len(groups), changes=changes, reads=reads)


def size_bytes(changes: Changes) -> int:
    """The size as TiCDC counts it: each key twice, for its compare and its put."""
    return sum(2 * len(key.encode()) + len(value or b"") for key, value in changes.items())


def _run(group: PatchGroup, before: Changes, values: Callable[[str], bytes | None]) -> Changes:
    """`before` with the group's changes on top, without keys that end with the value that
    `values` has for them."""
    changes = dict(before)
    for patch in group:
        old = changes[patch.key] if patch.key in changes else values(patch.key)
        changes[patch.key] = patch.change(old)
    return {key: value for key, value in changes.items() if value != values(key)}


def _too_large(changes: Changes, keys: int, max_keys: int) -> str:
    names = sorted({key.rpartition("/")[2] for key in changes})  # every key ends with its ID
    more = f" and {len(names) - NAMED_IN_ERROR} more" if len(names) > NAMED_IN_ERROR else ""
    return (
        f"one group of patches of {', '.join(names[:NAMED_IN_ERROR])}{more} changes or depends on "
        f"{keys} keys, with {size_bytes(changes)} bytes, but a transaction may have {max_keys} "
        f"keys beside its guards, and {MAX_TXN_BYTES} bytes: split the group"
    )
