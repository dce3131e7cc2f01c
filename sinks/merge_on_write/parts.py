"""Work on a large table in parts: each is a pure function of values that another process can be
sent, and so is what comes of it. Who does them, and where, is decided by who asks for the work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


class PartMapper(Protocol):
    def __call__(
        self, work: Callable[[Part], Result], parts: Sequence[Part], size_bytes: int, /
    ) -> Generator[Result]:
        """The results in the order of the parts; what ``work`` raises of the first part that it
        raises for. Close it where not all are taken: that ends the work.

        ``work`` and ``parts`` can be pickled. A part may be done more than once, also side by side,
        and one result of it counts. ``size_bytes``: of the data files that all of it is about.
        """
        ...


def one_by_one(
    work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
) -> Generator[Result]:
    """A `PartMapper` that does them on the caller's thread, as their results are asked for."""
    yield from map(work, parts)
