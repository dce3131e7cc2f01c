"""Who lets a table be written, and in whose name; asked right before each commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from coordination.model import TableName, Ts


class Withdrawn(Exception):
    """The table is no longer ours, or not as far as that: this write is dropped, the others go
    on.
    """


class Permit(Protocol):
    """Thread-safe: several tables are written side by side."""

    @property
    def capture_id(self) -> str: ...

    def check(self) -> None:
        """Raises Fenced when nothing may be written."""
        ...

    def begin(self, name: TableName, limit: Ts) -> None:
        """A commit begins now, if this returns; it may raise Fenced or Withdrawn."""
        ...

    def ended(self, name: TableName) -> None:
        """Nothing of a write is under way any more, whether it came to a commit or not."""
        ...

    def signature(self, name: TableName) -> Mapping[str, object]:
        """Who writes it, for the commit's metadata."""
        ...
