"""The owner that a changefeed's row names, as the next owner sees it: may it be alive, and which
sentence says so. Pure."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from coordination.errors import TermRefused, TidelakeError
from coordination.model import Ownership

ChangefeedState = Literal[
    "initializing",
    "running",
    "rewinding",
    "loading",
    "warning",
    "pending",
    "finished",
    "stopped",
    "failed",
]
# The tables show what lies above the checkpoint: changes are applied once more, or what has
# changed while tables were copied is not applied yet. No snapshot is published meanwhile.
AGAIN: Final = ("rewinding", "loading")
ENDED: Final = frozenset({"finished", "stopped", "failed"})  # states in which nobody writes the row


class StoredOwner(Protocol):
    """The owner that wrote a changefeed's row, as the row describes it."""

    @property
    def changefeed_id(self) -> str: ...

    @property
    def capture_id(self) -> str: ...

    @property
    def etcd_cluster_id(self) -> str: ...

    @property
    def owner_revision(self) -> int: ...

    @property
    def term(self) -> int: ...

    @property
    def state(self) -> str: ...


def must_wait(stored: StoredOwner, ownership: Ownership) -> bool:
    """Whether the stored row's owner may be alive although we were elected. Revisions cannot be
    compared between two etcds, between a cluster and a `run`, nor before and after a restore: then
    only a row that is not refreshed any more shows that its owner is gone."""
    is_other = stored.etcd_cluster_id != ownership.etcd_cluster_id
    return (is_other or is_earlier(stored, ownership)) and stored.state not in ENDED


def is_earlier(stored: StoredOwner, ownership: Ownership) -> bool:
    """Whether our election is earlier than the stored owner's, by the same etcd. etcd's leader is
    the last one elected. So either we lead no more and will hear of it, or etcd was restored and
    has forgotten the later election."""
    is_same = stored.etcd_cluster_id == ownership.etcd_cluster_id
    return is_same and ownership.election_revision < stored.owner_revision


def why_it_may_live(stored: StoredOwner, ownership: Ownership) -> str:
    if not is_earlier(stored, ownership):
        return f"of etcd cluster {stored.etcd_cluster_id}, which may be alive"
    return (
        f"that was elected later than this one (revision {stored.owner_revision}, ours is revision "
        f"{ownership.election_revision}): etcd was restored from a backup, or that capture is alive"
    )


def alive(row: StoredOwner, ownership: Ownership, uri: str) -> TidelakeError:
    if is_earlier(row, ownership):
        return TermRefused(
            f"changefeed {row.changefeed_id}: our election (revision {ownership.election_revision})"
            f" is older than that of term {row.term} (revision {row.owner_revision}), and capture "
            f"{row.capture_id} keeps {uri} fresh: the claim is tried again. If etcd was restored "
            "from a backup, stop the captures that still use the etcd from before"
        )
    (etcd, scope), (our_etcd, our_scope) = map(
        etcd_and_scope, (row.etcd_cluster_id, ownership.etcd_cluster_id)
    )
    if (etcd, bool(scope)) == (our_etcd, not our_scope):
        other, way = (
            ("a `tidelake run`", "stop it")
            if scope
            else (
                "a cluster (`tidelake server`)",
                "remove it there with `tidelake changefeed remove`",
            )
        )
        return TidelakeError(
            f"changefeed {row.changefeed_id}: {other} replicates it, capture {row.capture_id} "
            f"(term {row.term}) keeps {uri} fresh. Two cannot write it: {way}, and start this again"
        )
    return TidelakeError(
        f"changefeed {row.changefeed_id}: two etcds on one warehouse. {uri} is kept fresh by "
        f"capture {row.capture_id} (term {row.term}) of etcd cluster {row.etcd_cluster_id}, and "
        f"ours is {ownership.etcd_cluster_id}. Stop that capture, or give both the same --etcd "
        "and --cluster-id."
    )


def etcd_and_scope(etcd_cluster_id: str) -> tuple[str, str]:
    """Splits `<etcd>/<UUID>` (a cluster's owner) or `<etcd>/<UUID>/run-<changefeed>` (a `run`)
    behind the UUID; the scope of a cluster is empty."""
    etcd, _, rest = etcd_cluster_id.partition("/")
    uuid, _, scope = rest.partition("/")
    return f"{etcd}/{uuid}", scope
