"""Check a changefeed's settings for what a start would find wrong.

``run`` does so before it starts Spark and etcd, ``changefeed create|update`` before they write to
etcd.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from conf.settings import Changefeed, DeltaSink
from coordination.errors import ConfigError
from sinks.changefeeds import ChangefeedRow
from sinks.engine_choice import LOCAL, engine_choice, scheme_of
from streaming.control_tables import ControlTables
from streaming.far_ts import refuse_far_ahead
from streaming.filter import TableFilter, TableForms
from streaming.retained import refuse_a_hole
from streaming.schema_file import definitions_of
from streaming.source.kafka import Source


class NoWarehouse(ConfigError):
    """The warehouse's path cannot be used on this machine."""


def check_changefeed(changefeed: Changefeed) -> None:
    """Check filter, schema file, warehouse and broker. Blocks. Raises what a start would raise:
    ConfigError for wrong settings, another TidelakeError for a broker or storage that does not
    answer."""
    TableFilter(changefeed.filter)
    TableForms(changefeed.sink.tables)
    definitions_of(changefeed)
    check_warehouse(changefeed.sink, changefeed.id)
    with closing(Source(changefeed.source)) as source:
        check_clocks(changefeed, source)
        source.shape()


def check_clocks(changefeed: Changefeed, source: Source | None) -> None:
    """Raise ConfigError for a start that lies ahead of the clocks. ``source``: None where the
    broker cannot be asked."""
    refuse_far_ahead("start-ts", changefeed.start_ts, source)
    refuse_far_ahead("overwrite-checkpoint-ts", changefeed.overwrite_checkpoint_ts, source)


def check_beginning(changefeed: Changefeed) -> None:
    """Raise SourceLost if Kafka may have deleted messages that a new changefeed needs. A changefeed
    that has run is not checked here; its owner does that."""
    stored = _stored(changefeed.sink, changefeed.id)
    if stored is not None and stored.source_offsets:
        return
    with closing(Source(changefeed.source)) as source:
        first = source.beginnings(source.shape().partitions)
        refuse_a_hole(first, source, checkpoint_ts=changefeed.start_ts, reached_ts=None)


def has_finished(changefeed: Changefeed) -> bool:
    """Whether the changefeed has reached its target-ts, so that there is nothing to read. False if
    it is to be rewound."""
    stored, target_ts = _stored(changefeed.sink, changefeed.id), changefeed.target_ts
    is_there = stored is not None and target_ts is not None and stored.checkpoint_ts >= target_ts
    return is_there and changefeed.overwrite_checkpoint_ts is None


def check_warehouse(sink: DeltaSink, changefeed_id: str) -> None:
    """Raise ConfigError unless an engine may commit safely to the warehouse and a local one is
    writable, and TidelakeError if its control table cannot be read."""
    engine_choice(sink.apply_engine, sink.warehouse, allow_unsafe_commits=sink.allow_unsafe_commits)
    if scheme_of(sink.warehouse) in LOCAL:
        _check_folder(sink.warehouse)
    _stored(sink, changefeed_id)


def _stored(sink: DeltaSink, changefeed_id: str) -> ChangefeedRow | None:
    return ControlTables.of(sink).changefeeds.read(changefeed_id)


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
