"""A write to etcd without an EtcdWorker, with the same patches and rules, done at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coordination.errors import TryAgain
from coordination.etcd.client import Compare, EtcdClient, RangeResult
from coordination.orchestrator.snapshot import Snapshot
from coordination.orchestrator.transaction import PatchGroup

TRIES: Final = 50  # workers that write the same keys may be faster each time
EVERYTHING: Final = ("",)


def commit_once(
    client: EtcdClient,
    groups: Iterable[PatchGroup],
    delete_counter_key: str,
    guards: Sequence[Compare] = (),
) -> None:
    """Block until all groups are written, one after the other, each as one transaction.

    Raises ``TransactionTooLarge``, ``GuardLost``, and the errors of patches; the groups before that
    one are then written. ``TryAgain`` means that etcd gave no answer, and the write may have
    happened or not: read before you try again.
    """
    for group in groups:
        _commit(client, group, delete_counter_key, guards)


def _commit(
    client: EtcdClient, group: PatchGroup, delete_counter_key: str, guards: Sequence[Compare]
) -> None:
    # The counter is read first: a delete while the other keys are read then fails the transaction.
    keys = dict.fromkeys(
        (delete_counter_key, *(each.key for each in guards), *(each.key for each in group))
    )
    for _ in range(TRIES):
        snapshot = Snapshot(EVERYTHING, delete_counter_key, lambda: guards)
        found = [client.range(key) for key in keys]
        revision = min(each.revision for each in found)
        kvs = tuple(kv for each in found for kv in each.kvs)
        snapshot.read(RangeResult(revision=revision, kvs=kvs))
        snapshot.check_guards()
        plan = snapshot.plan((group,))
        if not plan.ops or client.txn(plan.compares, plan.ops).succeeded:
            return
    raise TryAgain(f"others changed the same keys {TRIES} times in a row")
