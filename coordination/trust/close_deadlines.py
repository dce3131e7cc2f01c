"""Deadlines for closing: if a replica or a control writer that was told to end does not end in
time, its capture ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordination.errors import CaptureSuicide


class Closable(Protocol):
    def close(self, *, drop: bool) -> None:
        """Begin to end. Idempotent."""
        ...

    def is_closed(self) -> bool: ...


@dataclass(slots=True)
class _Closing:
    name: str  # of the changefeed
    each: Closable
    since_s: float | None = None  # when `check` first saw it


class Closings:
    """The replicas, or the control writers, that are closing. One thread; nothing blocks."""

    def __init__(self, what: str, limit_s: float) -> None:
        """``what`` names the closing things in messages, as "the replica". ``limit_s``: how long
        one may take to close, from the first `check` that sees it."""
        self._what = what
        self._limit_s = limit_s
        self._open: list[_Closing] = []

    def begin(self, name: str, each: Closable, *, drop: bool) -> None:
        each.close(drop=drop)
        self._open.append(_Closing(name, each))

    def close(self, *, drop: bool) -> None:
        """Close all of them again, perhaps with another ``drop``."""
        for closing in self._open:
            closing.each.close(drop=drop)

    def names(self) -> set[str]:
        """The changefeeds whose closing has not ended."""
        self._open = [closing for closing in self._open if not closing.each.is_closed()]
        return {closing.name for closing in self._open}

    def check(self, now_s: float) -> None:
        """Raises ``CaptureSuicide`` if one takes longer than the limit. `now_s`: monotonic."""
        self.names()
        for closing in self._open:
            if closing.since_s is None:
                closing.since_s = now_s
            if now_s - closing.since_s > self._limit_s:
                raise CaptureSuicide(
                    f"{self._what} of changefeed {closing.name} has not ended within "
                    f"{self._limit_s:g} s"
                )
