"""The permission to write a table, and in whose name; asked for right before each commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from coordination.model import TableName, Ts


class CommitWithdrawn(Exception):
    """The table is no longer this capture's, or may not be written up to that limit: this write is
    dropped, those of other tables go on.
    """


class CommitGuard(Protocol):
    """Implementations are thread-safe, since several tables are written at the same time."""

    @property
    def capture_id(self) -> str: ...

    def check(self) -> None:
        """Raise Fenced if this capture may write nothing."""
        ...

    def begin(self, name: TableName, limit: Ts) -> None:
        """Called right before a commit, which begins if this returns. Raises Fenced or
        CommitWithdrawn if it must not."""
        ...

    def ended(self, name: TableName) -> None:
        """Called when a write of the table has ended, whether it came to a commit or not."""
        ...

    def signature(self, name: TableName) -> Mapping[str, object]:
        """The writer of the table, for the commit's metadata."""
        ...
