"""A warehouse with a changefeed's ledger, whose tables and cuts a test makes by hand."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

from coordination.model import Ownership
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.snapshots import SnapshotRow, Snapshots
from sinks.control.upkeep import Upkeep
from streaming.operations.snapshots import LedgerSnapshot, find_snapshot

CHANGEFEED = "shop"
OWNER = Ownership(capture_id="c", epoch="e", etcd_cluster_id="etcd", election_revision=7)


class Lake:
    def __init__(self, warehouse: Path, *, upkeep: Upkeep | None = None) -> None:
        self.warehouse = warehouse
        self.tables = warehouse / CHANGEFEED  # their folder: the schema has the changefeed's name
        initial = ChangefeedRow(
            changefeed_id=CHANGEFEED, start_ts=1, checkpoint_ts=1, resolved_ts=1
        )
        self._row = Changefeeds(str(warehouse)).claim(
            initial, OWNER, ttl_s=1.0, stop=threading.Event()
        )
        self._ledger = Snapshots(str(warehouse), upkeep=upkeep)
        self._ledger.claim(CHANGEFEED, self._row.term)

    @property
    def term(self) -> int:
        return self._row.term

    @property
    def uri(self) -> str:
        return f"delta://{self.warehouse}"

    def publish(self, ts: int, created_at: datetime | None = None, **versions: int) -> None:
        """A cut of these tables, by their names in the schema."""
        cut = SnapshotRow(
            changefeed_id=CHANGEFEED,
            primary_ts=ts,
            tables={f"{CHANGEFEED}.{name}": version for name, version in versions.items()},
            created_at=created_at,
        )
        assert self._ledger.publish(cut, self._row.term)

    def find(self, as_of: int | str | datetime | None = None) -> LedgerSnapshot:
        return find_snapshot(self.uri, as_of=as_of)
