"""A thread that asks the source for its ends while it is read, and logs the
backlog.

    begin ──► every 2 s: the ends ──► every 10 s a line, if a batch is long or the backlog large
       batch_begins ─► batch_ends(positions) ─► …                                       ──► close

If it does not answer for a while, that is reported as a concern: the read itself would wait
for it in silence, for a minute. The ends that are known stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordination.trust.clock import Clock, SystemClock
from sinks.spark.jvm_errors import line
from streaming.source.contract import Source
from streaming.source.positions import Distance, Positions, counted
from streaming.stream.backlog import Backlog, BacklogMeter
from streaming.stream.lasting_warnings import SOURCE, SOURCE_SILENT_S, LastingWarnings

logger = logging.getLogger(__name__)

ASK_EVERY_S = 2.0
SAY_EVERY_S = 10.0
WORTH_A_LINE = 10_000  # messages behind; less is read before anybody has read a line about it


class BacklogWatch:
    """Watches the backlog of one stream. ``connect`` gives it a connection of its
    own, since it asks while other threads use theirs."""

    def __init__(
        self,
        connect: Callable[[], Source],
        *,
        distance: Distance = counted,
        stream: str = "",
        clock: Clock | None = None,
        concerns: LastingWarnings | None = None,
    ) -> None:
        self._connect = connect
        self._stream = {"stream": stream} if stream else {}
        self._clock = clock or SystemClock()
        self._concerns = concerns or LastingWarnings()
        self._answered_at_s = self._clock.monotonic()
        self._meter = BacklogMeter(distance)
        self._parts: tuple[str, ...] = ()
        self._batch_since_s: float | None = None  # when the batch under way began
        self._said_at_s = 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, positions: Positions) -> None:
        """Reading begins at these positions. Blocks for one request; if the source answers, the
        ends are known when this returns."""
        self.close()
        self._parts = tuple(positions)
        self._said_at_s = self._answered_at_s = self._clock.monotonic()
        self._meter.begin(positions, self._said_at_s)
        source, self._closing = self._connect(), threading.Event()
        self._ask(source)
        self._thread = threading.Thread(
            target=self._run, args=(source, self._closing), name="backlog", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop watching. Does not wait for the thread, which may be asking still."""
        self._closing.set()
        self._concerns.withdraw(SOURCE)
        self._batch_since_s = None

    def batch_begins(self) -> None:
        now_s = self._batch_since_s = self._clock.monotonic()
        self._meter.reading(now_s)
        backlog = self._meter.look(now_s)
        if (backlog.behind or 0) >= WORTH_A_LINE:
            self._said_at_s = now_s
            logger.info("a batch begins", extra=self._facts(backlog))

    def batch_ends(self, positions: Positions) -> None:
        self._batch_since_s = None
        self._meter.read_to(positions, self._clock.monotonic())

    def look(self) -> Backlog:
        return self._meter.look(self._clock.monotonic())

    def say(self) -> None:
        """Log a line if the last is ten seconds old and there is something to say: a batch has
        been under way for that long, or the backlog is large."""
        now_s = self._clock.monotonic()
        if now_s - self._said_at_s < SAY_EVERY_S:
            return
        self._said_at_s = now_s
        backlog, since_s = self._meter.look(now_s), self._batch_since_s
        if since_s is not None and now_s - since_s >= SAY_EVERY_S:
            facts = {"batch_s": round(now_s - since_s)}
            logger.info("a batch is under way", extra=self._facts(backlog) | facts)
        elif (backlog.behind or 0) >= WORTH_A_LINE:
            logger.info("backlog", extra=self._facts(backlog))

    def _facts(self, backlog: Backlog) -> dict[str, object]:
        return {**self._stream, **backlog.facts()}

    def _run(self, source: Source, closing: threading.Event) -> None:
        while not closing.wait(ASK_EVERY_S):
            self._ask(source)
            if not closing.is_set():
                self.say()
        source.close()

    def _ask(self, source: Source) -> None:
        began_at_s = self._clock.monotonic()
        try:
            ends = source.ends(self._parts)
        except Exception as error:  # noqa: BLE001  # the reading thread meets it too
            logger.debug("the ends are not known now: %s", error)
            silent_s = self._clock.monotonic() - self._answered_at_s
            if silent_s >= SOURCE_SILENT_S and not self._closing.is_set():
                silence = f"{source.server} has not answered for {SOURCE_SILENT_S:g} s"
                self._concerns.say(SOURCE, f"{silence}: {line(error)}")
        else:
            self._answered_at_s = began_at_s
            self._concerns.say(SOURCE, None)
            self._meter.ends_at(ends, self._clock.monotonic())
