"""What an operator does with changefeeds, from any machine: written to etcd at once.

The changefeed's owner sees the change in etcd and follows it. Requests that have no key in etcd
(drain, move) go to the owner itself (`owner/operator_jobs.py`).
"""

from __future__ import annotations

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import ChangefeedInfo
from coordination.model import Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup


class ChangefeedOperator:
    """When a call returns, its change is written; if it is refused, it raises an error of
    `errors.py`. ``TryAgain`` means that it may have been written or not: read before you call
    again. Blocks for requests to etcd; may be called on any thread."""

    def __init__(self, client: EtcdClient, cluster_id: str) -> None:
        self._client = client
        self._cluster_id = cluster_id

    def create(self, info: ChangefeedInfo) -> None:
        """Create it, in state normal and with a new epoch. Raises ``ChangefeedExists``."""
        self._commit(create_writes(self._cluster_id, info))

    def pause(self, name: ChangefeedName) -> None:
        """Stop it. Raises ``ChangefeedNotFound``, as do the methods below."""
        self._commit(self._read(name).writes().feed_event(Decision(event=FeedEvent.STOP)))

    def resume(self, name: ChangefeedName, overwrite_checkpoint_ts: Ts | None = None) -> None:
        """Run it again, with a new epoch; from `overwrite_checkpoint_ts` if that is given."""
        resume = Decision(event=FeedEvent.RESUME, overwrite_checkpoint_ts=overwrite_checkpoint_ts)
        self._commit(self._read(name).writes().feed_event(resume))

    def update(self, name: ChangefeedName, wanted: ChangefeedInfo) -> None:
        """Replace its URI, target-ts and config. Raises ``ChangefeedUpdateRefused`` unless it is
        stopped or failed."""
        self._commit(self._read(name).writes().update(wanted))

    def remove(self, name: ChangefeedName) -> None:
        """Mark it as removed and tell its owner to stop; the owner then deletes its keys."""
        self._commit(self._read(name).writes().remove())

    def cleanup(self, name: ChangefeedName) -> None:
        """Delete all keys of a removed changefeed; for when no owner runs that would do it."""
        found = self._read(name)
        self._commit(*found.writes().cleanup(found.task_positions))

    def _read(self, name: ChangefeedName) -> ChangefeedReactorState:
        return read_changefeed(self._client, self._cluster_id, name)

    def _commit(self, *groups: PatchGroup) -> None:
        commit_once(self._client, groups, keys.delete_counter_key(self._cluster_id))
