"""The expectations of a changefeed's owner: does its trouble last, is anything left that could
fail, and which event does it await?"""

from __future__ import annotations

import logging
import time
from typing import Final

from conf.sources.kafka_uri import KafkaSettings
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_uri import is_at_least_once
from conf.sources.storage_uri import StorageSettings
from coordination.model import Ts
from sinks.spark.jvm_errors import line
from streaming.changefeed.awaited import awaited
from streaming.owner.control_rows import ControlRows
from streaming.stream.lasting_warnings import OWNER, SAYS_AFTER_S
from streaming.stream.role_context import RoleContext

logger = logging.getLogger(__name__)

_WATERMARK: Final = "watermark"


class AwaitedWatermark:
    """The concern about messages that were read and wait, since no watermark comes behind them.
    Where readers give the commit-ts, the watermarks are theirs and none is awaited."""

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        source = context.changefeed.source
        is_used = isinstance(source, KafkaSettings | RecordingSettings | StorageSettings)
        self._is_used = is_used and not is_at_least_once(source)
        self._way_out = (
            "does it write the file `metadata` of this folder"
            if isinstance(source, StorageSettings)
            else "does it send watermarks to all of these partitions (partition-num in "
            "--source-uri, docs/protocols.md)"
        )
        self._at: tuple[Ts, tuple[str, ...]] | None = None
        self._since_s = 0.0

    def look(self) -> None:
        if not self._is_used:
            return
        stream = self._context.stream
        marks, position = stream.marks(None), stream.position
        waiting = tuple(
            sorted(
                part
                for part, at in position.items()
                if at > (marks[part].position + 1 if part in marks else 0)
            )
        )
        at = (stream.resolved_ts(), waiting) if waiting and _has_read_all(self._context) else None
        if at is None or self._at is None or at[0] != self._at[0]:
            self._context.concerns.say(_WATERMARK, None)
            self._at, self._since_s = at, time.monotonic()
            return
        if time.monotonic() - self._since_s >= SAYS_AFTER_S:
            least = min((marks[part].ts if part in marks else 0 for part in position), default=0)
            late = [p for p in sorted(position) if p not in marks or marks[p].ts == least]
            self._context.concerns.say(
                _WATERMARK,
                f"messages of {', '.join(waiting)} were read and are not applied: every table "
                f"waits for a watermark of {', '.join(late)} above {least}, and none has come for "
                f"{SAYS_AFTER_S:g} s. Does TiCDC's changefeed run, and {self._way_out}?",
            )

    def close(self) -> None:
        self._context.concerns.withdraw(_WATERMARK)


class OwnersOutlook:
    """The outlook of one control writer, whose thread changes it; any thread reads it."""

    def __init__(self, context: RoleContext) -> None:
        self.is_caught_up = False
        self.awaits = ""
        self._context = context
        self._awaited = AwaitedWatermark(context)
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
        if self.awaits and self.awaits != before[1]:
            logger.info("%s", self.awaits)
        self._awaited.look()
        self.is_caught_up = (
            concern is None
            and context.concerns.first is None
            and _has_read_all(context)
            and rows.row.checkpoint_ts >= context.stream.resolved_ts()
        )
        if before != (self.is_caught_up, self.awaits):
            context.wake()

    def close(self) -> None:
        self._awaited.close()
        self._context.concerns.withdraw(OWNER)


def _has_read_all(context: RoleContext) -> bool:
    """Whether the stream has read everything that the source had when it was last asked."""
    ends = context.stream.backlog.look().ends
    position = context.stream.position  # empty while it is idle
    is_known = bool(position) and ends.keys() >= position.keys()
    return is_known and all(at >= ends[each] for each, at in position.items())
