"""Reads every version of ``_tidelake/progress`` and ``changefeeds`` while a test runs.

Between two versions nothing may fall: no checkpoint, no term, no low-water offset; and a term has
one owner (a progress row names the capture that has the table). A version that upkeep removed
before it was read is passed over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services.delta_versions import DeltaVersions, Version

LOOK_EVERY_S = 0.3


@dataclass(frozen=True, slots=True)
class Sighting:
    """One version of the progress table."""

    version: int
    at: float  # wall time of the commit
    checkpoints: Mapping[str, int]
    capture_ids: frozenset[str]


@dataclass(slots=True)
class _Highest:
    """What may not fall, by name, and what fell."""

    values: dict[str, Any] = field(default_factory=dict)
    fallen: list[str] = field(default_factory=list)

    def see(self, name: str, value: Any, where: str) -> None:
        before = self.values.get(name)
        if before is not None and value < before:
            self.fallen.append(f"{where}: {name} fell from {before} to {value}")
        self.values[name] = value


class ProgressWatch:
    """A thread; start and stop it."""

    def __init__(self, warehouse: Path) -> None:
        folder = warehouse / "_tidelake"
        self._progress = DeltaVersions(folder / "progress")
        self._changefeeds = DeltaVersions(folder / "changefeeds")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._highest = _Highest()
        self._owners: dict[int, tuple[str, str]] = {}
        self._error: Exception | None = None
        self.sightings: list[Sighting] = []
        self.checkpoint = 0  # the changefeed's, as last seen
        self.term = 0
        self.state = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def assert_nothing_fell(self) -> None:
        assert self._error is None, f"the watch itself failed: {self._error!r}"
        assert self._highest.fallen == [], self._highest.fallen

    def first_moved_by(self, capture_id: str) -> float:
        """Wall time of this capture's first progress commit in which a checkpoint moved, or 0."""
        others: Mapping[str, int] = {}
        for sighting in list(self.sightings):
            if capture_id not in sighting.capture_ids:
                others = sighting.checkpoints
            elif any(ts > others.get(name, 0) for name, ts in sighting.checkpoints.items()):
                return sighting.at
        return 0.0

    def _run(self) -> None:
        try:
            while not self._stopping.wait(LOOK_EVERY_S):
                self._look()
            self._look()
        except Exception as error:  # noqa: BLE001  # said by assert_nothing_fell
            self._error = error

    def _look(self) -> None:
        for each in self._progress.further():
            self._see_progress(each)
        for each in self._changefeeds.further():
            self._see_changefeed(each)

    def _see_progress(self, version: Version) -> None:
        where = f"progress at version {version.number}"
        for row in version.rows:
            name = f"{row['schema_name']}.{row['table_name']}"
            checkpoint = (row["incarnation"], row["checkpoint_ts"])
            self._highest.see(f"checkpoint of {name}", checkpoint, where)
            self._highest.see(f"fence of {name}", row["fence"], where)
        self.sightings.append(
            Sighting(
                version.number,
                version.at,
                {row["table_name"]: row["checkpoint_ts"] for row in version.rows},
                frozenset(row["capture_id"] for row in version.rows),
            )
        )

    def _see_changefeed(self, version: Version) -> None:
        where = f"changefeeds at version {version.number}"
        for row in version.rows:
            checkpoint = (row["incarnation"], row["checkpoint_ts"])
            self._highest.see("checkpoint of the changefeed", checkpoint, where)
            self._highest.see("term", row["term"], where)
            for partition, offset in dict(row["source_positions"]).items():
                low_water = (row["incarnation"], offset)
                self._highest.see(f"low-water offset of {partition}", low_water, where)
            self._see_owner(row["term"], row, where)
            self.checkpoint, self.term = row["checkpoint_ts"], row["term"]
            self.state = row["state"]

    def _see_owner(self, term: int, row: Mapping[str, Any], where: str) -> None:
        owner = (row["capture_id"], row["epoch"])
        if self._owners.setdefault(term, owner) != owner:
            self._highest.fallen.append(f"{where}: term {term} has a second owner {owner}")
