"""Whether one session of a capture may still write.

A process has one fence for all its sessions, one after the other. Work that was begun in a lost
session must not go on when the fence opens again for the next session; so the session is compared
too."""

from __future__ import annotations

from coordination.errors import Fenced
from coordination.fence import Fence
from coordination.ports import CaptureIdentity


class Trust:
    """Thread-safe, and cheap enough to be asked before each write."""

    def __init__(self, fence: Fence, identity: CaptureIdentity) -> None:
        self._fence = fence
        self._identity = identity

    @property
    def silent_s(self) -> float:
        """For how many seconds etcd has not answered."""
        return self._fence.silent_s

    def check(self) -> None:
        """Raises Fenced when this session may write nothing any more."""
        trusted = self._fence.check()
        if trusted.epoch != self._identity.epoch:
            raise Fenced(
                f"nothing may be written: capture {self._identity.capture_id} is over, its process "
                f"goes on as {trusted.capture_id}"
            )
