"""I1, I3, I4, I6, I8 and I9 of docs/cluster.md, seen from outside after each step.

I2, I5 and I7 are checked where they can be broken: at each landing in the fake warehouse."""

from __future__ import annotations

from coordination.etcd import keys
from coordination.metadata.model import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    TaskPosition,
    load,
)
from coordination.scheduler.replication_set import ReplicationState
from tests.coordination.scheduler.invariants import check_invariants
from tests.fakes.fake_replica import PLAYED
from tests.fakes.fake_warehouse import InvariantBroken, require
from tests.simulation.world import CLUSTER, NAME, World


class Watchman:
    def __init__(self, world: World) -> None:
        self.checkpoint_ts = 0
        self._world = world
        self._seen: dict[str, bytes] = {}  # values that were looked at

    def check(self) -> None:
        """Raises ``InvariantBroken``."""
        self._one_writer()
        self._checkpoint()
        self._sets()
        self._one_owner()
        self._reports()

    def _one_writer(self) -> None:
        writers: dict[int, str] = {}
        for capture in self._world.captures:
            for replica in capture.plane.replicas:
                if not replica.is_trusted:
                    continue
                for table_id in replica.writers():
                    other = writers.setdefault(table_id, capture.node)
                    require(
                        other == capture.node, f"I1: {other} and {capture.node} write t{table_id}"
                    )

    def _checkpoint(self) -> None:
        key = keys.changefeed_status_key(CLUSTER, NAME)
        value = self._world.value(key)
        if value is None or not self._is_news(key, value):
            return
        checkpoint_ts = load(ChangefeedStatus, value).checkpoint_ts
        require(checkpoint_ts >= self.checkpoint_ts, "I3: the changefeed's checkpoint falls")
        if checkpoint_ts > self.checkpoint_ts:
            self.checkpoint_ts = checkpoint_ts
            self._world.warehouse.check_checkpoint(checkpoint_ts)

    def _sets(self) -> None:
        for capture in self._world.captures:
            if (coordinator := capture.coordinator) is not None:
                for made in coordinator.replication.sets.values():
                    try:
                        check_invariants(made)
                    except AssertionError as error:
                        raise InvariantBroken(f"I6: {error}") from error
                known = coordinator.replication.tables
                registered = self._world.warehouse.registered
                is_current = self._world.warehouse.term == coordinator.info.term
                lost = [t for t in known if t not in registered] if is_current else []
                dropped = {each.table_id for each in self._world.source.ddls if each.kind == "drop"}
                require(set(lost) <= dropped, f"I4: tables that nobody registered: {lost}")

    def _one_owner(self) -> None:
        prefix = keys.election_prefix(CLUSTER)
        alive = {
            kv.create_revision
            for key, kv in self._world.etcd._kvs.items()
            if key.startswith(prefix)
        }
        leading = [
            capture.node
            for capture in self._world.captures
            if (inner := capture.server.capture) is not None
            and inner.owner is not None
            and inner.leads_since in alive
        ]
        require(len(leading) <= 1, f"I8: {leading} all lead")

    def _reports(self) -> None:
        """Two primaries, a failed step, a conflict of owners: none of it was played."""
        info_key = keys.changefeed_info_key(CLUSTER, NAME)
        errors = [
            load(ChangefeedInfo if key == info_key else TaskPosition, kv.value).error
            for key, kv in self._world.etcd._kvs.items()
            if (key == info_key or "/task/position/" in key) and self._is_news(key, kv.value)
        ]
        for error in errors:
            if error is not None:
                require(error.code in PLAYED, f"an error was reported: {error.message}")

    def _is_news(self, key: str, value: bytes) -> bool:
        is_news = self._seen.get(key) is not value
        self._seen[key] = value
        return is_news

    def _state(self) -> FeedState | None:
        value = self._world.value(keys.changefeed_info_key(CLUSTER, NAME))
        return None if value is None else load(ChangefeedInfo, value).state

    def unsettled(self, since_ts: int) -> str:
        """I4, I9: what is still missing for all to be well again; empty: nothing."""
        world = self._world
        if world.target_ts is not None:
            is_finished = world.warehouse.is_finished and self._state() is FeedState.FINISHED
            return "" if is_finished else "the changefeed does not come to its target-ts"
        owner = world.owner
        if owner is None or owner.coordinator is None:
            return "nobody owns the changefeed"
        replication = owner.coordinator.replication
        for table_id in world.warehouse.registered:
            made = replication.sets.get(table_id)
            if made is None or made.state is not ReplicationState.REPLICATING:
                return f"t{table_id} does not replicate"
        if not replication.is_settled:
            return "spans are not settled"
        if self.checkpoint_ts < since_ts:
            return "the checkpoint does not move"
        return ""
