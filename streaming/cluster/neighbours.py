"""One changefeed into one warehouse is served by a cluster or by `tidelake run`, never by both.

Each would take the other's term away again and again. Who comes second is told so: here, where both
meet in one etcd under one cluster ID, and at the claim in Delta, wherever they meet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from conf.load import warehouse_of
from conf.settings import SettingError
from coordination.errors import ConfigError
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.errors import ChangefeedNotFound
from coordination.metadata.model import ChangefeedInfo
from coordination.metadata.querier import EtcdQuerier
from coordination.model import ChangefeedID
from streaming.cluster.changefeed_settings import DELTA_URI


def refuse_a_clusters(
    client: EtcdClient, cluster_id: str, changefeed_id: str, warehouse: str
) -> None:
    """Raise ConfigError for a `run` of what the cluster has. A paused one is the cluster's too."""
    name = ChangefeedName(ChangefeedID(changefeed_id))
    with suppress(ChangefeedNotFound):
        info = EtcdQuerier(client, cluster_id).find_name(name).info
        if _warehouse(info) == warehouse:
            raise ConfigError(
                f"changefeed {changefeed_id} into {warehouse} belongs to the captures of cluster "
                f"{cluster_id} (state {info.state.value or 'uninitialized'}). They replicate it: "
                f"see `tidelake changefeed query -c {changefeed_id}`. To replicate it with "
                "`tidelake run` end it there first (`tidelake changefeed remove`), or give this "
                "run another --changefeed-id and --sink-uri"
            )


def refuse_a_runs(client: EtcdClient, cluster_id: str, info: ChangefeedInfo) -> None:
    """Raise ConfigError for a changefeed that a `run` replicates into the same warehouse."""
    runs = client.range(keys.run_capture_prefix(cluster_id, info.id), prefix=True).kvs
    for kv in runs:
        found: Mapping[str, Any] = json.loads(kv.value)
        if found.get("warehouse") == _warehouse(info):
            raise ConfigError(
                f"changefeed {info.id} into {_warehouse(info)} is replicated by a `tidelake run` "
                f"on {found.get('address')} (capture {found.get('id')}): stop it first; the "
                "cluster then goes on where it was"
            )
    known = {kv.key.rpartition("/")[2] for kv in runs}
    candidates = client.range(keys.owner_prefix(cluster_id, info.id), prefix=True).kvs
    for kv in candidates:  # of an older Tidelake, which registered among the servers
        if (capture_id := kv.value.decode()) not in known:
            raise ConfigError(
                f"changefeed {info.id} is replicated by a `tidelake run` of an older version "
                f"(capture {capture_id}): stop it first; the cluster then goes on where it was"
            )


def _warehouse(info: ChangefeedInfo) -> str | None:
    """None for a changefeed of TiCDC's own, whose sink is no warehouse."""
    uri = ((info.config or {}).get("sink") or {}).get(DELTA_URI)
    with suppress(SettingError):
        return warehouse_of(uri)
    return None
