"""Where things lie in etcd, and the JSON of their values.

What TiCDC has a key for is under its root with its field names (the same tools can look at both);
what it has none for lies under a root of our own.
"""

from __future__ import annotations

import json

from coordination.model import CaptureID, CaptureInfo, ChangefeedID, LeaseID

TICDC_ROOT = "/tidb/cdc"
OWN_ROOT = "/tidelake"
NAMESPACE = "default"


def capture_prefix(cluster_id: str) -> str:
    return f"{TICDC_ROOT}/{cluster_id}/__cdc_meta__/capture/"


def capture_key(cluster_id: str, capture_id: CaptureID) -> str:
    return capture_prefix(cluster_id) + capture_id


def owner_prefix(cluster_id: str, changefeed_id: ChangefeedID) -> str:
    """The election of one changefeed; ends in a slash, so that `shop` is not `shop-2`."""
    return f"{OWN_ROOT}/{cluster_id}/{NAMESPACE}/owner/{changefeed_id}/"


def owner_key(cluster_id: str, changefeed_id: ChangefeedID, lease: LeaseID) -> str:
    return owner_prefix(cluster_id, changefeed_id) + f"{lease:x}"


def incarnation_key(cluster_id: str) -> str:
    """A UUID put once into an empty etcd: tells it from the one that lay at the same address.

    An etcd that is set up again with the same flags has the *same* cluster ID (it is a hash of
    peer URLs and token) while its revisions begin anew.
    """
    return f"{OWN_ROOT}/{cluster_id}/etcd-incarnation"


def dump_capture_info(info: CaptureInfo) -> bytes:
    fields = {
        "id": info.id,
        "address": info.address,
        "version": info.version,
        "git-hash": "",
        "deploy-path": "",
        "start-timestamp": info.start_timestamp,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def load_capture_info(value: bytes) -> CaptureInfo:
    """Read ours or TiCDC's own; fields that we do not know are passed over."""
    fields = json.loads(value)
    return CaptureInfo(
        id=CaptureID(fields["id"]),
        address=fields["address"],
        version=fields["version"],
        start_timestamp=fields.get("start-timestamp", 0),
    )
