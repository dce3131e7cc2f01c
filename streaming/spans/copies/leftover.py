"""A target that an earlier try of a copy has left: it is made, or loaded, and nobody went on with
it.

Another copy is to come in its place, of other rows and perhaps other columns. It is deleted, if its
log shows no more than those two commits: no stream has written it, and no snapshot names it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.storage.errors import one_sentence
from sinks.storage.open_storage import open_storage
from sinks.target.engine_port import app_id
from sinks.target.target_table import TargetState, inspect

logger = logging.getLogger(__name__)

_LOADED = 1  # the version that a load makes; 0 is the new table


def was_never_followed(table: ProgressRow, feed: ChangefeedRow) -> bool:
    """Whether a table was loaded to join, and the changefeed has gone on without it: with the
    [filter] of before, after a try that failed. No snapshot names it."""
    is_as_loaded = table.delta_version == _LOADED and table.identity_ts == table.checkpoint_ts
    return is_as_loaded and table.checkpoint_ts < feed.checkpoint_ts and table.state != DROPPED


def delete_leftover(
    uri: str,
    name: TableName,
    row: ChangefeedRow,
    at_ts: Ts,
    *,
    loads: str,
    options: Mapping[str, str],
) -> None:
    """Unless the rows of ``at_ts`` that are to be loaded are there: then it stays. ``loads``: names
    these rows, as ``load_note`` does. ``row``: of the changefeed, which has no progress of the
    table, or none that it has followed. Blocks; raises StorageAway."""
    state = inspect(uri, options)
    if state is None or not _is_ours_alone(state, row):
        return
    identity = state.identity(app_id(row.changefeed_id, row.incarnation, name))
    with one_sentence("read the Delta log of", uri):
        if identity == at_ts and _loaded(state) == loads:
            return
    logger.info("an earlier try of a copy has left the table, which is made anew table=%s", name)
    with one_sentence(f"delete table {name} at", uri):
        storage = open_storage(uri, options)
        log = sorted((each.path for each in storage.list("_delta_log/")), reverse=True)
        for path in log:  # the last version first: whenever it is killed, a whole table is left
            storage.delete([path])
        storage.delete(each.path for each in storage.list(""))


def load_note(rows: int, at_ts: Ts, loads: str) -> str:
    """The user metadata of a load. ``loads``: names what it loads."""
    return json.dumps({"load": True, "checkpoint": int(at_ts), "rows": rows, "loads": loads})


def _is_ours_alone(state: TargetState, row: ChangefeedRow) -> bool:
    """Whether no stream has written it."""
    is_ours = state.changefeed_id == row.changefeed_id
    return is_ours and (state.incarnation or 0) <= row.incarnation and state.version <= _LOADED


def _loaded(state: TargetState) -> str | None:
    """What its last commit has loaded; None: it is no load."""
    told: Any = json.loads(state.handle.history(1)[0].get("userMetadata") or "{}")
    return told.get("loads") if isinstance(told, dict) else None
