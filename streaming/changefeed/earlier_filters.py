"""Which tables a changefeed has left out so far: its earlier filters, with the ts up to which each
was used. Pure.

A table whose CREATE TABLE was not read is created in the middle of the stream. That is right if all
its rows since the start-ts are still to come. It is wrong if an earlier [filter] left the table
out: its rows up to that filter's ts were passed over, and are not read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any, cast

from conf.route_rules import told_routes
from conf.settings import Changefeed, FilterSettings
from conf.sources.source_parameters import AT_LEAST_ONCE
from conf.sources.source_uri import is_at_least_once
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName
from sinks.control.changefeeds import ChangefeedRow
from streaming.changefeed.awaited import delivery
from streaming.changefeed.filter import TableFilter
from streaming.changefeed.routes import Routes, routes_of

RULES, CASE_SENSITIVE, UNTIL_TS, ROUTES = "rules", "case-sensitive", "until-ts", "routes"


def filters_of(changefeed: Changefeed) -> str:
    return json.dumps([_present(changefeed)], ensure_ascii=False)


def refuse_other_routes(stored: ChangefeedRow, changefeed: Changefeed) -> None:
    """Raise ConfigError where tables of the changefeed would go into other targets, or into targets
    with other columns, than up to now."""
    *_, last = json.loads(stored.filters)
    if last.get(ROUTES, []) != _routes(changefeed):
        raise ConfigError(
            "sink.routes: they are others than those with which this changefeed has begun, and "
            "tables would go on in other targets. Set them as they were, or give the new ones to a "
            "changefeed and a sink-uri of their own"
        )


def refuse_other_numbers(stored: ChangefeedRow, changefeed: Changefeed) -> None:
    """Raise ConfigError where a changefeed that has read messages would go on with commit-ts of
    another kind, TiCDC's or its reader's. An idle partition is resolved up to the time of a look,
    and what TiCDC sends later may have an earlier commit-ts, so that it would be passed over."""
    was, will_be = delivery(stored) is not None, is_at_least_once(changefeed.source)
    if stored.source_positions and stored.row_rules is not None and was != will_be:
        raise ConfigError(
            f"source-uri: this changefeed has begun {'with' if was else 'without'} "
            f"{AT_LEAST_ONCE}=true, and cannot go on {'without' if was else 'with'} it: its tables "
            "were written by commit-ts of another kind, and changes would be passed over. Set it "
            "as it was, or give another changefeed-id and another sink-uri to a changefeed that "
            "begins anew"
        )


def stored_routes(row: ChangefeedRow) -> Routes | None:
    """Those with which the changefeed has begun; None: it has none. Raises ConfigError."""
    filters = json.loads(row.filters)
    if not filters or ROUTES not in filters[-1]:
        return None
    return routes_of(told_routes(filters[-1][ROUTES]), _settings(filters[-1]))


def may_be_written(row: ChangefeedRow) -> Callable[[TableName], bool]:
    """Whether a target may be one of the changefeed, by the filter and routes that it has now."""
    *_, last = json.loads(row.filters) or [{}]
    if not last:
        return lambda _: True
    return routes_of(told_routes(last.get(ROUTES, [])), _settings(last)).may_make


def filters_after(stored: ChangefeedRow, changefeed: Changefeed) -> str:
    """The filters (JSON) of a changefeed that goes on from the stored row with these settings. A
    filter that differs from the last one is added."""
    *earlier, last = json.loads(stored.filters)
    now = _present(changefeed)
    until_ts = max(stored.checkpoint_ts, stored.resolved_ts)
    if last != now and (until_ts > stored.start_ts or stored.loaded_ts is not None):
        earlier.append({**last, UNTIL_TS: until_ts})
    by_rules = {json.dumps(_rules(each)): each for each in earlier}
    by_rules.pop(json.dumps(_rules(now)), None)
    return json.dumps([*by_rules.values(), now], ensure_ascii=False)


def left_out_any(row: ChangefeedRow, settings: FilterSettings) -> bool:
    """Whether the changefeed has ever had a filter other than this one."""
    return any(_rules(each) != _chosen(settings) for each in json.loads(row.filters))


def left_out(row: ChangefeedRow) -> Callable[[TableName], bool]:
    """Whether a filter of the changefeed has left a table out at some time."""
    filters = [TableFilter(_settings(each)) for each in json.loads(row.filters)]
    return lambda name: not all(each.selects(name) for each in filters)


def refuse_left_out_tables(row: ChangefeedRow, names: Iterable[TableName]) -> None:
    """Raise TidelakeError for a table that would be created without its first rows, since an
    earlier filter left it out."""
    for why in left_out_tables(row, names).values():
        raise TidelakeError(why)


def left_out_tables(row: ChangefeedRow, names: Iterable[TableName]) -> dict[TableName, str]:
    """Why the first rows of these tables are not read: an earlier filter left them out."""
    found = {}
    past = [each for each in json.loads(row.filters) if UNTIL_TS in each]
    filters = [(each[UNTIL_TS], TableFilter(_settings(each))) for each in past]
    for name in sorted(names):
        until_ts = max((ts for ts, each in filters if not each.selects(name)), default=None)
        if until_ts is not None:
            found[name] = (
                f"table {name} is wanted now, and [filter] left it out up to {until_ts}: its rows "
                f"up to there were passed and would be missing. Leave it out again, {_way_in(row)}"
                "or give it a changefeed of its own"
            )
    return found


def _way_in(row: ChangefeedRow) -> str:
    if '"protocol": "binlog"' in (row.row_rules or ""):
        return "or start with `tidelake run` with task-mode=all, which copies it and lets it join, "
    copied = "or let `tidelake run` with a tidb:// URI copy it, so that it joins, "
    if row.loaded_ts is not None:  # copied from a TiDB: the topic has not what was before
        return copied
    begin = max(row.start_ts, 1)
    return (
        f"or start with --overwrite-checkpoint-ts {begin}, which reads all from the beginning, "
        f"{copied}"
    )


def _present(changefeed: Changefeed) -> dict[str, Any]:
    routes = _routes(changefeed)
    return {**_chosen(changefeed.filter), **({ROUTES: routes} if routes else {})}


def _chosen(settings: FilterSettings) -> dict[str, Any]:
    return {RULES: list(settings.rules), CASE_SENSITIVE: settings.case_sensitive}


def _routes(changefeed: Changefeed) -> list[dict[str, Any]]:
    """Without ``disjoint_keys``, which may be said later. As JSON gives them back."""
    found = [asdict(replace(each, disjoint_keys=False)) for each in changefeed.sink.routes]
    return cast("list[dict[str, Any]]", json.loads(json.dumps(found)))


def _rules(entry: dict[str, Any]) -> dict[str, Any]:
    return {RULES: entry[RULES], CASE_SENSITIVE: entry[CASE_SENSITIVE]}


def _settings(entry: dict[str, Any]) -> FilterSettings:
    return FilterSettings(rules=tuple(entry[RULES]), case_sensitive=entry[CASE_SENSITIVE])
