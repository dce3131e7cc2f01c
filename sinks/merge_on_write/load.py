"""Fills a new table: many pieces of rows, one commit, with the identity of the moment at which the
rows were right."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.counted_rows import holds_until, without_marks
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.log.actions import AppTransaction, Json
from sinks.merge_on_write.table_handle import TableHandle
from sinks.target.engine_port import Applied, Skipped, Target

WRITERS: Final = max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoad:
    """``pieces``: functions that make the rows, in the target's columns and Delta's types; no key
    is there twice, unless rows are counted. Each is called once, on one of `WRITERS` threads, and
    its rows are written before the thread takes another."""

    target: Target
    limit: Ts
    pieces: Iterable[Callable[[], pa.Table]]
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
            written = [action for some in _side_by_side(table, order) for action in some]
        order.before_commit()
        now_ms = int(time.time() * 1000)
        named = [AppTransaction(app_id=app_id, version=order.limit, last_updated_ms=now_ms)]
        if order.target.schema.counts_rows:
            named.append(holds_until(order.limit, now_ms))
        return Applied(
            table.commit(
                looked_at,
                [*(each.to_json() for each in named), *written],
                operation="WRITE",
                user_metadata=order.user_metadata,
            )
        )

    return table.until_won(attempt)


def _side_by_side(table: TableHandle, order: TableLoad) -> Iterator[list[Json]]:
    """In the order of the pieces, of which no more than `WRITERS` are begun and not taken."""
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="load") as pool:
        begun: deque[Future[list[Json]]] = deque()
        try:
            for piece in order.pieces:
                begun.append(pool.submit(_written, table, order, piece))
                if len(begun) > WRITERS:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()


def _written(table: TableHandle, order: TableLoad, make: Callable[[], pa.Table]) -> list[Json]:
    piece = make()
    if not piece.num_rows:
        return []
    rows = data_files.physical_rows(without_marks(piece), table.shape)
    found = write_sorted(table.storage, rows, order.target.sorted_by, table.shape)
    return [each.file.add(data_change=True) for each in found]
