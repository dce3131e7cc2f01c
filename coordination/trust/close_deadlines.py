"""Deadlines for closing: if a replica, a control writer or a unit that was told to end does not end
in time, its capture ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Generic, Protocol, TypeVar

from coordination.errors import CaptureSuicide

K = TypeVar("K")


class CloseDeadline(Generic[K]):
    """How long each of several things has been closing, from the first `check` that sees it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s: dict[K, float] = {}

    def check(self, closing: Mapping[K, str], now_s: float) -> None:
        """``closing``: what is closing now, in words. Raises ``CaptureSuicide`` if one of them
        takes longer than the limit. `now_s`: monotonic."""
        self._since_s = {each: self._since_s.get(each, now_s) for each in closing}
        for each, since_s in self._since_s.items():
            if now_s - since_s > self._limit_s:
                raise CaptureSuicide(f"{closing[each]} has not ended within {self._limit_s:g} s")


class Closable(Protocol):
    def close(self, *, drop: bool) -> None:
        """Begin to end. Idempotent."""
        ...

    def is_closed(self) -> bool: ...


@dataclass(slots=True)
class _Closing:
    number: int  # one changefeed may have several that close, one behind the other
    name: str  # of the changefeed
    each: Closable


class Closings:
    """The replicas, or the control writers, that are closing. One thread; nothing blocks."""

    def __init__(self, what: str, limit_s: float) -> None:
        """``what`` names the closing things in messages, as "the replica". ``limit_s``: how long
        one may take to close, from the first `check` that sees it."""
        self._what = what
        self._deadline: CloseDeadline[int] = CloseDeadline(limit_s)
        self._numbers = count()
        self._open: list[_Closing] = []

    def begin(self, name: str, each: Closable, *, drop: bool) -> None:
        each.close(drop=drop)
        self._open.append(_Closing(next(self._numbers), name, each))

    def close(self, *, drop: bool) -> None:
        """Close all of them again, perhaps with another ``drop``."""
        for closing in self._open:
            closing.each.close(drop=drop)

    def names(self) -> set[str]:
        """The changefeeds whose closing has not ended."""
        return {closing.name for closing in self._still_open()}

    def check(self, now_s: float) -> None:
        """Raises ``CaptureSuicide`` if one takes longer than the limit. `now_s`: monotonic."""
        words = {
            each.number: f"{self._what} of changefeed {each.name}" for each in self._still_open()
        }
        self._deadline.check(words, now_s)

    def _still_open(self) -> list[_Closing]:
        self._open = [closing for closing in self._open if not closing.each.is_closed()]
        return self._open
