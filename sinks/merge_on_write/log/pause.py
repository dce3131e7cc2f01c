"""Pauses a table: it takes no commit of ours, so that an operator's DELETE or OPTIMIZE can run.

Such a command of Spark reads for seconds, and then conflicts with every commit that has touched its
files meanwhile; so it may never succeed while changes arrive. The pause is a property in the
table's own log: every capture sees it before it commits to the table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from coordination.errors import TidelakeError, TryAgain
from coordination.trust.clock import SystemClock
from sinks.merge_on_write.log.actions import Metadata
from sinks.merge_on_write.log.commit import LostRace, commit
from sinks.merge_on_write.log.reader import read_log
from sinks.storage.errors import one_sentence
from sinks.storage.open_storage import open_storage

PAUSED = "tidelake.paused"
MAX_TRIES = 20
_CLOCK = SystemClock()


def is_paused(metadata: Metadata | None) -> bool:
    return metadata is not None and metadata.configuration.get(PAUSED, "false") == "true"


def set_paused(uri: str, storage_options: Mapping[str, str], *, paused: bool) -> bool:
    """Pause the table at ``uri`` or let it go on. Returns False if it was so already. Blocks.
    Raises TidelakeError if there is no table, TryAgain if too many other commits came first."""
    with one_sentence("write to", uri):
        storage = open_storage(uri, storage_options)
        for _ in range(MAX_TRIES):
            followed_at = _CLOCK.monotonic()
            state = read_log(storage)
            if state is None or state.metadata is None:
                raise TidelakeError(f"there is no Delta table at {uri}: is the name right?")
            if is_paused(state.metadata) == paused:
                return False
            settings = {**state.metadata.configuration, PAUSED: "true"}
            if not paused:
                del settings[PAUSED]
            try:
                commit(
                    storage,
                    state,
                    [{"metaData": {**state.metadata.fields, "configuration": settings}}],
                    operation="SET TBLPROPERTIES",
                    now_ms=int(time.time() * 1000),
                    followed_at=followed_at,
                )
            except LostRace:
                continue
            return True
        raise TryAgain(f"other commits came first on {uri}, {MAX_TRIES} times: try again")
