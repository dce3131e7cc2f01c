"""A DDL on a target: one put-if-absent commit, which takes effect once and in its place.

The commit carries the table's new metadata, the removes and adds of rows that had to be written
anew, and the DDL's position (commit-ts and order) in the table's properties. A later try of the
same or an older DDL finds that position and changes nothing.

The transaction identity goes to commit-ts - 1: all rows below the DDL are in the table, and a late
write of them is skipped. It does not go to commit-ts: rows of the same ts come after the DDL, and
must not be skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, Ts
from sinks.ddl.session_values import SessionValues
from sinks.merge_on_write.alter.assumed import assumed
from sinks.merge_on_write.alter.dropped_rows import NEVER_MS, DroppedRows, kept_uri
from sinks.merge_on_write.alter.duplicate_keys import refuse_doubles
from sinks.merge_on_write.alter.duplicate_rows import take_deleted_out
from sinks.merge_on_write.alter.ended_rows import rows_to_end, write_ended
from sinks.merge_on_write.alter.new_metadata import NewMetadata, new_metadata
from sinks.merge_on_write.alter.partition_rows import find_partitions
from sinks.merge_on_write.alter.rewrite import PartRewrite, rewrite
from sinks.merge_on_write.alter.table_ddl import (
    DropTable,
    ExchangeRows,
    MakeAgain,
    RemovePartitions,
    Reshape,
    TableDdl,
)
from sinks.merge_on_write.files import data_files
from sinks.merge_on_write.files.file_cache import DeletedRows
from sinks.merge_on_write.files.sorted_files import write_sorted
from sinks.merge_on_write.log.actions import AppTransaction, DataFile, Json, Metadata
from sinks.merge_on_write.log.commit import LostRace
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.physical_schema import NotForThisEngine, PhysicalSchema
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.row_history import Beyond, Hits, merged, without
from sinks.merge_on_write.table_handle import TableHandle
from sinks.target.engine_port import Applied, Skipped, TableHeld
from sinks.target.table_properties import (
    ALTERED,
    ASSUMED,
    CLOSED,
    DDL,
    DROPPED,
    LAST_DDL,
    LEFT,
    REKEYED,
    SHAPED_AT,
    SHARDS,
    TRUNCATED,
    TableProperties,
)
from sinks.target.way_out import paused
from sinks.types.key_hash import Ordinals


def alter(table: TableHandle, order: TableDdl) -> Applied | Skipped:
    """Carry the DDL out, or find that it was. Hold the table's lock.

    Raises NotForThisEngine for a table that this engine does not write, TidelakeError with the
    reason where the rows do not allow the change, TableHeld, TryAgain.
    """
    try:
        return table.until_won(lambda: _try(table, order))
    except NotForThisEngine as error:
        raise NotForThisEngine(
            f"table {order.target.name}: a DDL is carried out by merge-on-write alone, which does "
            f"not write this table: {error}; undo that, or drop the table and let it be made anew"
        ) from error


def _try(table: TableHandle, order: TableDdl) -> Applied | Skipped:
    """On the version that was followed. Raises LostRace."""
    kept: DroppedRows | None = None
    if isinstance(order, DropTable) and order.on_drop == "keep":
        kept = DroppedRows(table.located.open_place(kept_uri(table.uri, order.ddl)))
        table.refresh()
    state, app_id = table.state, order.target.app_id
    assert state.metadata is not None
    identity = state.transactions.get(app_id)
    reached = Ts(0 if identity is None else identity.version)
    notes = notes_of(state)
    is_in_shape = notes.is_at_least(order.ddl)
    does_more = order.removes_rows or order.shards not in (None, notes.shards)
    if (
        notes.is_carried_out(app_id, reached, order.ddl)
        or (is_in_shape and (isinstance(order, ExchangeRows) or not does_more))
        or (_leaves(order) and order.ddl.arrival.same_as(notes.ddl))
    ):
        return Skipped(state.version, reached)
    if is_paused(state.metadata):
        raise TableHeld(paused(order.target.name))
    _ = table.shape  # NotForThisEngine
    new = _reshaped(table, order) if isinstance(order, Reshape) and not is_in_shape else None
    properties = _noted(order, state, is_in_shape=is_in_shape)
    if isinstance(order, MakeAgain) or order.removes_all:
        properties |= {ASSUMED: "[]"} if notes.assumed else {}
    elif isinstance(order, Reshape) and new is not None and table.files:  # else no row has a value
        properties |= _assumed(order, new, notes)
    if order.bars_rewind or (new is not None and new.rekeys):
        properties[REKEYED] = str(order.ddl.commit_ts)
    metadata = state.metadata if new is None else new.metadata
    told = {**metadata.fields, "configuration": {**metadata.configuration, **properties}}
    now_ms = int(time.time() * 1000)
    below = max(reached, order.ddl.commit_ts - 1)  # of a feed that ended at the DDL's own ts
    txn = AppTransaction(app_id=app_id, version=below, last_updated_ms=now_ms)
    actions = [txn.to_json(), Metadata(fields=told).to_json()]
    if new is not None and new.protocol != state.protocol:
        actions.append(new.protocol.to_json())
    if new is not None and (told_anew := clustering(state, new.shape)) is not None:
        actions.append(told_anew)
    if kept is not None and (table.files or kept.is_new):
        kept.take(state, table.uri)
    return Applied(_commit(table, order, new, actions))


def _assumed(order: Reshape, new: NewMetadata, notes: TableProperties) -> dict[str, str]:
    assert order.change is not None
    values = SessionValues.of((each.origin for each in new.columns), order.rules)
    target = replace(order.target, schema=order.change.after)
    return assumed(values, target, notes, order.rules, order.ddl.commit_ts)


def _leaves(order: TableDdl) -> bool:
    """By a RENAME TABLE."""
    return isinstance(order, DropTable) and order.on_drop == "rename"


def _noted(order: TableDdl, state: LogState, *, is_in_shape: bool) -> dict[str, str]:
    """The table's properties that describe the DDL."""
    is_drop, is_made = isinstance(order, DropTable), isinstance(order, MakeAgain)
    marks = {ALTERED: not is_in_shape, DROPPED: is_drop, DDL: is_made}
    properties = {name: order.ddl.to_json() for name, is_set in marks.items() if is_set}
    properties[LAST_DDL] = json.dumps([order.target.app_id, *order.ddl.position])
    if not is_in_shape:
        properties[SHAPED_AT] = json.dumps([*order.ddl.position, state.version + 1])
    if order.takes_rows_elsewhere:
        left = notes_of(state).left_at(order.ddl.commit_ts)  # the first one has taken all
        left_at = state.version if left is None else left
        properties[LEFT] = json.dumps([order.ddl.commit_ts, left_at])
    if isinstance(order, ExchangeRows):
        properties[REKEYED] = str(order.ddl.commit_ts)  # no rewind: it would be done twice
    if order.shards is not None:
        properties[SHARDS] = order.shards
    if order.bars_recovery:
        properties[TRUNCATED] = str(order.ddl.commit_ts)
    if order.ends_rows and order.target.form.is_history:
        properties[CLOSED] = json.dumps([order.target.app_id, order.ddl.commit_ts])
    return properties


def notes_of(state: LogState) -> TableProperties:
    assert state.metadata is not None
    return TableProperties(properties=state.metadata.configuration)


def _reshaped(table: TableHandle, order: Reshape) -> NewMetadata | None:
    state, change = table.state, order.change
    if change is None:
        return None
    assert state.metadata is not None
    assert state.protocol is not None
    new = new_metadata(state.protocol, state.metadata, change, on_add_default=order.on_add_default)
    converted = [each.column.name for each in new.columns if each.origin.types is not None]
    if converted and order.on_type_change == "stop":
        raise TidelakeError(
            f"table {order.target.name}: the type of {', '.join(converted)} changes, which means "
            "to write all rows anew: on-type-change = 'stop' forbids it"
        )
    return new


def clustering(state: LogState, shape: PhysicalSchema) -> Json | None:
    """The columns that a table is clustered by, if one of them is gone from its new shape."""
    fields = state.domains.get("delta.clustering", {})
    told = json.loads(fields.get("configuration") or "{}")
    columns = told.get("clusteringColumns") or []
    physical = {column.physical for column in shape.columns}
    left = [path for path in columns if path[0] in physical]
    if left == columns:
        return None
    configuration = json.dumps({**told, "clusteringColumns": left})
    return {"domainMetadata": {**fields, "configuration": configuration}}


def _commit(
    table: TableHandle, order: TableDdl, new: NewMetadata | None, actions: list[Json]
) -> int:
    looked_at = table.state.version
    key = order.target.sorted_by if new is None else order.sorted_by
    written: list[DataFile] = []
    marked: list[tuple[DataFile, DeletedRows]] = []
    is_put = False
    try:
        gone, marked = _rows_anew(table, order, new, key, written)
        actions += [*gone, *(each.add(data_change=True) for each in written)]
        _look_again(table, looked_at, written)
        order.before_commit()
        is_put = True
        version = table.commit(
            looked_at,
            actions,
            operation=order.operation,
            user_metadata=order.ddl.to_json(),
        )
    except BaseException as error:
        if not is_put or isinstance(error, LostRace):  # no commit names the files, and none will
            with suppress(OSError):  # then they go as orphans; what is told is why there are some
                table.storage.delete(each.path for each in written)
        raise
    for file, deleted in marked:
        table.marked(file, deleted)
    return version


def _look_again(table: TableHandle, looked_at: int, written: Sequence[DataFile]) -> None:
    """To write them may have taken hours, and others have written some. Raises LostRace where a
    commit came meanwhile, TidelakeError where a file is not there."""
    if not written:
        return
    before = table.state
    table.refresh()
    if table.state is not before or before.version != looked_at:
        raise LostRace(f"another commit came first on {table.uri}")
    there = {each.path: each.size for each in table.storage.list("")}
    lost = [each.path for each in written if there.get(each.path) != each.size]
    if lost:
        raise TidelakeError(
            f"{len(lost)} of {len(written)} files that were written for {table.uri} are not there, "
            f"{lost[0]} say: executors write where the driver does not look, or somebody deletes "
            "files that no commit names yet"
        )


def _rows_anew(
    table: TableHandle,
    order: TableDdl,
    new: NewMetadata | None,
    key: tuple[str, ...],
    written: list[DataFile],
) -> tuple[list[Json], list[tuple[DataFile, DeletedRows]]]:
    """The actions that take rows out, and the files that stay, with their vectors. ``written``: the
    files that come in their place."""
    hits: Hits | None = {}  # None: all
    if order.ends_rows and order.removes_rows and order.ended:
        hits, anew = _to_end(table, order)
        for rows_of, values in anew:
            for each in write_ended(table, rows_of, values, key):
                written.append(each.file)
    elif order.removes_all or (new is not None and new.must_rewrite):
        hits = None
        if isinstance(order, Reshape) and new is not None:
            _write(table, order, new, key, written)
    elif order.gone_partitions:
        hits = _of_partitions(table, order, None)
    for rows in order.comes() if isinstance(order, ExchangeRows) else ():
        found = data_files.physical_rows(rows, table.shape)
        written += [each.file for each in write_sorted(table.storage, found, key, table.shape)]
    now_ms = int(time.time() * 1000)  # their retention begins now: to write many rows takes long
    if hits is not None:
        return table.taken_out(hits, now_ms)
    is_kept = isinstance(order, DropTable) and order.on_drop != "drop"
    removed_ms = NEVER_MS if is_kept else now_ms
    live = (each.file for each in table.files.values())
    return [file.remove(removed_ms, data_change=True) for file in live], []


def _to_end(
    table: TableHandle, order: TableDdl
) -> tuple[Hits, list[tuple[Hits, Mapping[str, Any]]]]:
    """The rows to take out, and those among them that are written anew, with these values."""
    there = rows_to_end(table, order.ended)
    form = order.target.form
    beyond = Beyond(later={}, reopened={})
    if form.is_history:
        beyond = Beyond.of(table, Ts(order.ddl.commit_ts - 1), order.target.app_id)
    current = beyond.taken_back(there)
    ended = _of_partitions(table, order, current) if order.gone_partitions else current
    opened = without(beyond.reopened, ended)
    out = merged(merged(ended, beyond.later), opened)
    return out, [(ended, order.ended), (opened, form.not_ended)]


def _of_partitions(table: TableHandle, order: TableDdl, among: Hits | None) -> dict[str, Ordinals]:
    schema, name = order.target.schema, order.target.name
    then = order.partitions_then if isinstance(order, RemovePartitions) else None
    try:
        return find_partitions(
            table,
            schema if then is None else replace(schema, partitioning=then),
            order.gone_partitions,
            order.rules,
            among=among,
            are_all_known=then is None,
            null_dates=order.null_dates,
        )
    except TidelakeError as error:
        raise type(error)(f"table {name}: {error}") from error


def _write(
    table: TableHandle,
    order: Reshape,
    new: NewMetadata,
    key: tuple[str, ...],
    written: list[DataFile],
) -> None:
    name = order.target.name
    work = PartRewrite(
        uri=table.uri,
        open_place=table.located.open_place,
        new=new,
        key=key,
        rules=order.rules,
        ddl_ms=order.ddl.commit_ts >> TSO_LOGICAL_BITS,
        null_dates=order.null_dates,
    )
    try:
        for each in rewrite(work, [each.file for each in table.files.values()], order.map_parts):
            written.append(each)
        if new.key_changes:
            columns = [new.shape.column(name) for name in key]
            if order.target.form.soft_delete:
                take_deleted_out(written, columns, work, order.map_parts)
            else:
                refuse_doubles(written, columns, work, order.map_parts)
    except TidelakeError as error:
        raise type(error)(f"table {name}: {error}") from error
