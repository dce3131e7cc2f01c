"""RENAME TABLE: a table goes on under another name, and none of its rows is copied or moved.

A target is where its name says, and an object store cannot rename a folder. So the log under the
new name names the files of the old one where they are, absolutely, as a shallow clone does:

    leave   the log under the old name takes all files out and is marked dropped (``alter``)
    arrive  the log under the new name takes in the version that was left

Each is one put-if-absent commit with the DDL's identity. All tables of a statement leave before the
first one arrives. So the left version changes no more, whoever writes late, and two tables can swap
their names. A kill in between loses nothing: the files stay, since their tombstones never expire,
and the left version stands in the log. The next owner goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import TableName
from sinks.merge_on_write.alter.ddl_commit import notes_of
from sinks.merge_on_write.alter.table_ddl import DropTable
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.shallow_clone import ShallowClone, check_free, clone_into
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.table_handle import TableGone, TableHandle
from sinks.storage.errors import one_sentence
from sinks.target.engine_port import Target
from sinks.target.table_properties import SHARDS, DdlIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRename:
    """``moves``: each target under its old name and under its new one, as the names are before and
    after the whole statement. ``properties``: ``tables.ownership`` of the new ones. ``shards``: the
    property of that name, by new name.
    """

    moves: Sequence[tuple[Target, Target]]
    ddl: DdlIdentity
    properties: Mapping[str, str]
    shards: Mapping[TableName, str] = field(default_factory=dict)
    before_commit: Callable[[], None] = lambda: None


def rename(engine: MergeOnWriteEngine, order: TableRename) -> dict[str, int]:
    """Does the whole DDL, or the steps that an earlier try left undone. Returns the last version
    under each old name, by its URI.

    Raises, before anything has changed, NotForThisEngine for a table that this engine does not
    write, and TidelakeError where another table has the new name; TableHeld, TryAgain.
    """
    left: dict[str, int | None] = {}
    leaving = {source.uri for source, _ in order.moves}
    arrivals = [_arrival(engine, order, source, target, left) for source, target in order.moves]
    for (source, target), each in zip(order.moves, arrivals, strict=True):
        _check_source(engine.table(source.uri), order, source)
        if target.uri not in leaving:
            check_free(engine.table(target.uri), each)
    for source, _ in order.moves:
        left[source.uri] = _leave(engine, order, source)
    for each in arrivals:
        failpoint(Failpoint.AMID_RENAME)
        clone_into(engine.table(each.target.uri), each)
    return {uri: version for uri, version in left.items() if version is not None}


def _arrival(
    engine: MergeOnWriteEngine,
    order: TableRename,
    source: Target,
    target: Target,
    left: Mapping[str, int | None],
) -> ShallowClone:
    """``left``: the versions that have left their old names, once they have."""

    def coming() -> LogState:
        version = left[source.uri]
        storage = engine.table(source.uri).storage
        found = None if version is None else read_log(storage, version=version)
        if found is None:
            raise TidelakeError(
                f"the version for {target.name} is no longer at {source.uri}: somebody has changed "
                "that table; restore it"
            )
        return found

    shards = {SHARDS: order.shards[target.name]} if target.name in order.shards else {}
    return ShallowClone(
        target=target,
        ddl=order.ddl,
        properties={**order.properties, **shards},
        operation="RENAME TABLE",
        source=source.uri,
        coming=coming,
        before_commit=order.before_commit,
    )


def _check_source(table: TableHandle, order: TableRename, source: Target) -> None:
    with table.lock, one_sentence("read the Delta log of", table.uri):
        try:
            table.refresh()
        except TableGone:
            return  # who takes it away says so
        if notes_of(table.state).left_at(order.ddl.commit_ts) is None:
            try:
                _ = table.shape
            except NotForThisEngine as error:
                raise NotForThisEngine(
                    f"table {source.name} is renamed by merge-on-write alone, which does not write "
                    f"it: {error}; undo that, or drop the table and let it be made anew"
                ) from error


def _leave(engine: MergeOnWriteEngine, order: TableRename, source: Target) -> int | None:
    """Which version has left; None where another table has the old name by now."""
    fence = order.before_commit
    engine.alter(DropTable(target=source, ddl=order.ddl, on_drop="rename", before_commit=fence))
    table = engine.table(source.uri)
    with table.lock:
        return notes_of(table.state).left_at(order.ddl.commit_ts)
