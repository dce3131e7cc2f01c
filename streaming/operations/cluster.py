"""An operator's operations on a cluster, from anywhere, for the command line or an HTTP API.

    create, update, pause, resume, remove ─► etcd, by `ChangefeedOperator`
    drain, move, rebalance, processors    ─► the owner found in etcd, by gRPC (docs/cluster.md 15)
    pause and resume of a table           ─► the table's own log, wherever it is replicated

An answer is a mapping (one changefeed in full), or a list of mappings with equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from conf.load import check_ts
from conf.settings import Changefeed, DeltaSink, EtcdSettings, TransportSettings
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.etcd.client import EtcdClient
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import ChangefeedName, check_cluster_id
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.changefeed_writes import check_updatable
from coordination.metadata.errors import (
    ChangefeedExists,
)
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import (
    find_changefeed,
    read_captures,
    read_changefeed,
    read_changefeeds,
)
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID, Ts, tso_time
from coordination.secrets import revealed_options
from sinks.control.warehouse import ControlTables
from streaming.changefeed.admission import refuse_a_runs
from streaming.changefeed.freshness import NOT_RUNNING
from streaming.changefeed.settings_in_etcd import changefeed_settings, described, updated, uris
from streaming.operations.before_start.findings import DryRunRefused, findings, refuse
from streaming.operations.captures import CaptureOperations, ShownRow, table_name
from streaming.operations.changed import CHANGED, between, setting_changes
from streaming.operations.owner_calls import OwnerCalls
from streaming.operations.tasks import TaskOperations

GO_ON: Final = (
    "Give it another target-ts (`tidelake changefeed update --target-ts`, 0 for none), then "
    "`resume` goes on; or go back with `resume --overwrite-checkpoint-ts`"
)


class Operator(CaptureOperations):
    """A cluster's operations, over one connection to etcd. All of them block. They raise
    SettingError or ConfigError for wrong arguments, another TidelakeError otherwise."""

    def __init__(self, client: EtcdClient, cluster_id: str, calls: OwnerCalls) -> None:
        super().__init__(client, cluster_id, calls)
        self._changefeeds = ChangefeedOperator(client, cluster_id)
        self.tasks = TaskOperations(client, cluster_id, calls)

    # Changefeeds: state in etcd.

    def create(
        self,
        changefeed: Changefeed,
        arguments: Mapping[str, Any],
        document: Mapping[str, Any],
        *,
        is_checked: bool,
        is_dry: bool = False,
    ) -> ShownRow:
        """Create a changefeed with these settings, which were read from ``arguments``, environment
        and file (``document``). Raises ConfigError if its name is taken, or if a `tidelake run`
        replicates it; with ``is_checked`` also the errors that a start would raise. ``is_dry``:
        change nothing, and return the changefeed as it would be, with all findings."""
        from streaming.operations.before_start.planned import planned_tables

        _refuse_to_copy(changefeed)
        info = described(changefeed, arguments, document)
        advice = (
            "`tidelake changefeed resume` goes on with it, `update` changes it, `remove` ends it"
        )
        if find_changefeed(self._client, self._cluster_id, info.name) is not None:
            raise ConfigError(f"there is a changefeed {info.name}. {advice}")
        refuse_a_runs(self._client, self._cluster_id, info)
        found_wrong = findings(info, is_new=True, is_checked=is_checked)
        if is_dry:
            tables = planned_tables(changefeed) if is_checked else []
            return self._planned(info, found_wrong, {}, tables=tables)
        refuse(found_wrong)
        try:
            self._changefeeds.create(info)
        except ChangefeedExists as error:
            raise ConfigError(f"{error}. {advice}") from error
        return self._changed(info.id, {})

    def _planned(
        self,
        info: ChangefeedInfo,
        found_wrong: Sequence[TidelakeError],
        changes: Mapping[str, Any],
        **more: Any,
    ) -> ShownRow:
        """The result of a dry run. If something was found wrong, raises DryRunRefused, which has
        the result."""
        planned = {
            "changefeed": info.id,
            "state": known_state(info).value,
            **uris(info),
            "start_ts": info.start_ts,
            "target_ts": info.target_ts,
            **more,
            "findings": [str(each) for each in found_wrong],
            CHANGED: dict(changes),
        }
        if found_wrong:
            raise DryRunRefused(planned)
        return planned

    def list_changefeeds(self) -> list[ShownRow]:
        found = read_changefeeds(self._client, self._cluster_id)
        alive = self._alive()
        return [_changefeed(each, alive) for each in found]

    def query(self, changefeed_id: str) -> ShownRow:
        found = self._read(changefeed_id)
        info = found.known_info
        error = info.error or info.warning
        more = {
            **uris(info),
            "start_ts": info.start_ts,
            "target_ts": info.target_ts,
            "epoch": info.epoch,
            "error": None if error is None else f"{error.code}: {error.message}",
            "awaits": (found.status.awaits or None) if found.status else None,
        }
        alive = self._alive()
        row = {**_changefeed(found, alive), **more}
        if row["state"] == NOT_RUNNING and row["error"] is None:
            row["error"] = _why_not_running(row["owner"], alive)
        if row["owner"] is None and known_state(info).is_running:
            row["awaits"] = _who_launches_it(alive)
        return row

    def _alive(self) -> Mapping[str, str]:
        """The registered captures: their addresses by ID."""
        found = read_captures(self._client, self._cluster_id)
        return {each.id: each.address for each in found}

    def _changed(
        self, changefeed_id: str, before: ShownRow, more: Mapping[str, Any] | None = None
    ) -> ShownRow:
        """The changefeed as it is now, and its changes since ``before``."""
        after = self.query(changefeed_id)
        return {**after, CHANGED: {**between(before, after, "state"), **(more or {})}}

    def pause(self, changefeed_id: str) -> ShownRow:
        before = self.query(changefeed_id)
        if before["state"] == FeedState.FINISHED.value:
            raise ConfigError(
                f"changefeed {changefeed_id} has finished at its target-ts {before['target_ts']}: "
                f"there is nothing to pause. {GO_ON}"
            )
        if before["state"] == FeedState.STOPPED.value:
            _refuse_amid_a_reload(changefeed_settings(self._read(changefeed_id).known_info))
        self._changefeeds.pause(_name(changefeed_id))
        return self._changed(changefeed_id, before)

    def resume(self, changefeed_id: str, overwrite_checkpoint_ts: int | None) -> ShownRow:
        """``overwrite_checkpoint_ts``: rewind to it. Raises SettingError or ConfigError for one
        with which the changefeed would fail at once."""
        ts = None if overwrite_checkpoint_ts is None else Ts(overwrite_checkpoint_ts)
        check_ts("overwrite-checkpoint-ts", ts)
        before = self.query(changefeed_id)
        if ts is not None:
            _check_rewind(changefeed_settings(self._read(changefeed_id).known_info), ts)
        target_ts = before["target_ts"]
        if ts is not None and 0 < target_ts <= ts:
            raise ConfigError(
                f"overwrite-checkpoint-ts {ts} must be below the changefeed's target-ts "
                f"{target_ts}, which `tidelake changefeed update --target-ts` changes"
            )
        if ts is None and 0 < target_ts <= before["checkpoint_ts"]:
            raise ConfigError(
                f"changefeed {changefeed_id} has reached its target-ts {target_ts}, and would "
                f"finish again at once. {GO_ON}"
            )
        self._changefeeds.resume(_name(changefeed_id), ts)
        rewound = {"from": before["checkpoint_ts"], "to": ts}
        return self._changed(
            changefeed_id, before, {} if ts is None else {"checkpoint_ts": rewound}
        )

    def update(
        self,
        changefeed_id: str,
        arguments: Mapping[str, Any],
        document: Mapping[str, Any],
        *,
        is_checked: bool,
        is_dry: bool = False,
    ) -> ShownRow:
        """Change the given settings of a changefeed that is paused, failed or finished. Other
        settings stay, and so do its ID and time of creation. ``is_dry``: as in ``create``."""
        found = self._read(changefeed_id)
        stored = found.known_info
        check_updatable(stored)
        changed = updated(stored, arguments, document)
        if changed == stored:
            raise ConfigError(
                f"nothing is changed: all that is given is so already in changefeed {changefeed_id}"
            )
        if changed.sink_uri != stored.sink_uri:
            _refuse_to_copy(changefeed_settings(changed))
        found_wrong = findings(changed, is_new=False, is_checked=is_checked)
        if changed.target_ts != stored.target_ts:
            _check_target(changed, found)
        if is_dry:
            return self._planned(changed, found_wrong, setting_changes(stored, changed))
        refuse(found_wrong)
        self._changefeeds.update(_name(changefeed_id), changed)
        return {**self.query(changefeed_id), CHANGED: setting_changes(stored, changed)}

    def remove(self, changefeed_id: str) -> list[ShownRow]:
        """Remove a changefeed. Its owner stops it and cleans it up; if the cluster has no captures,
        it is cleaned up here."""
        found = self._read(changefeed_id)
        self._changefeeds.remove(found.name)
        if not read_captures(self._client, self._cluster_id):
            self._changefeeds.cleanup(found.name)
        before = _changefeed(found, self._alive())
        after = {**before, "state": FeedState.REMOVED.value}
        return [{**after, CHANGED: between(before, after, "state")}]

    def _read(self, changefeed_id: str) -> ChangefeedReactorState:
        return read_changefeed(self._client, self._cluster_id, _name(changefeed_id))


def _refuse_amid_a_reload(changefeed: Changefeed) -> None:
    """The leader has paused it, and would resume it: an operator's pause would be lost."""
    order = ControlTables.of(changefeed.sink).reloads.next_open(changefeed.id)
    if order is not None and order.state != "ordered":
        raise ConfigError(
            f"changefeed {changefeed.id} is stopped while table {order.name} is loaded anew "
            f"(`tidelake table reload`, {order.state}: {order.rows} rows so far), and goes on by "
            "itself behind that: pause it then. `tidelake progress` shows how far it is"
        )


@contextmanager
def operator(
    etcd: EtcdSettings, tls: TransportSettings, say: Callable[[str], None]
) -> Iterator[Operator]:
    """An operator connected to etcd; ``say`` gets lines about waits. Raises ConfigError, or
    TidelakeError if etcd does not answer."""
    if etcd.embedded:
        raise ConfigError(
            "etcd is missing: --etcd http://host:2379, where the captures meet (a server that has "
            "one of its own logs where)"
        )
    check_cluster_id(etcd.cluster_id)
    client = connect(etcd)
    try:
        yield Operator(client, etcd.cluster_id, OwnerCalls(client, etcd.cluster_id, tls, say))
    finally:
        client.close()


def _refuse_to_copy(changefeed: Changefeed) -> None:
    """A changefeed of a cluster copies nothing: without this it would lack the rows of before."""
    source = changefeed.source
    if isinstance(source, BinlogSettings) and source.task_mode != "incremental":
        raise ConfigError(
            f"source-uri: task-mode={source.task_mode} begins with a copy, which a cluster makes "
            "for a task: `tidelake task start` with a task file. Give task-mode=incremental for a "
            "changefeed that copies nothing"
        )
    if isinstance(source, TidbSettings):
        raise ConfigError(
            "source-uri: a TiDB is copied by `tidelake run`. After that, create the changefeed "
            "with the kafka:// URI, and with the TSO of the copy as --start-ts"
        )


def set_table_paused(sink: DeltaSink, table: str, *, paused: bool) -> ShownRow:
    """Stop commits to a table, or allow them again; its changes wait until then."""
    from sinks.merge_on_write.log.pause import set_paused  # Delta is imported where it is needed
    from sinks.target.target_table import table_uri

    uri = table_uri(sink.warehouse, table_name(table))
    is_new = set_paused(uri, revealed_options(sink.storage_options), paused=paused)
    before, after = ("replicating", "paused") if paused else ("paused", "replicating")
    changed = {"state": {"from": before, "to": after}} if is_new else {}
    return {"table": table, "state": after, CHANGED: changed}


def _check_target(changed: ChangefeedInfo, found: ChangefeedReactorState) -> None:
    """Raise ConfigError for a new target-ts that lies behind the checkpoint."""
    checkpoint_ts = found.status.checkpoint_ts if found.status else changed.start_ts
    if 0 < changed.target_ts <= checkpoint_ts:
        raise ConfigError(
            f"target-ts {changed.target_ts} must be above the checkpoint-ts {checkpoint_ts} of "
            f"changefeed {changed.id}: changes above the target are in the tables already. Give a "
            "later target, or 0 for none; `tidelake changefeed resume --overwrite-checkpoint-ts` "
            "goes back"
        )


def _check_rewind(changefeed: Changefeed, ts: int) -> None:
    """Raise ConfigError for a rewind that lies ahead of the clocks. A broker that does not answer
    here does not matter: this machine's clock alone has to do then."""
    from streaming.changefeed.preflight import refuse_far_ahead
    from streaming.source.sources import open_source

    with closing(open_source(changefeed.source)) as source:
        refuse_far_ahead("overwrite-checkpoint-ts", ts, source)


def _name(changefeed_id: str) -> ChangefeedName:
    return ChangefeedName(ChangefeedID(changefeed_id))


def _changefeed(found: ChangefeedReactorState, alive: Collection[str]) -> dict[str, Any]:
    """The changefeed as etcd has it. If it is to run and the capture that has launched it is gone,
    it is `not running`. A changefeed that was never launched has no owner yet."""
    info, state = found.known_info, known_state(found.known_info)
    checkpoint = found.status.checkpoint_ts if found.status else info.start_ts
    owner = found.schedule.owner if found.schedule else None
    is_active = state.is_running or state is FeedState.PENDING
    is_left = is_active and owner is not None and owner not in alive
    return {
        "changefeed": info.id,
        "state": NOT_RUNNING if is_left else info.state.value or "uninitialized",
        "checkpoint_ts": checkpoint,
        "checkpoint_time": tso_time(checkpoint) if checkpoint else None,
        "owner": owner,
    }


def _who_launches_it(alive: Mapping[str, str]) -> str:
    if not alive:
        return "no capture is there that would replicate it: start a `tidelake server`"
    return f"the owner of the cluster launches it: one of {', '.join(alive)}"


def _why_not_running(owner: str, alive: Mapping[str, str]) -> str:
    names = ", ".join(f"{each} at {address}" for each, address in alive.items())
    next_one = f"another one takes over: {names}" if names else "start a `tidelake server`"
    return f"its owner, capture {owner}, is gone; {next_one}"
