"""The keys in etcd: how each is spelled, how a key is read back, and the JSON of a capture.

Keys that TiCDC has too are under TiCDC's root, with TiCDC's field names, so that its tools can read
them. Other keys are under our own root: TiCDC's tools refuse unknown keys under theirs.

    /tidb/cdc/<cluster>/__cdc_meta__/owner/<lease in hex>      capture ID; the first one leads
                       /__cdc_meta__/capture/<capture>         CaptureInfo, with the session's lease
                       /__cdc_meta__/meta/meta-version         1
                       /__cdc_meta__/meta/ticdc-delete-etcd-key-count
                       /<ns>/changefeed/info/<changefeed>      ChangeFeedInfo
                       /<ns>/changefeed/status/<changefeed>    ChangeFeedStatus
                       /<ns>/task/position/<capture>/<changefeed>   TaskPosition: errors, warnings
                       /<ns>/upstream/<number>                 UpstreamInfo
    /tidb/cdc/__backup__/<version>/<old key>                   what a migration put aside
    /tidelake/<cluster>/etcd-incarnation                       which etcd this is
                       /changefeed-epoch                       the last epoch that was given out
                       /<ns>/changefeed/schedule/<changefeed>  who owns it
                       /data-flow/dm/job/<job>                 DM's Job: its tasks, their stages
                       /data-flow/dm/unit-state/<job>          UnitState: its workers, what ended
    /tidelake/<cluster>/run-<changefeed>/cdc/…, …/own/…        the scope of a changefeed's `run`s:
                                                               all of the above but the incarnation
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from conf.forms import is_id
from coordination.errors import ConfigError
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, JobID, LeaseID

TICDC_ROOT = "/tidb/cdc"
OWN_ROOT = "/tidelake"
NAMESPACE = "default"
META_VERSION: Final = b"1"
RESERVED_CLUSTER_IDS: Final = {"owner", "capture", "task", "changefeed", "job", "meta"}
_META = "__cdc_meta__"


@dataclass(frozen=True, slots=True, order=True)
class ChangefeedName:
    """A changefeed's name for users (TiCDC's ``ChangeFeedID``). A changefeed that is removed and
    created again has the same name but another UUID."""

    id: ChangefeedID
    namespace: str = NAMESPACE

    def __str__(self) -> str:
        return f"{self.namespace}/{self.id}"


def check_cluster_id(cluster_id: str) -> None:
    """Raise ``ConfigError`` for a cluster ID that TiCDC refuses or would take for part of a key."""
    if not is_id(cluster_id):
        raise ConfigError(
            f"cluster-id {cluster_id!r}: letters and digits, joined by single hyphens, at most 128"
        )
    if cluster_id in RESERVED_CLUSTER_IDS:
        raise ConfigError(f"cluster-id {cluster_id!r} is a word of TiCDC's keys: choose another")


# ---- TiCDC's root


def base_prefix(cluster_id: str) -> str:
    """The prefix of a cluster's keys under TiCDC's root. It ends in a slash, so that the keys of
    `default2` do not begin with the prefix of `default`.

    For the scope of a `run` it is under our own root: TiCDC's tools would refuse those keys."""
    if is_run_scope(cluster_id):
        return f"{OWN_ROOT}/{cluster_id}/cdc/"
    return f"{TICDC_ROOT}/{cluster_id}/"


def election_prefix(cluster_id: str) -> str:
    """The prefix of the election in which captures elect the controller (TiCDC: the owner)."""
    return f"{base_prefix(cluster_id)}{_META}/owner/"


def capture_prefix(cluster_id: str) -> str:
    return f"{base_prefix(cluster_id)}{_META}/capture/"


def capture_key(cluster_id: str, capture_id: CaptureID) -> str:
    return capture_prefix(cluster_id) + capture_id


def meta_version_key(cluster_id: str) -> str:
    return f"{base_prefix(cluster_id)}{_META}/meta/meta-version"


def delete_counter_key(cluster_id: str) -> str:
    """The key that counts the deletes that EtcdWorkers committed: a decimal number, which every
    commit compares."""
    return f"{base_prefix(cluster_id)}{_META}/meta/ticdc-delete-etcd-key-count"


def changefeed_info_key(cluster_id: str, name: ChangefeedName) -> str:
    return f"{base_prefix(cluster_id)}{name.namespace}/changefeed/info/{name.id}"


def changefeed_status_key(cluster_id: str, name: ChangefeedName) -> str:
    return f"{base_prefix(cluster_id)}{name.namespace}/changefeed/status/{name.id}"


def task_position_key(cluster_id: str, capture_id: CaptureID, name: ChangefeedName) -> str:
    return f"{base_prefix(cluster_id)}{name.namespace}/task/position/{capture_id}/{name.id}"


# ---- our own root


def own_prefix(cluster_id: str) -> str:
    return f"{OWN_ROOT}/{cluster_id}/{'own/' if is_run_scope(cluster_id) else ''}"


def run_scope(cluster_id: str, changefeed_id: ChangefeedID) -> str:
    """The scope of a changefeed's `run`s, which keeps their keys apart from the cluster's captures.
    The functions here accept it wherever they take a cluster ID."""
    return f"{cluster_id}/run-{changefeed_id}"


def is_run_scope(cluster_id: str) -> bool:
    return "/" in cluster_id  # a cluster ID has no slash


def cluster_of(cluster_id: str) -> tuple[str, str]:
    """The cluster ID, and the name of the `run` scope in it ("" if there is none)."""
    cluster, _, scope = cluster_id.partition("/")
    return cluster, scope


def incarnation_key(cluster_id: str) -> str:
    """The key of a UUID that is put once into an empty etcd. It tells this etcd from another one
    that was at the same address before.

    etcd's own cluster ID cannot do that: it is a hash of peer URLs and token, so an etcd that is
    set up again with the same flags has the *same* ID, while its revisions begin anew.
    """
    return f"{own_prefix(cluster_of(cluster_id)[0])}etcd-incarnation"


def epoch_key(cluster_id: str) -> str:
    """The key of the last changefeed epoch that was given out, as a decimal number.

    All changefeeds share this counter, and it stays when they are removed. So a changefeed that is
    removed and created again under its old name has an epoch that none of its old messages has.
    """
    return f"{own_prefix(cluster_id)}changefeed-epoch"


def schedule_key(cluster_id: str, name: ChangefeedName) -> str:
    return f"{own_prefix(cluster_id)}{name.namespace}/changefeed/schedule/{name.id}"


def job_key(cluster_id: str, job_id: JobID) -> str:
    return f"{_jobs_prefix(cluster_id)}job/{job_id}"


def unit_state_key(cluster_id: str, job_id: JobID) -> str:
    return f"{_jobs_prefix(cluster_id)}unit-state/{job_id}"


def job_of_key(cluster_id: str, key: str) -> JobID | None:
    """The job that one of these two keys belongs to; None for any other key."""
    prefix = _jobs_prefix(cluster_id)
    found = re.fullmatch(r"(?:job|unit-state)/([^/]+)", key.removeprefix(prefix))
    if not key.startswith(prefix) or found is None or not is_id(found[1]):
        return None
    return JobID(found[1])


def _jobs_prefix(cluster_id: str) -> str:
    return f"{own_prefix(cluster_id)}data-flow/dm/"


# ---- from a key back to what it says


class KeyKind(Enum):
    """The kinds of keys that are read back: the root of each, and the pattern of what follows."""

    ELECTION = (base_prefix, r"__cdc_meta__/owner/(?P<lease>[0-9a-f]+)")
    CAPTURE = (base_prefix, r"__cdc_meta__/capture/(?P<capture>[^/]+)")
    INFO = (base_prefix, r"(?P<namespace>[^/]+)/changefeed/info/(?P<id>[^/]+)")
    STATUS = (base_prefix, r"(?P<namespace>[^/]+)/changefeed/status/(?P<id>[^/]+)")
    POSITION = (base_prefix, r"(?P<namespace>[^/]+)/task/position/(?P<capture>[^/]+)/(?P<id>[^/]+)")
    SCHEDULE = (own_prefix, r"(?P<namespace>[^/]+)/changefeed/schedule/(?P<id>[^/]+)")


class ParsedKey(NamedTuple):
    """The parts of a key. A part that keys of this kind do not have is empty."""

    kind: KeyKind
    name: ChangefeedName | None = None
    capture_id: CaptureID = CaptureID("")
    lease: LeaseID = LeaseID(0)  # of a candidate in the controller's election


def parse_key(cluster_id: str, key: str) -> ParsedKey | None:
    """The parts of a key; None if it is not a key of this cluster, or none of the kinds above.

    Stricter than TiCDC: the root is compared with its slash, so keys of `default2` are not taken
    for keys of `default`; a changefeed ID has no slash; a key that ends too early is refused.
    """
    for kind in KeyKind:
        root, pattern = kind.value
        prefix = root(cluster_id)
        if not key.startswith(prefix):
            continue
        found = re.fullmatch(pattern, key.removeprefix(prefix), re.DOTALL)
        if found is None:
            continue
        says = found.groupdict()
        name = None
        if "id" in says:
            if not (is_id(says["id"]) and is_id(says["namespace"])):
                return None
            name = ChangefeedName(ChangefeedID(says["id"]), says["namespace"])
        lease = LeaseID(int(says.get("lease", "0"), 16))
        return ParsedKey(kind, name, CaptureID(says.get("capture", "")), lease)
    return None


# ---- the JSON of a capture


def dump_capture_info(info: CaptureInfo) -> bytes:
    """The JSON of a capture, as TiCDC writes it. Fields that TiCDC does not know are written if
    they are set."""
    own = {"draining": info.is_draining, "reached": info.is_reached}
    fields = {
        "id": info.id,
        "address": info.address,
        "version": info.version,
        "git-hash": "",
        "deploy-path": "",
        "start-timestamp": info.start_timestamp,
        **{name: True for name, is_set in own.items() if is_set},
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def load_capture_info(value: bytes) -> CaptureInfo:
    """Read the JSON of a capture, ours or TiCDC's; unknown fields are ignored. Raises ValueError
    or KeyError for JSON that is not a capture's."""
    fields = json.loads(value)
    return CaptureInfo(
        id=CaptureID(fields["id"]),
        address=fields["address"],
        version=fields["version"],
        start_timestamp=fields.get("start-timestamp", 0),
        is_draining=bool(fields.get("draining", False)),
        is_reached=bool(fields.get("reached", False)),
    )
