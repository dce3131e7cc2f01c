"""What EtcdWorker drives: a state that etcd's keys are poured into, and a reactor that acts on it.

Neither sees etcd. The state hands out what is to change as patches; the reactor never runs on a
state that is older than its own last write, and always on one moment of etcd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from coordination.errors import Fenced, Stop, TidelakeError
from coordination.model import Revision
from coordination.orchestrator.patch import PatchGroup


class ReactorFinished(Stop):
    """Raised by a tick that is to be the last: its patches are written first."""


class GuardLost(Fenced):
    """A key that every write of this worker depends on has gone for good; `key` says which."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"nothing may be written any more: {key} is no longer there as it was put "
            "(the session ended, or the key was deleted)"
        )
        self.key = key


class TransactionTooLarge(TidelakeError):
    """One group needs more keys or bytes than one transaction may have: a fault of its maker."""


ABSENT: Final = Revision(0)  # the revision by which etcd compares a key that is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A key was put, or deleted. `is_init`: of the first read."""

    key: str
    value: bytes | None  # None: deleted; b"" is a value
    is_init: bool = False
    create_revision: Revision = ABSENT
    mod_revision: Revision = ABSENT


class ReactorState(Protocol):
    """The keys as a program wants them. Called from the worker's thread alone."""

    def update(self, update: Update) -> None: ...

    def update_pending_change(self, now_s: float) -> None:
        """Right before each tick: do what was put off until its time came."""
        ...

    def take_patches(self) -> list[PatchGroup]:
        """Hand out what the last tick wants changed, once. Each group is all or none."""
        ...


S_contra = TypeVar("S_contra", bound=ReactorState, contravariant=True)


class Reactor(Protocol[S_contra]):
    def tick(self, state: S_contra, now_s: float) -> None:
        """Look at the state and leave patches in it. Must not block.

        Patches may be dropped without a trace when etcd did not say whether it took them; so a tick
        derives all of them from the state, and the next one asks again for what is still missing.
        """
        ...
