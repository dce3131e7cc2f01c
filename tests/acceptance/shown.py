"""What a target shows of a table's changes in each form: a model of ``[[sink.tables]]``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from conf.settings import TableRule
from coordination.model import TSO_LOGICAL_BITS
from tests.shop.canal_json import Change

Row = Mapping[str, Any]
ID = "id"  # of every table; it is not used again


@dataclass(frozen=True, eq=False)
class Shown:
    """``columns`` stand behind the table's own, ``key`` tells rows apart. ``after``: the rows of
    before, changes, and their commit-ts -> the rows afterwards; ``ended``: the same of a DDL that
    leaves these ids alone. ``is_live``: whether a row is one of the table as it is."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = (ID,)
    takes_other_keys: bool = False
    has_key: bool = True  # upstream
    fills_columns: bool = True  # old rows show an added column's default
    is_live: Callable[[Row], bool] = lambda _: True
    after: Callable[[Sequence[Row], Iterable[Change], int], list[Row]] | None = None
    ended: Callable[[Sequence[Row], Collection[int], int], list[Row]] = lambda rows, *_: [*rows]

    def rule(self, matcher: Sequence[str]) -> TableRule:
        return TableRule(matcher=tuple(matcher), **self.settings)


def _time(ts: int | None) -> datetime | None:
    return None if ts is None else datetime.fromtimestamp((ts >> TSO_LOGICAL_BITS) / 1000, UTC)


def _events(rows: Sequence[Row], changes: Iterable[Change], ts: int) -> list[Row]:
    said = {"INSERT": "insert", "UPDATE": "update_postimage", "DELETE": "delete"}
    found = [*rows]
    for change in changes:
        sides = [(said[change.op], change.row)]
        if change.old is not None:
            sides.append(("update_preimage", change.old))
        order = 0 if change.op == "DELETE" else 1
        told = {"_commit_ts": ts, "_commit_time": _time(ts), "_commit_order": order}
        found += [{**row, "_op": op, **told} for op, row in sides]
    return found


def _version(row: Row, begin: int, end: int | None) -> Row:
    return {
        **row,
        "_valid_from": _time(begin),
        "_valid_to": _time(end),
        "_is_current": end is None,
        "_valid_from_ts": begin,
        "_valid_to_ts": end,
    }


def _closed(rows: Sequence[Row], gone: Callable[[int], bool], ts: int) -> list[Row]:
    return [
        _version(row, row["_valid_from_ts"], ts) if row["_is_current"] and gone(row[ID]) else row
        for row in rows
    ]


def _versions(rows: Sequence[Row], changes: Iterable[Change], ts: int) -> list[Row]:
    changed = {change.row[ID]: change for change in changes}
    new = [each.row for each in changed.values() if each.op != "DELETE"]
    return [*_closed(rows, changed.__contains__, ts), *(_version(row, ts, None) for row in new)]


def _marked(row: Row, op: str, ts: int) -> Row:
    told = {"_tidelake_commit_ts": ts, "_tidelake_op": op}
    return {**row, **told, "_tidelake_deleted": op == "delete"}


def _with_deleted(rows: Sequence[Row], changes: Iterable[Change], ts: int) -> list[Row]:
    changed = {each.row[ID]: _marked(each.row, each.op.lower(), ts) for each in changes}
    return [*(row for row in rows if row[ID] not in changed), *changed.values()]


def _deleted(rows: Sequence[Row], left: Collection[int], ts: int) -> list[Row]:
    return [
        row if row["_tidelake_deleted"] or row[ID] in left else _marked(row, "delete", ts)
        for row in rows
    ]


UPSERTED = Shown(takes_other_keys=True)
BY_ALL_COLUMNS = Shown(settings={"key": "all-columns"}, has_key=False)
LOGGED = Shown(
    settings={"write_mode": "append"},
    columns=("_op", "_commit_ts", "_commit_time", "_commit_order"),
    key=(ID, "_commit_ts", "_op"),
    takes_other_keys=True,
    fills_columns=False,
    after=_events,
)
VERSIONED = Shown(
    settings={"write_mode": "history"},
    columns=("_valid_from", "_valid_to", "_is_current", "_valid_from_ts", "_valid_to_ts"),
    key=(ID, "_valid_from_ts"),
    is_live=lambda row: row["_is_current"],
    after=_versions,
    ended=lambda rows, left, ts: _closed(rows, lambda id: id not in left, ts),
)
DELETED_STAY = Shown(
    settings={
        "soft_delete": True,
        "extra_columns": ("_tidelake_commit_ts", "_tidelake_op"),
    },
    columns=("_tidelake_commit_ts", "_tidelake_op", "_tidelake_deleted"),
    is_live=lambda row: not row["_tidelake_deleted"],
    after=_with_deleted,
    ended=_deleted,
)
