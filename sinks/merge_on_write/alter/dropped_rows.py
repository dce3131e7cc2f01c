"""The rows of a dropped table, kept under another name: a table of its own that names its files.

Nothing is copied or moved: the kept table's log names the files where they are, absolutely, as a
shallow clone does. In the table they are taken out of, their tombstones never expire: so whoever
cleans up there, we or Spark's VACUUM, leaves them.
"""

from __future__ import annotations

import time
import uuid

from coordination.trust.clock import SystemClock
from sinks.merge_on_write.log.actions import Metadata
from sinks.merge_on_write.log.commit import commit, create_table
from sinks.merge_on_write.log.file_locations import absolute
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.table_storage import TableStorage
from sinks.target.table_properties import DdlIdentity

NEVER_MS = 253_402_300_799_000  # the end of 9999, as the time at which a kept file was taken out
_CLOCK = SystemClock()


def kept_uri(uri: str, ddl: DdlIdentity) -> str:
    """No name of a table leads there: ``~`` is written ``~7E`` in a path."""
    return f"{uri}~dropped-{ddl.commit_ts}"


class DroppedRows:
    """Open it *before* the dropped table's log is followed, and ``take`` in the rows found there.
    Then a late try either loses its race here, or finds the table dropped there."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage
        self._followed_at = _CLOCK.monotonic()
        self._state = read_log(storage)

    @property
    def is_new(self) -> bool:
        """Nobody has kept anything there yet."""
        return self._state is None

    def take(self, dropped: LogState, root: str) -> None:
        """Name exactly the live files of the dropped table, which is at ``root``. LostRace."""
        assert dropped.metadata is not None
        assert dropped.protocol is not None
        now_ms = int(time.time() * 1000)
        if self._state is None:
            fields = {**dropped.metadata.fields, "id": str(uuid.uuid4())}
            metadata = Metadata(fields=fields)
            self._state = create_table(self._storage, dropped.protocol, metadata, now_ms=now_ms)
        wanted = [absolute(file, root) for file in dropped.files.values()]
        there = {(file.path, file.vector_id): file for file in self._state.files.values()}
        new = [file for file in wanted if there.pop((file.path, file.vector_id), None) is None]
        actions = [
            *(file.remove(now_ms, data_change=True) for file in there.values()),
            *(file.add(data_change=True) for file in new),
        ]
        if actions:
            commit(
                self._storage,
                self._state,
                actions,
                operation="CLONE",
                now_ms=now_ms,
                followed_at=self._followed_at,
            )
