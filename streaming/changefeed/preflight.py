"""Check a changefeed's settings for errors that a start would find.

``run`` does so before it starts Spark and etcd, ``changefeed create|update`` before they write to
etcd.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from conf.settings import Changefeed, DeltaSink
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TSO_LOGICAL_BITS
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.warehouse import ControlTables
from sinks.storage.errors import one_sentence
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import open_storage
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_choice import LOCAL, engine_choice, scheme_of
from streaming.changefeed.earlier_filters import refuse_other_numbers, refuse_other_routes
from streaming.changefeed.freshness import Freshness
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.schema_file import definitions_of
from streaming.changefeed.target_forms import write_modes
from streaming.protocols.clocks import latest_ts, shown_ts
from streaming.source.contract import Source, SourceClock, SourceLost
from streaming.source.dump.tidb import Tidb
from streaming.source.sources import open_source

PROBE: Final = ".tidelake-probe"  # an empty file, written and deleted
NAMED: Final = 5  # so many tables are named


# Broker and storage were reached, so that every capture would fail in the same way.
SAME_EVERYWHERE: Final = (ConfigError, SourceLost)


class NoWarehouse(ConfigError):
    """The warehouse's path cannot be used on this machine."""


def check_changefeed(changefeed: Changefeed) -> None:
    """Check filter, schema file, warehouse and source. Blocks. Raises the first thing that a start
    would raise: ConfigError for wrong settings, another TidelakeError for a source or storage that
    does not answer."""
    for _, check in checks():
        check(changefeed)


def checks() -> list[tuple[str, Callable[[Changefeed], None]]]:
    """What a start looks at, in its order, each with what it is about."""
    return [
        ("settings", _check_tables),
        ("warehouse", _check_sink),
        ("changefeed", _check_routes),
        ("source", _check_source),
    ]


def findings(changefeed: Changefeed, *, is_new: bool) -> list[TidelakeError]:
    """All errors in a changefeed that is to be created (``is_new``) or changed. Blocks."""
    *before, source = (check for _, check in checks())
    asked = [*before, refuse_others_warehouse, source, *([check_beginning] if is_new else [])]
    found: dict[str, TidelakeError] = {}
    for check in asked:
        try:
            check(changefeed)
        except TidelakeError as error:
            found.setdefault(str(error), error)  # two checks may ask the same source
    return list(found.values())


def _check_tables(changefeed: Changefeed) -> None:
    if changefeed.on_unknown_values == "reload" and not isinstance(
        changefeed.source, BinlogSettings
    ):
        raise ConfigError(
            "on-unknown-values: 'reload' loads a table anew from its database, where the source is "
            "mysql:// or mariadb://. Leave it out"
        )
    changefeed_routes(changefeed)
    forms = write_modes(changefeed)
    for defined in definitions_of(changefeed).values():
        forms.lossy.refuse(defined.name, forms.of(defined.name).choice.chosen(defined.schema))


def _check_sink(changefeed: Changefeed) -> None:
    check_warehouse(changefeed.sink, changefeed.id)


def _check_routes(changefeed: Changefeed) -> None:
    stored = _stored(changefeed.sink, changefeed.id)
    if stored is not None and stored.state == "loading" and not stored.has_begun:
        _refuse_amid_a_copy(changefeed)
    if stored is not None and stored.has_begun:
        refuse_other_routes(stored, changefeed)
        refuse_other_numbers(stored, changefeed)


def _refuse_amid_a_copy(changefeed: Changefeed) -> None:
    if not isinstance(changefeed.source, TidbSettings | BinlogSettings):
        raise TidelakeError(
            f"the tables of changefeed {changefeed.id} are being copied, or were when their copy "
            "was stopped: let `tidelake run` with its tidb:// URI end first. Where no copy is "
            "wanted any more, give another sink-uri"
        )


def _check_source(changefeed: Changefeed) -> None:
    if isinstance(changefeed.source, TidbSettings):
        Tidb(changefeed.source).check()
        return
    with closing(open_source(changefeed.source)) as source:
        check_clocks(changefeed, source)
        source.shape()


def refuse_others_warehouse(changefeed: Changefeed) -> None:
    """Raise ConfigError where somebody writes this changefeed into the warehouse already, and as
    `refuse_others_tables`. Blocks: whether a row is still refreshed may need a second look."""
    rows, left = Freshness().look(ControlTables.of(changefeed.sink).changefeeds.read_all)
    own = next((each for each in rows if each.changefeed_id == changefeed.id), None)
    if own is not None and own.fresh_for_s is not None and own.changefeed_id not in left:
        raise ConfigError(
            f"sink-uri: changefeed {changefeed.id} is replicated into {changefeed.sink.warehouse} "
            f"already, by capture {own.capture_id} ({own.process or 'no process is known'}) of "
            f"etcd cluster {own.etcd_cluster_id}: stop that, or give another sink-uri"
        )
    refuse_others_tables(changefeed)


def refuse_others_tables(changefeed: Changefeed) -> None:
    """Raise ConfigError where tables in the warehouse that the filter selects are another
    changefeed's. Blocks."""
    routes, tables = changefeed_routes(changefeed), ControlTables.of(changefeed.sink)
    taken: dict[str, list[str]] = {}
    for each in tables.progress.read_all():
        if each.changefeed_id != changefeed.id and routes.may_make(each.name):
            taken.setdefault(each.changefeed_id, []).append(str(each.name))
    for other, names in taken.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        raise ConfigError(
            f"sink-uri: tables in {changefeed.sink.warehouse} belong to changefeed {other}: "
            f"{', '.join(names[:NAMED])}{more}. Two changefeeds cannot write one table: give "
            "another sink-uri, or leave these tables out with [filter] rules"
        )


def check_clocks(changefeed: Changefeed, source: Source | None) -> None:
    """Raise ConfigError for a start that lies ahead of the clocks. ``source``: None where it
    cannot be asked."""
    refuse_far_ahead("start-ts", changefeed.start_ts, source)
    refuse_far_ahead("overwrite-checkpoint-ts", changefeed.overwrite_checkpoint_ts, source)


def check_beginning(changefeed: Changefeed) -> None:
    """Raise SourceLost if the source may have deleted messages that a new changefeed needs. A
    changefeed that has run is not checked here; its owner does that."""
    stored = _stored(changefeed.sink, changefeed.id)
    if stored is not None and stored.source_positions:
        return
    with closing(open_source(changefeed.source)) as source:
        first = source.beginnings(source.shape().parts)
        copied_ts = stored.checkpoint_ts if stored is not None and stored.has_begun else 0
        begin_ts = max(changefeed.start_ts, copied_ts)
        source.refuse_a_hole(first, checkpoint_ts=begin_ts, reached_ts=None)


def is_dump(changefeed: Changefeed) -> bool:
    """Whether nothing but files in a folder is to be made."""
    source = changefeed.source
    return isinstance(source, BinlogSettings) and source.task_mode == "dump"


def ends_with_copy(changefeed: Changefeed) -> bool:
    """Whether nothing is read but what is copied: no stream follows."""
    return is_dump(changefeed) or isinstance(changefeed.source, TidbSettings)


def to_its_end(changefeed: Changefeed) -> Changefeed:
    """The changefeed with a target-ts, where its source has an end and none was given, or where it
    ends with its copy, once that is made. Raises ConfigError where the source cannot be read. May
    take a while: it reads the whole source."""
    if changefeed.target_ts is not None or isinstance(changefeed.source, TidbSettings):
        return changefeed
    if isinstance(changefeed.source, BinlogSettings):
        is_full = changefeed.source.task_mode == "full"
        stored = _stored(changefeed.sink, changefeed.id) if is_full else None
        return replace(changefeed, target_ts=end_of_copy(stored) if stored is not None else None)
    with closing(open_source(changefeed.source)) as source:
        return replace(changefeed, target_ts=source.end_ts())


def end_of_copy(row: ChangefeedRow) -> int | None:
    """The ts at which a changefeed whose tables were copied shows them as they once were, all at
    one time; None before they are copied. Pure.

    The copy leaves ``max_published_ts``: there the tables are exact, and right behind it a snapshot
    is published. A changefeed that has published one is at its end as it is."""
    if not row.source_positions:
        return None
    behind = row.max_published_ts + 1
    if row.target_ts is not None and row.target_ts <= behind:
        return row.target_ts  # an earlier start has set out for it
    is_loading = row.checkpoint_ts < row.max_published_ts or row.checkpoint_ts == row.start_ts
    return behind if is_loading else row.checkpoint_ts


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
    else:
        with one_sentence("write to", sink.warehouse):
            _write_once(open_storage(sink.warehouse, revealed_options(sink.storage_options)))
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
    made = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    try:
        path.mkdir(parents=True, exist_ok=True)
        _write_once(LocalStorage(path))
    except OSError as error:
        raise NoWarehouse(
            f"sink-uri: {path} cannot be written: {error.strerror}: it cannot be a warehouse"
        ) from error
    finally:
        for each in made:  # as it was; what another process has written meanwhile stays
            with suppress(OSError):
                each.rmdir()


def _write_once(storage: TableStorage) -> None:
    """Write a small file as commits do, and delete it. Raises what writing raises."""
    probe = f"{PROBE}-{os.urandom(8).hex()}"
    storage.create(probe, b"")
    storage.delete([probe])


def refuse_far_ahead(name: str, ts: int | None, source: Source | None) -> None:
    """Raise ConfigError for a setting with a TSO that is more than a minute ahead. The source is
    asked only if the TSO is ahead of this machine's clock; ``source``: None if it cannot be
    asked."""
    ours_ms = time.time() * 1e3
    if ts is None or ts <= latest_ts(ours_ms):
        return
    clock = source.clock() if source is not None else SourceClock()
    theirs = (each for each in (clock.newest_ms, clock.latest_ms) if each is not None)
    if ts <= latest_ts(ours_ms, *theirs):
        return
    newest = (
        "the source's is not known (it was not asked, did not answer, or has no message)"
        if clock.newest_ms is None
        else f"its newest message is of {_shown_ms(clock.newest_ms)}"
    )
    raise ConfigError(
        f"{name} {ts} is the time {shown_ts(ts)}, more than a minute ahead: this machine's clock "
        f"says {_shown_ms(ours_ms)}, and {newest}. All changes up to then would be passed over: "
        "give a TSO of the past, or set the clock"
    )


def _shown_ms(at_ms: float) -> str:
    return shown_ts(int(at_ms) << TSO_LOGICAL_BITS)
