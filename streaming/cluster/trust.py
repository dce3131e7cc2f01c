"""Whether one session of a capture may still write. A fence outlives the sessions of its process:
what a lost one had begun must not go on under the next one's trust."""

from __future__ import annotations

from coordination.errors import Fenced
from coordination.fence import Fence
from coordination.ports import CaptureIdentity


class Trust:
    """Thread-safe and cheap."""

    def __init__(self, fence: Fence, identity: CaptureIdentity) -> None:
        self._fence = fence
        self._identity = identity

    @property
    def silent_s(self) -> float:
        """How long etcd has not answered."""
        return self._fence.silent_s

    def check(self) -> None:
        """Raises Fenced when nothing may be written any more."""
        trusted = self._fence.check()
        if trusted.epoch != self._identity.epoch:
            raise Fenced(
                f"nothing may be written: capture {self._identity.capture_id} is over, its process "
                f"goes on as {trusted.capture_id}"
            )
