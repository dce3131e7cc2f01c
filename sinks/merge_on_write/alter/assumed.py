"""The values that a DDL assumes for the time of its session. They go into the table's properties
with the DDL, and into the log. If a wrong value could never be mended, the DDL is not carried
out."""

from __future__ import annotations

import json
import logging
from typing import Final

from coordination.errors import TidelakeError
from coordination.model import Ts
from sinks.ddl.session_values import SessionValues
from sinks.target.engine_port import Target
from sinks.target.table_properties import ASSUMED, TableProperties
from sinks.types.text_arrays import CastRules

logger = logging.getLogger(__name__)

_MOST: Final = 8  # DDLs of one table that are remembered

_HISTORY = "a history keeps old versions as they are"
_LOG = "a change log keeps old events as they are"
_KEY = "rows are found by it, and a later DELETE or UPDATE would miss its row"


def assumed(
    values: SessionValues,
    target: Target,
    notes: TableProperties,
    rules: CastRules,
    commit_ts: Ts,
) -> dict[str, str]:
    """The property to set, with earlier assumptions; none: it stays as it is. ``target``: as it is
    after the DDL. Raises TidelakeError if a wrong value could never be mended."""
    if not values.columns:
        return {}
    form = target.form
    why = _HISTORY if form.is_history else _LOG if form.is_log else ""
    if not why and not set(values.columns).isdisjoint(target.schema.key):
        why = _KEY
    if why:
        raise TidelakeError(values.refused(why))
    told = values.told(rules, commit_ts)
    logger.warning("a DDL is not exact table=%s commit_ts=%d: %s", target.name, commit_ts, told)
    kept = [*notes.assumed.items(), (commit_ts, told)]
    return {ASSUMED: json.dumps(kept[-_MOST:], ensure_ascii=False)}
