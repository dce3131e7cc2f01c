"""What an operator can do to a cluster from anywhere, for the command line or an HTTP API.

    create, update, pause, resume, remove ─► etcd, by `ChangefeedOperator`
    drain, move, rebalance, processors    ─► the owner found in etcd, by gRPC (docs/cluster.md 15)
    pause and resume of a table           ─► the table's own log, wherever it is replicated

An answer is a mapping (one changefeed in full), or a list of mappings with equal keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from conf.load import check_ts
from conf.settings import Changefeed, DeltaSink, EtcdSettings, SettingError, TransportSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.etcd.client import EtcdClient
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import ChangefeedName, check_cluster_id
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.changefeed_writes import check_updatable
from coordination.metadata.errors import (
    CaptureNotFound,
    ChangefeedExists,
    OwnerNotFound,
)
from coordination.metadata.lookup import (
    find_changefeed,
    read_captures,
    read_changefeed,
    read_changefeeds,
    read_controller,
)
from coordination.metadata.model import ChangefeedInfo, FeedState
from coordination.metadata.operator import ChangefeedOperator
from coordination.model import CaptureID, ChangefeedID, TableName, Ts, tso_time
from coordination.scheduler.grpc_calls import call_owner
from coordination.secrets import revealed_options
from streaming.admission import refuse_a_runs
from streaming.cluster.changefeed_settings import changefeed_settings, described, updated, uris

CALL_S = 10.0
Row = Mapping[str, Any]
RECALLS = 5  # so often at most a drain is taken back, until there is none to take back
RECALL_AGAIN_S = 0.5


class Operator:
    """A cluster's operations, over one connection to etcd. All of them block. They raise
    SettingError or ConfigError for what is given wrong, another TidelakeError else."""

    def __init__(self, client: EtcdClient, cluster_id: str, tls: TransportSettings) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self._tls = tls
        self._changefeeds = ChangefeedOperator(client, cluster_id)

    # Changefeeds: state in etcd.

    def create(
        self,
        changefeed: Changefeed,
        arguments: Mapping[str, Any],
        document: Mapping[str, Any],
        *,
        is_checked: bool,
    ) -> Row:
        """Create a changefeed with these settings, which were read from ``arguments``, environment
        and file (``document``). Raises ConfigError if its name is taken, or if a `tidelake run`
        replicates it; with ``is_checked`` also what a start would raise."""
        info = described(changefeed, arguments, document)
        advice = (
            "`tidelake changefeed resume` goes on with it, `update` changes it, `remove` ends it"
        )
        if find_changefeed(self._client, self._cluster_id, info.name) is not None:
            raise ConfigError(f"there is a changefeed {info.name}. {advice}")
        refuse_a_runs(self._client, self._cluster_id, info)
        _check(info, is_checked=is_checked, is_new=True)
        try:
            self._changefeeds.create(info)
        except ChangefeedExists as error:
            raise ConfigError(f"{error}. {advice}") from error
        return self.query(info.id)

    def list_changefeeds(self) -> list[Row]:
        found = read_changefeeds(self._client, self._cluster_id)
        return [_changefeed(each) for each in found]

    def query(self, changefeed_id: str) -> Row:
        found = self._read(changefeed_id)
        info = found.known_info
        error = info.error or info.warning
        more = {
            **uris(info),
            "start_ts": info.start_ts,
            "target_ts": info.target_ts,
            "epoch": info.epoch,
            "error": None if error is None else f"{error.code}: {error.message}",
        }
        return {**_changefeed(found), **more}

    def pause(self, changefeed_id: str) -> Row:
        self._changefeeds.pause(_name(changefeed_id))
        return self.query(changefeed_id)

    def resume(self, changefeed_id: str, overwrite_checkpoint_ts: int | None) -> Row:
        """``overwrite_checkpoint_ts``: rewind to it. Raises SettingError or ConfigError for one
        with which the changefeed would fail at once."""
        ts = None if overwrite_checkpoint_ts is None else Ts(overwrite_checkpoint_ts)
        check_ts("overwrite-checkpoint-ts", ts)
        target_ts = self._read(changefeed_id).known_info.target_ts
        if ts is not None and 0 < target_ts <= ts:
            raise ConfigError(
                f"overwrite-checkpoint-ts {ts} must be below the changefeed's target-ts "
                f"{target_ts}, which `tidelake changefeed update --target-ts` changes"
            )
        self._changefeeds.resume(_name(changefeed_id), ts)
        return self.query(changefeed_id)

    def update(
        self,
        changefeed_id: str,
        arguments: Mapping[str, Any],
        document: Mapping[str, Any],
        *,
        is_checked: bool,
    ) -> Row:
        """Change the given settings of a paused changefeed. What is not given stays, and so do its
        ID and time of creation."""
        stored = self._read(changefeed_id).known_info
        check_updatable(stored)
        changed = updated(stored, arguments, document)
        if changed == stored:
            raise ConfigError(
                f"nothing is changed: all that is given is so already in changefeed {changefeed_id}"
            )
        _check(changed, is_checked=is_checked, is_new=False)
        self._changefeeds.update(_name(changefeed_id), changed)
        return self.query(changefeed_id)

    def remove(self, changefeed_id: str) -> list[Row]:
        """Remove a changefeed. Its owner stops it and cleans it up; if the cluster has no captures,
        it is cleaned up here."""
        found = self._read(changefeed_id)
        self._changefeeds.remove(found.name)
        if not read_captures(self._client, self._cluster_id):
            self._changefeeds.cleanup(found.name)
        return [{**_changefeed(found), "state": FeedState.REMOVED.value}]

    # Captures and spans: asked of the owner.

    def list_captures(self) -> list[Row]:
        owner = None
        with suppress(OwnerNotFound):
            owner = read_controller(self._client, self._cluster_id).id
        return [
            {
                "capture": each.id,
                "address": each.address,
                "is_owner": each.id == owner,
                "state": "draining" if each.is_draining else "serving",
                "version": each.version,
            }
            for each in read_captures(self._client, self._cluster_id)
        ]

    def drain(self, capture_id: str) -> list[Row]:
        """Have the owner move a capture's spans to others. Returns how many it still has; call
        again until that is 0."""
        found = self._ask("drain-capture", {"capture-id": capture_id})
        return [{"capture": capture_id, "remaining": found["remaining"]}]

    def take_back_drain(self, capture_id: str) -> list[Row]:
        """Have the owner stop draining a capture, and the capture serve again. An order of the
        owner that is still under way may drain it once more; so this is repeated until the capture
        answers that it was not draining."""
        found = read_captures(self._client, self._cluster_id, CaptureID(capture_id))
        if not found:
            raise CaptureNotFound(
                f"no capture {capture_id} is registered: see `tidelake capture list`"
            )
        for _ in range(RECALLS):
            with suppress(OwnerNotFound):  # all were drained: nobody leads until one serves again
                self._ask("keep-capture", {"capture-id": capture_id})
            answer = call_owner(
                found[0].address,
                "serve-again",
                {"capture-id": capture_id},
                timeout_s=CALL_S,
                tls=self._tls,
            )
            if not answer["was-draining"]:
                break
            time.sleep(RECALL_AGAIN_S)
        return [{"capture": capture_id, "state": "serving"}]

    def move_table(self, changefeed_id: str, table: str, capture_id: str) -> list[Row]:
        table_name(table)
        params = {"changefeed-id": changefeed_id, "table": table, "capture-id": capture_id}
        self._ask("move-table", params)
        return [{"changefeed": changefeed_id, "table": table, "to": capture_id}]

    def rebalance(self, changefeed_id: str) -> list[Row]:
        self._ask("rebalance", {"changefeed-id": changefeed_id})
        return [{"changefeed": changefeed_id, "rebalance": "begun"}]

    def list_processors(self, changefeed_id: str | None) -> list[Row]:
        found = self._ask("list-processors", {"changefeed-id": changefeed_id})
        return list(found["rows"])

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        owner = read_controller(self._client, self._cluster_id)
        return call_owner(owner.address, method, params, timeout_s=CALL_S, tls=self._tls)

    def _read(self, changefeed_id: str) -> ChangefeedReactorState:
        return read_changefeed(self._client, self._cluster_id, _name(changefeed_id))


@contextmanager
def operator(etcd: EtcdSettings, tls: TransportSettings) -> Iterator[Operator]:
    """An operator connected to etcd. Raises ConfigError, or TidelakeError if etcd does not
    answer."""
    if etcd.embedded:
        raise ConfigError(
            "etcd is missing: --etcd http://host:2379, where the captures meet (a server that has "
            "one of its own logs where)"
        )
    check_cluster_id(etcd.cluster_id)
    client = connect(etcd)
    try:
        yield Operator(client, etcd.cluster_id, tls)
    finally:
        client.close()


def set_table_paused(sink: DeltaSink, table: str, *, paused: bool) -> bool:
    """Stop commits to a table, or allow them again; its changes wait until then. Returns False if
    the table is in that state already."""
    from sinks.merge_on_write.pause import set_paused  # Delta is imported where it is needed
    from sinks.tables import table_uri

    uri = table_uri(sink.warehouse, table_name(table))
    return set_paused(uri, revealed_options(sink.storage_options), paused=paused)


def table_name(text: str) -> TableName:
    """The table of a text ``schema.table``. Raises SettingError."""
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise SettingError(f"--table {text!r}: expected schema.table")
    return TableName(schema, name)


def _check(info: ChangefeedInfo, *, is_checked: bool, is_new: bool) -> None:
    """Check the info that goes into etcd. Raises what a start with it would raise; without
    ``is_checked`` only for settings, without asking broker and warehouse."""
    from streaming import preflight
    from streaming.source.kafka import SourceLost

    changefeed = changefeed_settings(info)
    if not is_checked:
        return
    try:
        preflight.check_changefeed(changefeed)
        if is_new:
            preflight.check_beginning(changefeed)
    except preflight.NoWarehouse as error:
        raise ConfigError(_or_elsewhere(error)) from error
    except (ConfigError, SourceLost):
        raise  # broker and storage were reached, so the captures would fail in the same way
    except TidelakeError as error:
        raise TidelakeError(_or_elsewhere(error)) from error


def _or_elsewhere(error: TidelakeError) -> str:
    return (
        f"{str(error).rstrip('.')} (if that is so here alone, and not for the captures: --no-check)"
    )


def _name(changefeed_id: str) -> ChangefeedName:
    return ChangefeedName(ChangefeedID(changefeed_id))


def _changefeed(found: ChangefeedReactorState) -> dict[str, Any]:
    info = found.known_info
    checkpoint = found.status.checkpoint_ts if found.status else info.start_ts
    return {
        "changefeed": info.id,
        "state": info.state.value or "uninitialized",
        "checkpoint_ts": checkpoint,
        "checkpoint_time": tso_time(checkpoint) if checkpoint else None,
        "owner": found.schedule.owner if found.schedule else None,
    }
