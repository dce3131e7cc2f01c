"""What a consistent snapshot is worth: two sums at one cut, and at versions picked apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.services.delta_rows import read_rows
from tests.shop.tables import SCHEMA

ORDERS, PAYMENTS = f"{SCHEMA}.orders", f"{SCHEMA}.payments"
_PAID = "SELECT sum(amount) AS total FROM t WHERE status = 'paid'"
_PAYMENTS = "SELECT sum(amount) AS total FROM t"
_MOST_CUTS = 50


@dataclass(frozen=True, slots=True)
class Sums:
    """The two sums, each at the Delta version named."""

    orders_version: int
    payments_version: int
    paid: Decimal
    payments: Decimal

    @property
    def agree(self) -> bool:
        return self.paid == self.payments


def ledger(warehouse: str | Path, changefeed_id: str = "shop") -> list[dict[str, Any]]:
    """The published snapshots, the newest first; ``tables`` is a dict."""
    rows = read_rows(Path(warehouse, "_tidelake", "snapshots"))
    found = [
        {**row, "tables": dict(row["tables"])}
        for row in rows
        if row["changefeed_id"] == changefeed_id
    ]
    return sorted(found, key=lambda row: -row["primary_ts"])


def changefeed_state(warehouse: str | Path, changefeed_id: str = "shop") -> str:
    """What ``_tidelake/changefeeds`` says; ``finished`` once the target-ts is reached."""
    rows = read_rows(Path(warehouse, "_tidelake", "changefeeds"))
    return next(str(row["state"]) for row in rows if row["changefeed_id"] == changefeed_id)


def sums(warehouse: str | Path, orders_version: int, payments_version: int) -> Sums:
    """Read both tables at these versions."""
    return Sums(
        orders_version,
        payments_version,
        _total(Path(warehouse, SCHEMA, "orders"), orders_version, _PAID),
        _total(Path(warehouse, SCHEMA, "payments"), payments_version, _PAYMENTS),
    )


def picked_apart(warehouse: str | Path, cuts: list[dict[str, Any]]) -> Sums | None:
    """The newest pair of versions that is no snapshot's and whose sums disagree."""
    pairs = _mixed_versions(cuts[:_MOST_CUTS])
    found = (sums(warehouse, orders, payments) for orders, payments in pairs)
    return next((each for each in found if not each.agree), None)


def _mixed_versions(cuts: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Versions of the newest cut with those of older cuts, then with those of any older commit."""
    newest, *older = [cut["tables"] for cut in cuts if {ORDERS, PAYMENTS} <= cut["tables"].keys()]
    for cut in older:
        if cut[PAYMENTS] != newest[PAYMENTS]:
            yield newest[ORDERS], cut[PAYMENTS]
        if cut[ORDERS] != newest[ORDERS]:
            yield cut[ORDERS], newest[PAYMENTS]
    for version in reversed(range(newest[PAYMENTS])):
        yield newest[ORDERS], version


def _total(table: Path, version: int, query: str) -> Decimal:
    handle = DeltaTable(str(table), version=version)
    result = QueryBuilder().register("t", handle).execute(query).read_all()
    return pa.table(result).to_pylist()[0]["total"] or Decimal(0)
