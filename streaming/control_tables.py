"""The control tables of one warehouse."""

from __future__ import annotations

from dataclasses import dataclass

from conf.settings import DeltaSink
from coordination.secrets import revealed_options
from sinks.changefeeds import Changefeeds
from sinks.progress import Progress
from sinks.snapshots import Snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTables:
    changefeeds: Changefeeds
    progress: Progress
    snapshots: Snapshots

    @staticmethod
    def of(sink: DeltaSink) -> ControlTables:
        options = revealed_options(sink.storage_options)
        return ControlTables(
            changefeeds=Changefeeds(sink.warehouse, options),
            progress=Progress(sink.warehouse, options),
            snapshots=Snapshots(sink.warehouse, options),
        )
