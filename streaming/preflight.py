"""What a start would find wrong with a changefeed, found before anything is started or promised.

``run`` asks before Spark and etcd start, ``changefeed create|update`` before they say yes.
"""

from __future__ import annotations

import os
from pathlib import Path

from conf.settings import BatchSettings, Changefeed, DeltaSink
from coordination.errors import ConfigError
from sinks.changefeeds import Changefeeds
from sinks.engine_choice import LOCAL, engine_choice, scheme_of
from streaming.filter import TableFilter
from streaming.source import Source


class NoWarehouse(ConfigError):
    """On this machine there can be none at that path."""


def check_changefeed(changefeed: Changefeed) -> None:
    """Ask the broker and the warehouse; raises what a start would raise: ConfigError for what is
    configured wrong, another TidelakeError for what does not answer."""
    TableFilter(changefeed.filter)
    check_warehouse(changefeed.sink, changefeed.id)
    source = Source(changefeed.source)
    try:
        source.shape()
    finally:
        source.close()


def check_warehouse(sink: DeltaSink, changefeed_id: str) -> None:
    """One engine may commit there safely, and it can be read, and written if it is local."""
    engine_choice(
        sink.apply_engine,
        sink.warehouse,
        BatchSettings(),
        allow_unsafe_commits=sink.allow_unsafe_commits,
    )
    if scheme_of(sink.warehouse) in LOCAL:
        _check_folder(sink.warehouse)
    Changefeeds(sink.warehouse, dict(sink.storage_options)).read(changefeed_id)


def _check_folder(warehouse: str) -> None:
    path = Path(warehouse)
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise NoWarehouse(f"sink-uri: {nearest} is no folder: {path} cannot be a warehouse")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise NoWarehouse(
            f"sink-uri: no permission to write to {nearest}: {path} cannot be a warehouse; give "
            "another, or the permission"
        )
