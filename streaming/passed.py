"""Which tables a changefeed has passed over: the filters that it had, and how far each let it go.

A table whose CREATE TABLE was not read is made in the middle of the stream. That is right when all
its rows since the start-ts are still to come, and wrong when an earlier [filter] left it out: its
rows up to there were passed, and are not read again. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from conf.settings import FilterSettings
from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.changefeeds import ChangefeedRow
from streaming.filter import TableFilter

RULES, CASE_SENSITIVE, UNTIL_TS = "rules", "case-sensitive", "until-ts"


def filters_of(settings: FilterSettings) -> str:
    return json.dumps([_present(settings)], ensure_ascii=False)


def filters_after(stored: ChangefeedRow, settings: FilterSettings) -> str:
    """Of a changefeed that goes on with it from where the stored row is. What an earlier release
    has passed over is not known."""
    if not stored.filters:
        return filters_of(settings)
    *earlier, last = json.loads(stored.filters)
    now = _present(settings)
    until_ts = max(stored.checkpoint_ts, stored.resolved_ts)
    if last != now and until_ts > stored.start_ts:
        earlier.append({**last, UNTIL_TS: until_ts})
    by_rules = {json.dumps(_rules(each)): each for each in earlier}
    by_rules.pop(json.dumps(_rules(now)), None)
    return json.dumps([*by_rules.values(), now], ensure_ascii=False)


def refuse_what_was_passed(row: ChangefeedRow, names: Iterable[TableName]) -> None:
    """Raises TidelakeError for a table that would be made without its first rows."""
    past = [each for each in json.loads(row.filters or "[]") if UNTIL_TS in each]
    filters = [(each[UNTIL_TS], TableFilter(_settings(each))) for each in past]
    for name in sorted(names):
        until_ts = max((ts for ts, each in filters if not each.selects(name)), default=None)
        if until_ts is not None:
            raise TidelakeError(
                f"table {name} is wanted now, and [filter] left it out up to {until_ts}: its rows "
                "up to there were passed and would be missing. Leave it out again, or start with "
                f"--overwrite-checkpoint-ts {max(row.start_ts, 1)}, which reads Kafka from its "
                "beginning, or give it a changefeed of its own"
            )


def _present(settings: FilterSettings) -> dict[str, Any]:
    return {RULES: list(settings.rules), CASE_SENSITIVE: settings.case_sensitive}


def _rules(entry: dict[str, Any]) -> dict[str, Any]:
    return {RULES: entry[RULES], CASE_SENSITIVE: entry[CASE_SENSITIVE]}


def _settings(entry: dict[str, Any]) -> FilterSettings:
    return FilterSettings(rules=tuple(entry[RULES]), case_sensitive=entry[CASE_SENSITIVE])
