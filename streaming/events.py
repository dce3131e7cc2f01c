"""What a feed says beside rows and watermarks."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.model import TableName, Ts


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A DDL as it was sent. Identity: (commit_ts, query, name); order: (commit_ts, offset)."""

    commit_ts: Ts
    offset: int
    name: TableName
    ddl_type: str
    query: str
