"""Who controls the cluster: the port (TiCDC's ``Elector``), and etcd's election behind it.

The controller is the capture whose key under ``__cdc_meta__/owner/`` was created first. Its lease
is valid as long as the key is there: etcd deletes it with the lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from coordination.clock import Clock
from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.etcd.client import Compare, EtcdClient, get
from coordination.etcd.election import Candidate
from coordination.metadata.errors import OwnerNotFound
from coordination.model import CaptureID, CaptureInfo

logger = logging.getLogger(__name__)

Wait = Callable[[float], None]  # returns when woken or when the time is over; raises to end it all


class Elector(Protocol):
    def self_info(self) -> CaptureInfo:
        """Who am I (TiCDC's ``Self``)."""
        ...

    def run_election(self, on_take_control: Callable[[], None], wait: Wait) -> None:
        """Campaign, and call back each time this capture has become the controller; for ever.

        It is in control for as long as the call lasts; what ends it is what `wait` or
        `on_take_control` raises. Leadership is given up on the way out.
        """
        ...

    def get_controller(self) -> CaptureInfo:
        """Who leads now, with a valid lease; raises ``OwnerNotFound``."""
        ...

    def get_captures(self, *capture_ids: CaptureID) -> Sequence[CaptureInfo]:
        """Those, or all that are registered, by ID."""
        ...


class EtcdElector:
    """One capture's, as long as its lease lives."""

    def __init__(
        self,
        client: EtcdClient,
        cluster_id: str,
        info: CaptureInfo,
        candidate: Candidate,
        clock: Clock,
    ) -> None:
        """`candidate` stands with the capture's ID, and wakes `wait` from another thread."""
        self._client = client
        self._cluster_id = cluster_id
        self._info = info
        self._candidate = candidate
        self._clock = clock

    @property
    def guard(self) -> Compare | None:
        """What holds as long as we are the controller; None while we are not."""
        candidate = self._candidate
        if not candidate.leads:
            return None
        return Compare(candidate.key, "create", "=", candidate.revision)

    def self_info(self) -> CaptureInfo:
        return self._info

    def run_election(self, on_take_control: Callable[[], None], wait: Wait) -> None:
        while True:
            try:
                self._campaign(wait)
                on_take_control()
            finally:
                self._resign()

    def _campaign(self, wait: Wait) -> None:
        wait_s = self._candidate.campaign(self._clock.monotonic())
        while not self._candidate.leads:
            wait(wait_s)
            wait_s = self._candidate.campaign(self._clock.monotonic())

    def _resign(self) -> None:
        try:
            self._candidate.resign()
        except TidelakeError as error:  # what ended it must not be hidden; the lease ends by itself
            logger.warning("could not resign capture_id=%s: %s", self._info.id, error)

    def get_controller(self) -> CaptureInfo:
        return read_controller(self._client, self._cluster_id)

    def get_captures(self, *capture_ids: CaptureID) -> Sequence[CaptureInfo]:
        return read_captures(self._client, self._cluster_id, *capture_ids)


def read_controller(client: EtcdClient, cluster_id: str) -> CaptureInfo:
    """For who is no capture, too: the command line."""
    candidates = client.range(keys.election_prefix(cluster_id), prefix=True).kvs
    first = min(candidates, key=lambda kv: kv.create_revision, default=None)
    if first is None:
        raise OwnerNotFound(f"no capture of the cluster {cluster_id} leads: is a server running?")
    capture_id = CaptureID(first.value.decode())
    found = get(client, keys.capture_key(cluster_id, capture_id))
    if found is None:
        raise OwnerNotFound(f"the capture {capture_id} leads, but is no longer registered")
    return keys.load_capture_info(found.value)


def read_captures(
    client: EtcdClient, cluster_id: str, *capture_ids: CaptureID
) -> Sequence[CaptureInfo]:
    """Those, or all that are registered, by ID."""
    found = client.range(keys.capture_prefix(cluster_id), prefix=True).kvs
    infos = [keys.load_capture_info(kv.value) for kv in found]
    return [each for each in infos if not capture_ids or each.id in capture_ids]
