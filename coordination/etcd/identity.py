"""Which etcd this is: its cluster ID and the UUID that was put into it when it was empty."""

from __future__ import annotations

import uuid

from coordination.errors import TryAgain
from coordination.etcd.client import Compare, EtcdClient, Put, get
from coordination.etcd.keys import cluster_of, incarnation_key


def etcd_identity(client: EtcdClient, cluster_id: str) -> str:
    """`<etcd's cluster ID>/<UUID>`, and `/run-<changefeed>` of the scope of a `run`: revisions may
    be compared only where this is equal."""
    key = incarnation_key(cluster_id)
    mark = get(client, key)
    if mark is None:
        absent = Compare(key, "create", "=", 0)
        client.txn((absent,), (Put(key, str(uuid.uuid4()).encode()),))
        mark = get(client, key)
    if mark is None:
        raise TryAgain("the mark that was put into etcd is gone again")
    scope = cluster_of(cluster_id)[1]
    return f"{client.cluster_id()}/{mark.value.decode()}" + (f"/{scope}" if scope else "")
