"""Ends have deadlines: what was told to end and does not, in time, ends with its capture."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from coordination.errors import CaptureSuicide


class Closable(Protocol):
    def close(self, *, drop: bool) -> None:
        """Begin to end. Idempotent."""
        ...

    def is_closed(self) -> bool: ...


C = TypeVar("C", bound=Closable)


class Closings(Generic[C]):
    """Those of one kind that end. One thread."""

    def __init__(self, what: str, limit_s: float) -> None:
        """``what``: as an operator reads it."""
        self._what = what
        self._limit_s = limit_s
        self._open: list[tuple[str, C]] = []
        self._since: dict[int, float] = {}  # by id, as `check` first saw it

    def begin(self, name: str, each: C, *, drop: bool) -> None:
        each.close(drop=drop)
        self._open.append((name, each))

    def close(self, *, drop: bool) -> None:
        """All of them, by now like this."""
        for _, each in self._open:
            each.close(drop=drop)

    def names(self) -> set[str]:
        """Of those that have not ended."""
        self._open = [(name, each) for name, each in self._open if not each.is_closed()]
        return {name for name, _ in self._open}

    def check(self, now_s: float) -> None:
        """Raises ``CaptureSuicide`` when one takes longer than it may."""
        self.names()
        self._since = {id(each): self._since.get(id(each), now_s) for _, each in self._open}
        for name, each in self._open:
            if now_s - self._since[id(each)] > self._limit_s:
                raise CaptureSuicide(
                    f"{self._what} of changefeed {name} has not ended within {self._limit_s:g} s"
                )
