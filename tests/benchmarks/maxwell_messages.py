"""The same changes as messages of maxwell, as TiCDC writes them and as Maxwell's daemon does. Their
reader has given each its commit-ts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.benchmarks.protocol_messages import NAME, Change, Row, Sent, number_of
from tests.benchmarks.rows import MYSQL_TYPES
from tests.benchmarks.workload import DELETE, INSERT, UPDATE
from tests.streaming.protocols.simple.reading import text_of

_KINDS: Final = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_BASE: Final = {name: kind.partition("(")[0] for name, kind in MYSQL_TYPES.items()}


def sent_of(changes: Sequence[Change]) -> dict[str, list[Sent]]:
    return {"maxwell": list(ticdcs(changes)), "maxwell, daemon": list(daemons(changes))}


def ticdcs(changes: Sequence[Change]) -> Iterator[Sent]:
    """Columns by their names; a deleted row is the old one."""
    for each in changes:
        sides = {"old": each.row} if each.op == DELETE else _sides(each)
        yield (
            (1).to_bytes(8, "big"),
            text_of(
                {
                    **_head(each),
                    **{name: _side(dict(sorted(row.items()))) for name, row in sides.items()},
                }
            ),
        )


def daemons(changes: Sequence[Change]) -> Iterator[Sent]:
    """Each change is a transaction."""
    for n, each in enumerate(changes):
        told = {**_head(each), "xid": 900_000 + n, "commit": True}
        sides = {name: _side(row, has_decimals=True) for name, row in _sides(each).items()}
        key = {"database": NAME.schema, "table": NAME.table, "pk.id": int(each.row["id"])}
        yield text_of(key), text_of({**told, **sides})


def _head(change: Change) -> dict[str, Any]:
    seconds = (change.commit_ts >> 18) // 1_000
    kind = _KINDS[change.op]
    return {"database": NAME.schema, "table": NAME.table, "type": kind, "ts": seconds}


def _sides(change: Change) -> dict[str, Row]:
    """Of an old row what has changed."""
    if change.old is None:
        return {"data": change.row}
    changed = {name: cell for name, cell in change.old.items() if change.row[name] != cell}
    return {"data": change.row, "old": changed}


def _side(row: Row, *, has_decimals: bool = False) -> dict[str, Any]:
    """``has_decimals``: they are numbers."""
    return {
        name: float(cell)
        if has_decimals and _BASE[name] == "decimal"
        else number_of(_BASE[name], cell)
        for name, cell in row.items()
    }
