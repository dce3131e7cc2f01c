"""What a capture reports of itself, and reads that depend on whether it is registered."""

from __future__ import annotations

from collections.abc import Collection

from coordination.etcd import keys
from coordination.metadata.errors import CaptureNotFound, MetadataError
from coordination.metadata.model import (
    CaptureProgress,
    ChangefeedProgress,
    ChangefeedUUID,
    dump_progress,
    load_progress,
)
from coordination.model import CaptureID
from coordination.orchestrator.patch import Patch, PatchGroup


def capture_read(cluster_id: str, capture_id: CaptureID) -> Patch:
    """The capture must be registered, now and at the commit."""

    def look(old: bytes | None) -> bytes:
        if old is None:
            raise CaptureNotFound(f"the capture {capture_id} is not registered (any more)")
        return old

    return Patch(keys.capture_key(cluster_id, capture_id), look, is_compared=True)


def progress_writes(
    cluster_id: str,
    capture_id: CaptureID,
    progress: CaptureProgress,
    known: Collection[ChangefeedUUID],
) -> PatchGroup:
    """What a registered capture reports; changefeeds that are not named keep what they had, if
    they are still known."""

    def merge(old: bytes | None) -> bytes:
        before: CaptureProgress = load_progress(old) if old is not None else {}
        kept = {uuid: each for uuid, each in before.items() if uuid in known}
        return dump_progress({**kept, **progress})

    key = keys.capture_progress_key(cluster_id, capture_id)
    return (capture_read(cluster_id, capture_id), Patch(key, merge))


def capture_gone(cluster_id: str, capture_id: CaptureID) -> Patch:
    """The capture must not be registered, now and at the commit."""
    return Patch(keys.capture_key(cluster_id, capture_id), _refuse_alive, is_compared=True)


class LastProgress:
    """What the capture's progress says of one changefeed, read in the same transaction."""

    def __init__(self, key: str, uuid: ChangefeedUUID) -> None:
        self._uuid = uuid
        self._found: ChangefeedProgress | None = None
        self.read = Patch(key, self._look, is_compared=True)

    def position(self) -> ChangefeedProgress | None:
        return self._found

    def _look(self, old: bytes | None) -> bytes | None:
        progress: CaptureProgress = load_progress(old) if old is not None else {}
        self._found = progress.get(self._uuid)
        return old


def _refuse_alive(old: bytes | None) -> None:
    if old is not None:
        raise MetadataError("the capture is registered: it is alive, and keeps what it owns")
