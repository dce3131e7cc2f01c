"""RENAME TABLE: a table goes on under another name, and none of its rows is copied or moved.

A target is where its name says, and an object store cannot rename a folder. So the log under the
new name names the files of the old one where they are, absolutely, as a shallow clone does:

    leave   the log under the old name takes all files out and is marked dropped (``alter``)
    arrive  the log under the new name takes in the version that was left

Each is one put-if-absent commit with the DDL's identity. All tables of a statement leave before the
first one arrives: what was left changes no more, whoever writes late, and so two tables can swap
their names. A kill in between loses nothing: the files stay, since their tombstones never expire,
and the version that was left stands in the log; who comes next goes on from there.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coordination.errors import TidelakeError, TryAgain
from coordination.model import Ts
from sinks.apply import Applied, Skipped, TableHeld, Target
from sinks.merge_on_write.actions import AppTransaction, Json, Metadata, Protocol
from sinks.merge_on_write.alter import (
    TableDdl,
    arrival,
    is_at_least,
    is_carried_out,
    left_version,
)
from sinks.merge_on_write.commit import LostRace, create_table
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.located import absolute
from sinks.merge_on_write.log_reader import read_log
from sinks.merge_on_write.log_state import LogState
from sinks.merge_on_write.new_shape import MAX_COLUMN_ID
from sinks.merge_on_write.open_table import MAX_RACES, OpenTable, TableGone
from sinks.merge_on_write.pause import is_paused
from sinks.merge_on_write.table_shape import NotForThisEngine
from sinks.storage_errors import one_sentence
from sinks.tables import (
    ALTERED,
    CHANGEFEED,
    DDL,
    DROPPED,
    INCARNATION,
    LAST_DDL,
    LEFT,
    SHAPED_AT,
    WRITER,
    DdlIdentity,
    is_dropped,
)

# What is true of a log, whatever table is in it: it stays, and the table's own does not come along.
_OF_THE_LOG = frozenset(
    {
        *(DROPPED, LEFT, WRITER, "delta.enableInCommitTimestamps"),
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRename:
    """``moves``: each target under its old name and under its new one, as the names are before and
    after the whole statement. ``properties``: ``tables.ownership`` of the new ones.
    """

    moves: Sequence[tuple[Target, Target]]
    ddl: DdlIdentity
    properties: Mapping[str, str]
    before_commit: Callable[[], None] = lambda: None


def rename(engine: MergeOnWriteEngine, order: TableRename) -> dict[str, int]:
    """Carry it out, or what of it is not yet. The last version under each old name, by its URI.

    Raises, before anything has changed, NotForThisEngine for a table that this engine does not
    write, and TidelakeError where another table has the new name; TableHeld, TryAgain.
    """
    leaving = {source.uri for source, _ in order.moves}
    for source, target in order.moves:
        _check_source(engine.table(source.uri), order, source)
        if target.uri not in leaving:
            _check_target(engine.table(target.uri), order, target)
    left = {source.uri: _leave(engine, order, source) for source, _ in order.moves}
    for source, target in order.moves:
        _Arrival(engine, order, source, target, left[source.uri]).run()
    return {uri: version for uri, version in left.items() if version is not None}


def _check_source(table: OpenTable, order: TableRename, source: Target) -> None:
    with table.lock, one_sentence("read the Delta log of", table.uri):
        try:
            table.refresh()
        except TableGone:
            return  # who takes it away says so
        assert table.state.metadata is not None
        if left_version(table.state.metadata.configuration, order.ddl) is None:
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
    engine.alter(TableDdl(target=source, ddl=order.ddl, on_drop="rename", before_commit=fence))
    table = engine.table(source.uri)
    with table.lock:
        assert table.state.metadata is not None
        return left_version(table.state.metadata.configuration, order.ddl)


def _check_target(table: OpenTable, order: TableRename, target: Target) -> None:
    with table.lock, one_sentence("read the Delta log of", table.uri):
        try:
            table.refresh()
        except TableGone:
            return
        assert table.state.metadata is not None
        there = table.state.metadata.configuration
        if not is_at_least(there, arrival(order.ddl)):
            _refuse_unless_free(there, order, target)


def _refuse_unless_free(there: Mapping[str, str], order: TableRename, target: Target) -> None:
    where, ours, owner = f"at {target.uri}", order.properties[CHANGEFEED], there.get(CHANGEFEED)
    if owner is None:
        raise TidelakeError(f"there is a table {where} that was not made by Tidelake: move it away")
    if owner != ours:
        raise TidelakeError(f"the table {where} belongs to changefeed {owner!r}: move it away")
    if int(there.get(INCARNATION, "0")) > int(order.properties[INCARNATION]):
        raise TidelakeError(
            f"the table {where} belongs to a newer incarnation of {ours!r}: another run has "
            "rewound it; end this one"
        )
    if not is_dropped(there):
        raise TidelakeError(
            f"there is a table {where}, and no DROP TABLE of {target.name} was carried out: move "
            "it away"
        )


class _Arrival:
    """One table comes to its new name."""

    def __init__(
        self,
        engine: MergeOnWriteEngine,
        order: TableRename,
        source: Target,
        target: Target,
        left: int | None,
    ) -> None:
        """``left``: the version that has left its old name."""
        self._order = order
        self._ddl = arrival(order.ddl)
        self._source = engine.table(source.uri)
        self._left_version = left
        self._target = target
        self._table = engine.table(target.uri)

    def run(self) -> Applied | Skipped:
        with self._table.lock, one_sentence("write to", self._table.uri):
            for _ in range(MAX_RACES):
                try:
                    return self._table.until_won(self._try)
                except TableGone:
                    try:
                        return self._create()
                    except LostRace:  # another try of this very DDL, or a table of somebody else
                        continue
        raise TryAgain(f"other commits came first on {self._table.uri}")

    def _try(self) -> Applied | Skipped:
        """In the log of a table that was dropped, or has left. Raises LostRace."""
        state, target = self._table.state, self._target
        assert state.metadata is not None
        there = state.metadata.configuration
        identity = state.transactions.get(target.app_id)
        reached = Ts(0 if identity is None else identity.version)
        if is_at_least(there, self._ddl) or is_carried_out(
            there, target.app_id, reached, self._ddl
        ):
            return Skipped(state.version, reached)
        _refuse_unless_free(there, self._order, target)
        if is_paused(state.metadata):
            raise TableHeld(f"table {target.name} is paused")
        now_ms = int(time.time() * 1000)
        left = self._left()
        protocol, metadata = self._protocol(left, state), self._metadata(left, state)
        actions = [
            *([] if protocol == state.protocol else [protocol.to_json()]),
            metadata.to_json(),
            *(file.remove(now_ms, data_change=True) for file in state.files.values()),
            *self._rest(left, state, now_ms),
        ]
        self._order.before_commit()
        told = self._ddl.to_json()
        operation = "RENAME TABLE"
        return Applied(
            self._table.commit(state.version, actions, operation=operation, user_metadata=told)
        )

    def _create(self) -> Applied:
        """Where no table has ever been. Raises LostRace."""
        now_ms = int(time.time() * 1000)
        left, nothing = self._left(), LogState()
        self._order.before_commit()
        state = create_table(
            self._table.storage,
            self._protocol(left, nothing),
            self._metadata(left, nothing),
            list(self._rest(left, nothing, now_ms)),
            operation="RENAME TABLE",
            user_metadata=self._ddl.to_json(),
            now_ms=now_ms,
        )
        return Applied(state.version)

    def _left(self) -> LogState:
        """The table as it was when it left its old name."""
        storage, version = self._source.storage, self._left_version
        left = None if version is None else read_log(storage, version=version)
        if left is None:
            raise TidelakeError(
                f"what {self._target.name} is made of is no longer at {storage.uri}: somebody has "
                "changed that table; restore it"
            )
        return left

    def _protocol(self, left: LogState, there: LogState) -> Protocol:
        """What files and schema need, and what the log says that its readers must know."""
        assert left.protocol is not None
        one, other = left.protocol, there.protocol or left.protocol
        return Protocol(
            min_reader_version=max(one.min_reader_version, other.min_reader_version),
            min_writer_version=max(one.min_writer_version, other.min_writer_version),
            reader_features=(one.reader_features or frozenset())
            | (other.reader_features or frozenset()),
            writer_features=(one.writer_features or frozenset())
            | (other.writer_features or frozenset()),
        )

    def _metadata(self, left: LogState, there: LogState) -> Metadata:
        """The table's own schema and properties, under the identity of the log that it comes to."""
        assert left.metadata is not None
        log = {} if there.metadata is None else there.metadata.configuration
        own = left.metadata.configuration
        told = self._ddl.to_json()
        configuration = {
            **{name: text for name, text in own.items() if name not in _OF_THE_LOG},
            **{name: text for name, text in log.items() if name in _OF_THE_LOG},
            **self._order.properties,
            **dict.fromkeys((DDL, ALTERED), told),
            LAST_DDL: json.dumps([self._target.app_id, *self._ddl.position]),
            SHAPED_AT: json.dumps([*self._ddl.position, there.version + 1]),
        }
        if MAX_COLUMN_ID in own:  # it never falls
            most = max(int(each.get(MAX_COLUMN_ID, "0")) for each in (own, log))
            configuration[MAX_COLUMN_ID] = str(most)
        log_id = str(uuid.uuid4()) if there.metadata is None else there.metadata.id
        fields = {**left.metadata.fields, "id": log_id, "configuration": configuration}
        return Metadata(fields=fields)

    def _rest(self, left: LogState, there: LogState, now_ms: int) -> Iterator[Json]:
        """Identity, domains, files."""
        app_id = self._target.app_id
        identity = there.transactions.get(app_id)
        below = max(0 if identity is None else identity.version, self._ddl.commit_ts - 1)
        yield AppTransaction(app_id=app_id, version=below, last_updated_ms=now_ms).to_json()
        for name in there.domains.keys() - left.domains.keys():
            gone = {"domain": name, "configuration": "", "removed": True}
            yield {"domainMetadata": gone}
        yield from ({"domainMetadata": fields} for fields in left.domains.values())
        for file in left.files.values():
            yield absolute(file, self._source.uri).add(data_change=True)
