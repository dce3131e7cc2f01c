"""Reads of what etcd has right now, for callers that do not watch it all the time: the command
line, and a `run` that starts. Each call blocks for its requests to etcd."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.etcd import keys
from coordination.etcd.client import EtcdClient, get
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.errors import ChangefeedNotFound, OwnerNotFound
from coordination.metadata.global_state import GlobalReactorState
from coordination.model import CaptureID, CaptureInfo, Revision


def read_changefeeds(client: EtcdClient, cluster_id: str) -> Sequence[ChangefeedReactorState]:
    """All changefeeds, read in one request, in the order of their names. One whose info cannot be
    read is left out; a status or a schedule row that cannot be read counts as missing."""
    state = GlobalReactorState(cluster_id, removal_grace_s=0.0)
    prefixes = (keys.base_prefix(cluster_id), keys.own_prefix(cluster_id))
    for kv in client.range(prefixes, prefix=True).kvs:
        state.update(kv.key, kv)
    found = (each for each in state.changefeeds.values() if each.info is not None)
    return sorted(found, key=lambda each: each.name)


def find_changefeed(
    client: EtcdClient, cluster_id: str, name: ChangefeedName
) -> ChangefeedReactorState | None:
    """The changefeed that has that name at present, or None."""
    found = read_changefeeds(client, cluster_id)
    return next((each for each in found if each.name == name), None)


def read_changefeed(
    client: EtcdClient, cluster_id: str, name: ChangefeedName
) -> ChangefeedReactorState:
    """The changefeed that has that name at present; raises ``ChangefeedNotFound``."""
    found = find_changefeed(client, cluster_id, name)
    if found is None:
        raise ChangefeedNotFound(f"there is no changefeed {name}")
    return found


def read_controller(client: EtcdClient, cluster_id: str) -> CaptureInfo:
    """The elected capture: the one whose key under ``__cdc_meta__/owner/`` was created first. The
    key exists as long as the capture's lease is valid. Raises ``OwnerNotFound``."""
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
    """The registered captures among `capture_ids`, or all registered ones if none is given; in the
    order of etcd's keys, so by ID."""
    found = client.range(keys.capture_prefix(cluster_id), prefix=True).kvs
    infos = [keys.load_capture_info(kv.value) for kv in found]
    return [each for each in infos if not capture_ids or each.id in capture_ids]


def captures_before(
    client: EtcdClient, cluster_id: str, registered: Revision
) -> Sequence[CaptureInfo]:
    """The captures that are registered now and registered below this revision."""
    found = client.range(keys.capture_prefix(cluster_id), prefix=True).kvs
    return [keys.load_capture_info(kv.value) for kv in found if kv.create_revision < registered]
