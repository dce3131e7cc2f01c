"""The concern about watermarks that are too far ahead of the clocks to be believed.

    one is read ──► a concern, which names it ──► a good one of that partition, a minute later: over

The message is a dead letter, and does not count. Had it counted, everything below it would have
been taken for read, and rows that come later for old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from streaming.protocols.contract import FAR_WATERMARK, Block, Kind
from streaming.stream.lasting_warnings import LastingWarnings

SHOWN_S: Final = 60.0  # the least time that it is shown


class FarWatermarks:
    """The far watermarks of the owner's reader. One thread. ``place``: gives the name of a place
    for a sentence."""

    def __init__(self, concerns: LastingWarnings, place: Callable[[str, int], str]) -> None:
        self._concerns = concerns
        self._place = place
        self._open: dict[str, tuple[int, float]] = {}  # position, and until when

    def look(self, blocks: Sequence[Block]) -> None:
        """At the blocks of a read."""
        for block in blocks:
            where = block.part
            if block.kind is Kind.BAD:
                self._look_at_bad(where, block)
            elif block.kind is Kind.WATERMARK and where in self._open:
                position, until_s = self._open[where]
                if block.last > position and time.monotonic() >= until_s:
                    del self._open[where]
                    self._concerns.say(_about(where), None)

    def close(self) -> None:
        for where in list(self._open):
            self._concerns.withdraw(_about(where))

    def _look_at_bad(self, where: str, block: Block) -> None:
        for each in block.table().select(["position", "error_class", "error_message"]).to_pylist():
            if each["error_class"] == FAR_WATERMARK:
                self._open[where] = each["position"], time.monotonic() + SHOWN_S
                self._concerns.say(
                    _about(where),
                    f"{self._place(where, each['position'])}: "
                    f"{each['error_message']}, and is in _tidelake/dead_letters. Is the clock of "
                    "TiDB's PD right, and does something else write to the topic?",
                )


def _about(where: str) -> str:
    return f"watermark of {where}"
