"""Decide who may replicate a changefeed: a cluster or `tidelake run`, never both into one
warehouse.

Each would take the term away from the other again and again. So the second one is refused: by this
module if both use the same etcd and cluster ID, else by the claim in Delta. A capture of another
version than the others' is refused here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from conf.load import warehouse_of
from conf.problems import SettingError
from conf.rows.event_filter import EventFilter
from conf.rows.row_filter import texts_of
from conf.settings import Changefeed
from coordination.capture.run_admission import RUN
from coordination.errors import ConfigError
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.lookup import captures_before, find_changefeed, read_captures
from coordination.metadata.records import ChangefeedInfo, rfc3339
from coordination.metadata.version import tidelake_version
from coordination.model import ChangefeedID, Revision, Ts
from streaming.changefeed.schema_file import definitions_of, digest
from streaming.changefeed.settings_in_etcd import DELTA_URI

SINK = "sink-uri"


def info_of(changefeed: Changefeed) -> ChangefeedInfo:
    """The changefeed of a `run` as it is put into its scope in etcd: the settings on which all its
    captures must agree.

    Settings that say how a capture works (brokers and login, storage options, engine, batches) are
    not in it, since each capture has its own; so etcd gets no secret. The start of the changefeed
    is not in it either: its row in Delta says that from the first start on.
    """
    source, given = changefeed.source, changefeed.filter
    agreed = {
        **source.agreed,
        "protocol": source.protocol,
        "time-zone": source.time_zone,
        SINK: changefeed.sink.warehouse,
        "target-ts": changefeed.target_ts,
        "overwrite-checkpoint-ts": changefeed.overwrite_checkpoint_ts,
        "filter.rules": ",".join(given.rules),
        "filter.event-filters": [_told(each) for each in given.event_filters] or None,
        "case-sensitive": given.case_sensitive,
        "zero-date": changefeed.zero_date,
        "on-error": changefeed.on_error,
        "on-unknown-column": changefeed.on_unknown_column,
        "on-add-default": changefeed.on_add_default,
        "on-type-change": changefeed.on_type_change,
        "ddl-time-zone": changefeed.ddl_time_zone,
        "schema-file": digest(definitions_of(changefeed)),
        "on-drop": changefeed.on_drop,
    }
    if given.dml_filters != "here":
        agreed["filter.dml-filters"] = given.dml_filters
    if changefeed.integrity_check_level != "none":
        agreed["integrity-check-level"] = changefeed.integrity_check_level
        agreed["corruption-handle-level"] = changefeed.corruption_handle_level
    if changefeed.strict_types:
        agreed["strict-types"] = True
    if changefeed.sink.tables:
        agreed["sink.tables"] = [asdict(each) for each in changefeed.sink.tables]
    if changefeed.sink.routes:
        agreed["sink.routes"] = [asdict(each) for each in changefeed.sink.routes]
    if changefeed.sink.column_selectors:
        agreed["sink.column-selectors"] = [asdict(e) for e in changefeed.sink.column_selectors]
    if changefeed.sink.column_masks:
        agreed["sink.column-masks"] = [asdict(each) for each in changefeed.sink.column_masks]
    as_text = {name: None if value is None else str(value) for name, value in agreed.items()}
    return ChangefeedInfo(
        id=ChangefeedID(changefeed.id),
        sink_uri=source.uri,
        create_time=rfc3339(datetime.now(UTC)),
        target_ts=Ts(changefeed.target_ts or 0),
        config={RUN: as_text},
        creator_version=tidelake_version(),
    )


def _told(event_filter: EventFilter) -> dict[str, Any]:
    """Without the conditions where it has none, as before there were any."""
    told, conditions = asdict(event_filter), texts_of(event_filter)
    ours = [each for each in told if each.endswith("_value_expr") or each == "ignore_update_if"]
    return told if conditions else {name: of for name, of in told.items() if name not in ours}


def refuse_a_clusters(
    client: EtcdClient, cluster_id: str, changefeed_id: str, warehouse: str
) -> None:
    """Raise ConfigError if a `run` would replicate a changefeed of the cluster into the same
    warehouse, also a paused one."""
    info = _info(client, cluster_id, changefeed_id)
    if info is not None and _warehouse(info) == warehouse:
        raise ConfigError(
            f"changefeed {changefeed_id} into {warehouse} belongs to the captures of cluster "
            f"{cluster_id} (state {info.state.value or 'uninitialized'}). They replicate it: "
            f"see `tidelake changefeed query -c {changefeed_id}`. To replicate it with "
            "`tidelake run` end it there first (`tidelake changefeed remove`), or give this "
            "run another --changefeed-id and --sink-uri"
        )


def refuse_beside_other_versions(client: EtcdClient, cluster_id: str, registered: Revision) -> None:
    """Raise ConfigError if a capture that registered before this one has another version.
    ``registered``: the create-revision of this capture's key."""
    ours = tidelake_version()
    for each in captures_before(client, cluster_id, registered):
        if each.version != ours:
            raise ConfigError(
                f"this is version {ours}, and capture {each.id} at {each.address} has version "
                f"{each.version}: all captures of a cluster have one version. Stop the others "
                "first. A capture that was killed counts until its lease ends"
            )


def refuse_a_runs(client: EtcdClient, cluster_id: str, info: ChangefeedInfo) -> None:
    """Raise ConfigError if a `run` replicates the changefeed into the same warehouse."""
    scope = keys.run_scope(cluster_id, info.id)
    of_run = _info(client, scope, info.id)
    agreed: Mapping[str, str] = ((of_run.config if of_run else None) or {}).get(RUN) or {}
    runs = read_captures(client, scope)
    if of_run is not None and runs and agreed.get(SINK) == _warehouse(info):
        raise ConfigError(
            f"changefeed {info.id} into {_warehouse(info)} is replicated by a `tidelake run` "
            f"at {runs[0].address} (capture {runs[0].id}): stop it first; the cluster then goes on "
            "where it was"
        )


def _info(client: EtcdClient, cluster_id: str, changefeed_id: str) -> ChangefeedInfo | None:
    found = find_changefeed(client, cluster_id, ChangefeedName(ChangefeedID(changefeed_id)))
    return found.info if found is not None else None


def _warehouse(info: ChangefeedInfo) -> str | None:
    """The changefeed's warehouse; None for a changefeed of TiCDC, whose sink is not a warehouse."""
    uri = ((info.config or {}).get("sink") or {}).get(DELTA_URI)
    with suppress(SettingError):
        return warehouse_of(uri)
    return None
