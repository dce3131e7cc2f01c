"""What an operator does with changefeeds, from anywhere: written to etcd at once.

Their owner sees it there and follows. What only the owner can do has no key in etcd, and is asked
of it (`owner/jobs.py`).
"""

from __future__ import annotations

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.feed_state import Decision, FeedEvent
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.model import ChangefeedInfo
from coordination.model import Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.transaction import PatchGroup


class ChangefeedOperator:
    """Each call is written when it returns, or raises what refuses it (`errors.py`). ``TryAgain``
    means that it is not known whether it was written: look before you ask again. Any thread."""

    def __init__(self, client: EtcdClient, cluster_id: str) -> None:
        self._client = client
        self._cluster_id = cluster_id

    def create(self, info: ChangefeedInfo) -> None:
        """In state normal; `info.epoch` is set here. Raises ``ChangefeedExists``."""
        self._commit(create_writes(self._cluster_id, info))

    def pause(self, name: ChangefeedName) -> None:
        self._commit(self._read(name).writes().feed_event(Decision(event=FeedEvent.STOP)))

    def resume(self, name: ChangefeedName, overwrite_checkpoint_ts: Ts | None = None) -> None:
        """Run again, with a new epoch; from another point if one is given."""
        resume = Decision(event=FeedEvent.RESUME, overwrite_checkpoint_ts=overwrite_checkpoint_ts)
        self._commit(self._read(name).writes().feed_event(resume))

    def update(self, name: ChangefeedName, wanted: ChangefeedInfo) -> None:
        """Replace what was asked for; raises ``ChangefeedUpdateRefused`` unless it is paused."""
        self._commit(self._read(name).writes().update(wanted))

    def remove(self, name: ChangefeedName) -> None:
        """Mark it as removed and have its owner stop, who cleans up after it."""
        self._commit(self._read(name).writes().remove())

    def cleanup(self, name: ChangefeedName) -> None:
        """Delete all that is stored of a removed one, where no owner does."""
        found = self._read(name)
        self._commit(*found.writes().cleanup(found.task_positions))

    def _read(self, name: ChangefeedName) -> ChangefeedReactorState:
        return read_changefeed(self._client, self._cluster_id, name)

    def _commit(self, *groups: PatchGroup) -> None:
        commit_once(self._client, groups, keys.delete_counter_key(self._cluster_id))
