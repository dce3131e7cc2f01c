"""The control tables (`_tidelake/…`) of one warehouse."""

from __future__ import annotations

from dataclasses import dataclass

from conf.settings import DeltaSink
from coordination.secrets import revealed_options
from sinks.control.blocked_ddls import BlockedDdls
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress
from sinks.control.reloads import Reloads
from sinks.control.schemas import Schemas
from sinks.control.snapshots import Snapshots
from sinks.storage.open_storage import check_endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTables:
    changefeeds: Changefeeds
    progress: Progress
    snapshots: Snapshots
    blocked_ddls: BlockedDdls
    reloads: Reloads
    schemas: Schemas

    @staticmethod
    def of(sink: DeltaSink) -> ControlTables:
        options = revealed_options(sink.storage_options)
        check_endpoint(sink.warehouse, options)
        return ControlTables(
            changefeeds=Changefeeds(sink.warehouse, options),
            progress=Progress(sink.warehouse, options),
            blocked_ddls=BlockedDdls(sink.warehouse, options),
            reloads=Reloads(sink.warehouse, options),
            snapshots=Snapshots(sink.warehouse, options, kept_h=sink.snapshot_retention_h),
            schemas=Schemas(sink.warehouse, options),
        )
