"""Whether one session of a capture may still write.

A process has one fence for all its sessions, one after the other. Work that was begun in a lost
session must not go on when the fence opens again for the next session; so the session is compared
too."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.errors import Fenced
from coordination.fence import Fence
from coordination.model import CaptureID, ProcessorEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureIdentity:
    """The capture that writes; it is stored in progress rows and in the metadata of target
    commits."""

    capture_id: CaptureID
    epoch: ProcessorEpoch
    address: str


class Trust:
    """Thread-safe, and cheap enough to be asked before each write."""

    def __init__(self, fence: Fence, identity: CaptureIdentity) -> None:
        self.identity = identity
        self._fence = fence

    @property
    def silent_s(self) -> float:
        """For how many seconds etcd has not answered."""
        return self._fence.silent_s

    def check(self) -> None:
        """Raises Fenced when this session may write nothing any more."""
        trusted = self._fence.check()
        if trusted.epoch != self.identity.epoch:
            raise Fenced(
                f"nothing may be written: capture {self.identity.capture_id} is over, its process "
                f"goes on as {trusted.capture_id}"
            )
