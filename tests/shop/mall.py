"""Several shops side by side in one feed: a schema for each, and more tables to share out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.acceptance.live_feed import ENDLESS, LiveFeed
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import KafkaBroker
from tests.shop.history import Event, HistorySettings, SchemaChange, history
from tests.shop.model import Model, table_difference
from tests.shop.tables import OPENING, SCHEMA, TABLES

SHOPS = ("shop1", "shop2", "shop3")
TABLES_OF_A_SHOP = sum(ddl.kind == "CREATE" for ddl in OPENING)
INTERVAL_S = 3.0  # several captures work on each burst
_TABLES = {table.name: table for table in TABLES}


class MallFeed(LiveFeed):
    """A LiveFeed of several shops. TiDB's clock runs about as fast as ours."""

    def __init__(self, broker: KafkaBroker, topic: str, *, seed: int, rate: float = 30.0) -> None:
        super().__init__(broker, topic, seed=seed, rate=rate, interval_s=INTERVAL_S)
        self._seed = seed

    def _happening(self) -> Iterator[Event]:
        shops = [
            _renamed(
                history(
                    HistorySettings(
                        seed=self._seed + number,
                        transactions=ENDLESS,
                        rate=self._rate / len(SHOPS),
                        later_ddls=False,
                    )
                ),
                shop,
            )
            for number, shop in enumerate(SHOPS)
        ]
        for event in heapq.merge(*shops, key=lambda event: event.commit_ts):
            if self._closing.is_set():
                return
            self.events.append(event)
            yield event


def differences(
    events: Iterable[Event],
    warehouse: Path,
    *,
    up_to: int | None = None,
    versions: dict[str, int] | None = None,
) -> list[str]:
    """One line per table of any shop that is not, row for row, as the model has it."""
    events = list(events)
    found = []
    for shop in SHOPS:
        model = Model.of([event for event in events if schema_of(event) == shop], up_to)
        for name, rows in model.tables.items():
            version = versions[f"{shop}.{name}"] if versions is not None else None
            actual = read_rows(warehouse / shop / name, version)
            if (line := table_difference(_TABLES[name], rows.values(), actual)) is not None:
                found.append(f"{shop}.{line}")
    return found


def schema_of(event: Event) -> str:
    return event.ddl.schema if isinstance(event, SchemaChange) else event.changes[0].table.schema


def _renamed(events: Iterable[Event], shop: str) -> Iterator[Event]:
    tables = {table.name: replace(table, schema=shop) for table in TABLES}
    for event in events:
        if isinstance(event, SchemaChange):
            query = event.ddl.query.replace(f"`{SCHEMA}`", f"`{shop}`")
            yield replace(event, ddl=replace(event.ddl, schema=shop, query=query))
        else:
            changes = (replace(each, table=tables[each.table.name]) for each in event.changes)
            yield replace(event, changes=tuple(changes))
