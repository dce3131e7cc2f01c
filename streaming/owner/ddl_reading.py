"""How the owner's reader comes into the stream of its changefeed.

join ─► the stream says from where the reader has it ─► what lies before is read by itself
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from streaming.owner.control_rows import ControlRows
from streaming.owner.ddl_reader import DdlReader
from streaming.source.positions import Positions
from streaming.stream.backlog import BacklogMeter
from streaming.stream.retention_watch import RetentionWatch
from streaming.stream.role_context import RoleContext


class DdlReading:
    """The DDL reading of one term; used by the control writer's thread."""

    def __init__(
        self,
        context: RoleContext,
        rows: ControlRows,
        reader: DdlReader,
        *,
        meter: BacklogMeter,
        retention: RetentionWatch,
        fail: Callable[[BaseException], None],
    ) -> None:
        """``fail`` takes the error of a thread that reads what lies before; any thread."""
        self._context = context
        self._rows = rows
        self._reader = reader
        self._meter = meter
        self._retention = retention
        self._fail = fail
        self._is_joined = False
        self._begins_at: Positions | None = None  # from where the reader is still to catch up

    def go_on(self) -> None:
        """The next step, if there is one. Raises what ``SharedStream.join`` raises."""
        if not self._is_joined:
            self._join()
        if self._begins_at is None:
            return
        if self._reader.since is None:
            self._context.stream.wake()
            return
        begins_at, self._begins_at = self._begins_at, None
        threading.Thread(  # on its own: it may take longer than the changefeed's row stays fresh
            target=self._catch_up, args=(begins_at,), name="owner-catches-up", daemon=True
        ).start()

    def _join(self) -> None:
        """Join the stream. The reader must read from the changefeed's low water on, wherever the
        stream is by now."""
        row = self._rows.row
        low_water, marks = row.source_positions, row.watermarks
        begin = self._context.stream.join(self._reader, low_water, marks, row.source_identities)
        self._is_joined = True
        self._retention.begin()
        self._rows.row = replace(row, source_positions={**begin, **row.source_positions})
        self._begins_at = begin
        self._meter.begin(begin, time.monotonic())

    def _catch_up(self, begins_at: Positions) -> None:
        step = self._context.watch(f"catching up of {self._context.name}")
        try:
            with step:
                self._reader.catch_up(begins_at, step)
        except BaseException as error:  # noqa: BLE001 - looked at by the control writer's thread
            self._begins_at = begins_at
            self._fail(error)
