"""The expectations of a changefeed's owner: does its trouble last, is anything left that could
fail, and which event does it await?"""

from __future__ import annotations

import time

from sinks.spark.jvm_errors import line
from streaming.changefeed.awaited import awaited
from streaming.owner.control_rows import ControlRows
from streaming.stream.lasting_warnings import OWNER
from streaming.stream.role_context import RoleContext


class OwnersOutlook:
    """The outlook of one control writer, whose thread changes it; any thread reads it."""

    def __init__(self, context: RoleContext) -> None:
        self.is_caught_up = False
        self.awaits = ""
        self._context = context
        self._failed_at_s: float | None = None  # monotonic: the last failure that is a concern

    def failed(self, error: BaseException, *, is_long: bool) -> None:
        """A turn has failed, and is tried again. ``is_long``: for so long that it is a concern."""
        self.is_caught_up = False
        if is_long:
            self._failed_at_s = time.monotonic()
            trouble = f"the owner cannot go on, and tries again: {line(error)}"
            self._context.concerns.say(OWNER, trouble)

    def went_well(self, rows: ControlRows, concern: str | None) -> None:
        """A turn has not failed. The trouble is over once a row was written since. ``concern``: the
        concern that the row shows now."""
        context, before = self._context, (self.is_caught_up, self.awaits)
        if self._failed_at_s is not None and rows.age_s < time.monotonic() - self._failed_at_s:
            self._failed_at_s = None
            context.concerns.say(OWNER, None)
        self.awaits = awaited(rows.row)
        self.is_caught_up = (
            concern is None
            and context.concerns.first is None
            and _has_read_all(context)
            and rows.row.checkpoint_ts >= context.stream.resolved_ts()
        )
        if before != (self.is_caught_up, self.awaits):
            context.wake()

    def close(self) -> None:
        self._context.concerns.withdraw(OWNER)


def _has_read_all(context: RoleContext) -> bool:
    """Whether the stream has read everything that the source had when it was last asked."""
    ends = context.stream.backlog.look().ends
    position = context.stream.position  # empty while it is idle
    is_known = bool(position) and ends.keys() >= position.keys()
    return is_known and all(at >= ends[each] for each, at in position.items())
