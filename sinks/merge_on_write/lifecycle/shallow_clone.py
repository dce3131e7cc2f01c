"""A table comes to a name: the log there takes in a version of another log, in one commit.

The files stay in their folder, and are named absolutely, as a shallow clone does. A RENAME TABLE
brings the version that has left the old name (``rename``), a RECOVER TABLE the version that a DROP
TABLE has kept (``recover``). That version changes no more, so every process that commits it, once
or late, commits the same.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from coordination.errors import TidelakeError, TryAgain
from coordination.model import Ts
from sinks.merge_on_write.alter.ddl_commit import notes_of
from sinks.merge_on_write.alter.new_metadata import MAX_COLUMN_ID
from sinks.merge_on_write.log.actions import AppTransaction, Json, Metadata, Protocol
from sinks.merge_on_write.log.commit import LostRace, create_table
from sinks.merge_on_write.log.file_locations import absolute
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.log.state import LogState
from sinks.merge_on_write.table_handle import MAX_RACES, TableGone, TableHandle
from sinks.storage.errors import one_sentence
from sinks.target.engine_port import Applied, Skipped, TableHeld, Target
from sinks.target.table_properties import (
    ALTERED,
    CHANGEFEED,
    DDL,
    DROPPED,
    INCARNATION,
    LAST_DDL,
    LEFT,
    SHAPED_AT,
    TRUNCATED,
    WRITER,
    DdlIdentity,
    TableProperties,
)
from sinks.target.target_table import refuse_unless_ours
from sinks.target.way_out import paused

# What is true of a log, whatever table is in it: it stays, and the table's own does not come along.
_OF_THE_LOG = frozenset(
    {
        *(DROPPED, LEFT, TRUNCATED, WRITER, "delta.enableInCommitTimestamps"),
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShallowClone:
    """``properties``: `tables.ownership` of the table under its new name. ``source`` is the URI
    that relative names of ``coming``'s files are resolved by; ``coming`` is called where the table
    has not come yet.
    """

    target: Target
    ddl: DdlIdentity
    properties: Mapping[str, str]
    operation: str
    source: str
    coming: Callable[[], LogState]
    before_commit: Callable[[], None]


def check_free(table: TableHandle, order: ShallowClone) -> None:
    """Raises TidelakeError where another table has the name."""
    with table.lock, one_sentence("read the Delta log of", table.uri):
        try:
            table.refresh()
        except TableGone:
            return
        there = notes_of(table.state)
        if not there.is_at_least(order.ddl.arrival):
            _refuse_unless_free(there, order)


def _refuse_unless_free(there: TableProperties, order: ShallowClone) -> None:
    target, properties = order.target, order.properties
    refuse_unless_ours(
        there,
        target.name,
        target.uri,
        changefeed_id=properties[CHANGEFEED],
        incarnation=int(properties[INCARNATION]),
    )
    if not there.is_dropped:
        raise TidelakeError(
            f"there is a table at {target.uri}, and no DROP TABLE of {target.name} was carried "
            "out: move it away"
        )


def clone_into(table: TableHandle, order: ShallowClone) -> Applied | Skipped:
    """Returns the table at the new name, and clones it if it has not come yet. ``table``: the
    present table there. Raises TidelakeError, TableHeld, TryAgain."""
    return _Arriving(table, order).run()


class _Arriving:
    def __init__(self, table: TableHandle, order: ShallowClone) -> None:
        self._table = table
        self._order = order
        self._target = order.target
        self._ddl = order.ddl.arrival

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
        there = notes_of(state)
        identity = state.transactions.get(target.app_id)
        reached = Ts(0 if identity is None else identity.version)
        if there.is_at_least(self._ddl) or there.is_carried_out(target.app_id, reached, self._ddl):
            return Skipped(state.version, reached)
        _refuse_unless_free(there, self._order)
        if is_paused(state.metadata):
            raise TableHeld(paused(target.name))
        now_ms = int(time.time() * 1000)
        coming = self._order.coming()
        protocol, metadata = self._protocol(coming, state), self._metadata(coming, state)
        actions = [
            *([] if protocol == state.protocol else [protocol.to_json()]),
            metadata.to_json(),
            *(file.remove(now_ms, data_change=True) for file in state.files.values()),
            *self._rest(coming, state, now_ms),
        ]
        self._order.before_commit()
        told = self._ddl.to_json()
        operation = self._order.operation
        return Applied(
            self._table.commit(state.version, actions, operation=operation, user_metadata=told)
        )

    def _create(self) -> Applied:
        """Where no table has ever been. Raises LostRace."""
        now_ms = int(time.time() * 1000)
        coming, nothing = self._order.coming(), LogState()
        self._order.before_commit()
        state = create_table(
            self._table.storage,
            self._protocol(coming, nothing),
            self._metadata(coming, nothing),
            list(self._rest(coming, nothing, now_ms)),
            operation=self._order.operation,
            user_metadata=self._ddl.to_json(),
            now_ms=now_ms,
        )
        return Applied(state.version)

    def _protocol(self, coming: LogState, there: LogState) -> Protocol:
        """The protocol that files and schema need, together with the protocol of the log."""
        assert coming.protocol is not None
        one, other = coming.protocol, there.protocol or coming.protocol
        return Protocol(
            min_reader_version=max(one.min_reader_version, other.min_reader_version),
            min_writer_version=max(one.min_writer_version, other.min_writer_version),
            reader_features=(one.reader_features or frozenset())
            | (other.reader_features or frozenset()),
            writer_features=(one.writer_features or frozenset())
            | (other.writer_features or frozenset()),
        )

    def _metadata(self, coming: LogState, there: LogState) -> Metadata:
        """The table's own schema and properties, under the identity of the log that it comes to."""
        assert coming.metadata is not None
        log = {} if there.metadata is None else there.metadata.configuration
        own = coming.metadata.configuration
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
        fields = {**coming.metadata.fields, "id": log_id, "configuration": configuration}
        return Metadata(fields=fields)

    def _rest(self, coming: LogState, there: LogState, now_ms: int) -> Iterator[Json]:
        """Identity, domains, files."""
        app_id = self._target.app_id
        identity = there.transactions.get(app_id)
        below = max(0 if identity is None else identity.version, self._ddl.commit_ts - 1)
        yield AppTransaction(app_id=app_id, version=below, last_updated_ms=now_ms).to_json()
        for name in there.domains.keys() - coming.domains.keys():
            gone = {"domain": name, "configuration": "", "removed": True}
            yield {"domainMetadata": gone}
        yield from ({"domainMetadata": fields} for fields in coming.domains.values())
        for file in coming.files.values():
            yield absolute(file, self._order.source).add(data_change=True)
