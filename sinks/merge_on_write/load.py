"""Fills a table: many pieces of rows, one commit, with the identity of the moment at which the rows
were right. They are the first ones of a new table, or come in the place of all that it had."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from coordination.errors import TidelakeError, TryAgain
from coordination.model import SEALED_TS, Ts
from sinks.merge_on_write.alter.ddl_commit import clustering
from sinks.merge_on_write.alter.made_anew import MadeAnew, remade
from sinks.merge_on_write.counted_rows import held_until, without_marks
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.log.actions import AppTransaction, Json, Metadata, Protocol
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.physical_schema import PhysicalSchema
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.table_handle import TableHandle
from sinks.target.engine_port import Applied, Skipped, TableHeld, Target
from sinks.target.target_table import ROWS_REACHED
from sinks.target.way_out import paused

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
    anew: MadeAnew | None = None  # what comes in the place of all that the table has; None: nothing


def load(table: TableHandle, order: TableLoad) -> Applied | Skipped:
    """Under the table's lock. Skipped: an earlier load has done it. Raises TidelakeError for a
    table that has rows of others, unless they are to go."""
    if order.anew is not None:
        return _Anew(table, order, order.anew).run()
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
            written = list(_side_by_side(table, order, table.shape))
        order.before_commit()
        return Applied(
            table.commit(
                looked_at,
                [*_named(order), *written],
                operation="WRITE",
                user_metadata=order.user_metadata,
            )
        )

    return table.until_won(attempt)


class _Anew:
    """One load in the place of what the table has: all files go and come by one commit."""

    def __init__(self, table: TableHandle, order: TableLoad, anew: MadeAnew) -> None:
        self._table, self._order, self._anew = table, order, anew
        self._made: tuple[Metadata | None, Protocol, Metadata] | None = None
        self._written: list[Json] | None = None

    def run(self) -> Applied | Skipped:
        return self._table.until_won(self._try)

    def _try(self) -> Applied | Skipped:
        table, order, anew = self._table, self._order, self._anew
        state, target = table.state, order.target
        assert state.metadata is not None
        identity = state.transactions.get(target.app_id)
        reached = Ts(0 if identity is None else identity.version)
        if target.schema.counts_rows:
            reached = max(reached, held_until(state))
        if anew.is_done(state.metadata):
            return Skipped(state.version, reached)
        if is_paused(state.metadata):
            raise TableHeld(paused(target.name))
        if reached > order.limit:
            raise TryAgain(f"table {target.name} has gone on to {reached} meanwhile")
        protocol, metadata = self._remade(state)
        shape = PhysicalSchema.of(protocol, metadata)
        if self._written is None:
            self._written = list(_side_by_side(table, order, shape))
        order.before_commit()
        told = {**metadata.configuration, **anew.notes(target.app_id, state.version + 1)}
        told_anew = Metadata(fields={**metadata.fields, "configuration": told})
        now_ms = int(time.time() * 1000)
        gone = [each.file.remove(now_ms, data_change=True) for each in table.files.values()]
        also = [protocol.to_json()] if protocol != state.protocol else []
        if (clustered := clustering(state, shape)) is not None:
            also.append(clustered)
        return Applied(
            table.commit(
                state.version,
                [*_named(order, anew.sealed), told_anew.to_json(), *also, *gone, *self._written],
                operation="REPLACE TABLE",
                user_metadata=order.user_metadata,
            )
        )

    def _remade(self, state: LogState) -> tuple[Protocol, Metadata]:
        """The same at each try, since the rows are written by it once. Raises TryAgain."""
        assert state.protocol is not None
        assert state.metadata is not None
        if self._made is None:
            self._made = state.metadata, *remade(state.protocol, state.metadata, self._anew)
        before, protocol, metadata = self._made
        if before != state.metadata:
            name = self._order.target.name
            raise TryAgain(f"table {name} was altered by others while its rows were written")
        return protocol, metadata


def _named(order: TableLoad, sealed: Sequence[str] = ()) -> list[Json]:
    """The actions that say how far the table is afterwards, and who writes it no more."""
    now_ms = int(time.time() * 1000)
    versions = {order.target.app_id: order.limit, **dict.fromkeys(sealed, SEALED_TS)}
    if order.target.schema.counts_rows:
        versions[ROWS_REACHED] = order.limit
    return [
        AppTransaction(app_id=each, version=at, last_updated_ms=now_ms).to_json()
        for each, at in versions.items()
    ]


def _side_by_side(table: TableHandle, order: TableLoad, shape: PhysicalSchema) -> Iterator[Json]:
    """In the order of the pieces, of which no more than `WRITERS` are begun and not taken."""
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="load") as pool:
        begun: deque[Future[list[Json]]] = deque()
        try:
            for piece in order.pieces:
                begun.append(pool.submit(_written, table, order, piece, shape))
                if len(begun) > WRITERS:
                    yield from begun.popleft().result()
            while begun:
                yield from begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()


def _written(
    table: TableHandle, order: TableLoad, make: Callable[[], pa.Table], shape: PhysicalSchema
) -> list[Json]:
    piece = make()
    if not piece.num_rows:
        return []
    rows = data_files.physical_rows(without_marks(piece), shape)
    found = write_sorted(table.storage, rows, order.target.sorted_by, shape)
    return [each.file.add(data_change=True) for each in found]
