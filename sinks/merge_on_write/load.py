"""Fills a new table: many pieces of rows, one commit, with the identity of the moment at which the
rows were right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.log.actions import AppTransaction, Json
from sinks.merge_on_write.table_handle import TableHandle
from sinks.target.engine_port import OP_COLUMN, Applied, Skipped, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoad:
    """``pieces``: the rows, in the target's columns and Delta's types; no key is there twice.
    Each is asked for once, and only one is in memory at a time."""

    target: Target
    limit: Ts
    pieces: Iterable[pa.Table]
    user_metadata: str
    before_commit: Callable[[], None] = lambda: None


def load(table: TableHandle, order: TableLoad) -> Applied | Skipped:
    """Under the table's lock. Skipped: an earlier load has done it. Raises TidelakeError for a
    table that has rows of others."""
    table.refresh()
    app_id = order.target.app_id
    written: list[Json] | None = None

    def attempt() -> Applied | Skipped:
        nonlocal written
        state = table.state
        identity = state.transactions.get(app_id)
        if identity is not None and identity.version >= order.limit:
            return Skipped(state.version, Ts(identity.version))
        if state.files:
            raise TidelakeError(
                f"table {order.target.name} at {order.target.uri} has rows already, and no copy "
                "is made on top of them: move the table away, or give another sink-uri"
            )
        looked_at = state.version
        if written is None:
            written = [action for piece in order.pieces for action in _written(table, order, piece)]
        order.before_commit()
        now_ms = int(time.time() * 1000)
        named = AppTransaction(app_id=app_id, version=order.limit, last_updated_ms=now_ms).to_json()
        return Applied(
            table.commit(
                looked_at,
                [named, *written],
                operation="WRITE",
                user_metadata=order.user_metadata,
            )
        )

    return table.until_won(attempt)


def _written(table: TableHandle, order: TableLoad, piece: pa.Table) -> list[Json]:
    if OP_COLUMN in piece.column_names:
        piece = piece.drop_columns([OP_COLUMN])
    rows = data_files.physical_rows(piece, table.shape)
    found = write_sorted(table.storage, rows, order.target.sorted_by, table.shape)
    return [each.file.add(data_change=True) for each in found]
