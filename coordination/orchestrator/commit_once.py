"""A write from outside of any EtcdWorker: the same patches, the same rules, once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coordination.errors import TryAgain
from coordination.etcd.client import Compare, EtcdClient, RangeResult
from coordination.model import Revision
from coordination.orchestrator.patch import PatchGroup
from coordination.orchestrator.reactor import GuardLost
from coordination.orchestrator.snapshot import Snapshot

TRIES: Final = 50  # against workers that write the same keys
EVERYTHING: Final = ("",)


def commit_once(
    client: EtcdClient,
    groups: Sequence[PatchGroup],
    delete_counter_key: str,
    guards: Sequence[Compare] = (),
) -> Revision:
    """Read the patches' keys, run all groups, commit them as one transaction; again on conflict.

    Returns its revision, or that of the read if nothing changes. Raises ``TransactionTooLarge``,
    ``GuardLost``, what a patch raises, and ``TryAgain`` when etcd gave no answer: it may then have
    happened, so look before you try again.
    """
    together: PatchGroup = tuple(patch for group in groups for patch in group)
    # the counter first: what is deleted while the others are read makes the transaction fail
    keys = dict.fromkeys(
        (delete_counter_key, *(each.key for each in guards), *(each.key for each in together))
    )
    for _ in range(TRIES):
        snapshot = Snapshot(EVERYTHING, delete_counter_key)
        snapshot.read(_read(client, keys))
        if lost := snapshot.lost_guard(guards):
            raise GuardLost(lost.key)
        plan = snapshot.plan((together,), guards)
        if plan.taken == 0:
            raise TryAgain("etcd's present state does not allow the change yet")
        if plan.transaction is None:
            return snapshot.revision
        result = client.txn(plan.transaction.compares, plan.transaction.ops)
        if result.succeeded:
            return result.revision
    raise TryAgain(f"others changed the same keys {TRIES} times in a row")


def _read(client: EtcdClient, keys: Iterable[str]) -> RangeResult:
    found = [client.range(key) for key in keys]
    return RangeResult(
        revision=min(each.revision for each in found),
        kvs=tuple(kv for each in found for kv in each.kvs),
    )
