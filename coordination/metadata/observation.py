"""What captures, the controller and owners may do to metadata: TiCDC's ports.

    controller.set_owner(capture) ─► capture.owner_changes() ─► capture.on_owner_launched()
    controller.set_owner(stop)    ─► capture.owner_changes() ─► capture.post_owner_removed()
                                                             └─► controller may set another owner

All of them are thread-safe, and block until what was asked is written (but for those that a reactor
calls in its tick); each write is all or none.
The roles of one capture share one deadline (`coordination/deadline.py`): what a capture writes is
refused once it is not registered any more, what a controller writes once it does not lead, what an
owner writes once its launch is over. ``TryAgain`` means that it is not known whether it was
written: look before you ask again. Other refusals are in `errors.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordination.metadata.elector import Elector, Wait
from coordination.metadata.feed_state import Decision
from coordination.metadata.model import (
    CaptureProgress,
    ChangefeedIdent,
    ChangefeedInfo,
    ChangefeedProgress,
    ChangefeedUUID,
    RunningError,
    UpstreamInfo,
)
from coordination.metadata.schedule import ScheduledChangefeed
from coordination.model import CaptureID, CaptureInfo, Ts


@dataclass(frozen=True, slots=True, kw_only=True)
class Captures:
    """Who is registered, and whether that is news since the last look."""

    infos: tuple[CaptureInfo, ...]
    changed: bool


class ControllerObservation(Protocol):
    """What the controller does. Creating and removing is open to the command line too."""

    def create_changefeed(
        self, info: ChangefeedInfo, upstream: UpstreamInfo | None = None
    ) -> ChangefeedIdent:
        """Make it, in state normal, owned by nobody; `info.epoch` is set here.

        Raises ``ChangefeedExists``, also for a name whose removed changefeed is not cleaned up.
        """
        ...

    def remove_changefeed(self, uuid: ChangefeedUUID) -> None:
        """Mark it as removed and have its owner stop; that comes later."""
        ...

    def cleanup_changefeed(self, uuid: ChangefeedUUID) -> None:
        """Delete all that is stored of a removed changefeed whose owner has stopped."""
        ...

    def refresh_captures(self) -> Captures: ...

    def set_owner(self, target: ScheduledChangefeed) -> None:
        """Launch it at a registered capture, or have its owner stop (LAUNCHED or REMOVING)."""
        ...

    def post_capture_offline(self, capture_id: CaptureID) -> None:
        """Take what a dead capture owned from it, with the progress that it last reported.

        A capture that is registered is refused. An owner is fenced by its launch and its term, so
        there is no grace to be waited for.
        """
        ...

    def get_changefeed_schedule(self, uuid: ChangefeedUUID) -> ScheduledChangefeed: ...

    def schedule_snapshot(self) -> tuple[list[ScheduledChangefeed], list[CaptureInfo]]: ...


class OwnerObservation(Protocol):
    """What the owner of one changefeed does; pause, resume and update also for an operator."""

    def self_uuid(self) -> ChangefeedUUID: ...

    def update_changefeed(self, info: ChangefeedInfo) -> None:
        """Replace what was asked for; raises ``ChangefeedUpdateRefused`` unless it is paused."""
        ...

    def pause_changefeed(self) -> None: ...

    def resume_changefeed(self, overwrite_checkpoint_ts: Ts | None = None) -> None:
        """Run again, with a new epoch; from another point if one is given."""
        ...

    def advance_changefeed(
        self, checkpoint_ts: Ts, min_table_barrier_ts: Ts, *, epoch: int
    ) -> None:
        """Store how far the run of that epoch is. Never goes back; nothing if it does not run."""
        ...

    def carry_out(self, decision: Decision) -> None:
        """The step that the feed state machine has decided on; the methods below name them."""
        ...

    def retry_changefeed(self) -> None:
        """From pending to warning: it runs again, with a new epoch."""
        ...

    def set_changefeed_normal(self) -> None:
        """From warning: it has advanced since."""
        ...

    def set_changefeed_finished(self) -> None: ...

    def set_changefeed_removed(self) -> None: ...

    def set_changefeed_failed(self, error: RunningError) -> None: ...

    def set_changefeed_warning(self, warning: RunningError) -> None: ...

    def set_changefeed_pending(self, error: RunningError) -> None: ...


class CaptureObservation(Elector, Protocol):
    """What a registered capture does, controller or not."""

    def run(self, controller_callback: Callable[[ControllerObservation], None], wait: Wait) -> None:
        """`run_election`, with what a controller needs."""
        ...

    def advance(self, progress: CaptureProgress) -> None:
        """Report how far the changefeeds are that it owns, as their processors have told it; those
        that are not named keep what they had."""
        ...

    def owner_changes(self) -> Sequence[ScheduledChangefeed]:
        """What it was told to own or to let go, since the last call (at first: all it owns)."""
        ...

    def on_owner_launched(self, uuid: ChangefeedUUID) -> OwnerObservation:
        """To be used for this launch; raises ``NotLaunched`` unless it is ours."""
        ...

    def post_owner_removed(self, uuid: ChangefeedUUID, task_position: ChangefeedProgress) -> None:
        """Its owner here has ended, and had come that far: it may go to another capture."""
        ...
