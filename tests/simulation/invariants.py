"""I1, I3, I4, I6, I8 and I9 of docs/cluster.md, seen from outside after each step.

I2, I5 and I7 are checked where they can be broken: at each landing in the fake warehouse."""

from __future__ import annotations

from coordination.errors import Fenced
from coordination.etcd import keys
from coordination.etcd.election import REREAD_S
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    SchedState,
    TaskPosition,
    load,
)
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import ReplicationState
from coordination.trust.fence import Fence
from tests.coordination.scheduler.invariants import check_invariants
from tests.fakes.fake_replica import PLAYED, FakeReplica
from tests.fakes.fake_warehouse import InvariantBroken, Start, require
from tests.simulation.feeds import CLUSTER, LATER, NAME, SimFeed
from tests.simulation.jobs.invariants import JobsWatchman
from tests.simulation.world import QUIET_S, World


def is_open(fence: Fence) -> bool:
    try:
        fence.check()
    except Fenced:
        return False
    return True


class Watchman:
    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs = JobsWatchman(world, world.jobs) if world.jobs is not None else None
        self._seen: dict[str, bytes] = {}  # values that were looked at
        self._states_seen: dict[str, bytes | None] = {}
        # By table: who has written it last, and when that one was last trusted.
        self._last: dict[tuple[str, int, Start], tuple[FakeReplica, float]] = {}

    @property
    def checkpoint_ts(self) -> int:
        """Of the first changefeed."""
        return self._world.feeds[NAME].seen_checkpoint_ts

    def check(self) -> None:
        """Raises ``InvariantBroken``."""
        self._trust()
        self._one_owner()
        self._reports()
        for feed in self._world.feeds.values():
            self._one_writer(feed)
            self._checkpoint(feed)
            self._states(feed)
            self._sets(feed)
        if self._jobs is not None:
            self._jobs.check()

    @property
    def _is_lenient(self) -> bool:
        return self._world.clock.now_s < self._world.lenient_until

    def _trust(self) -> None:
        """I1: whatever a node's clock says, nobody trusts a lease that has ended."""
        if self._is_lenient:
            return
        for capture in self._world.captures:
            inner = capture.server.capture
            if inner is not None and inner.session.lease not in self._world.etcd._leases:
                require(not is_open(capture.fence), f"I1: {capture.node} trusts an ended lease")

    def _one_writer(self, feed: SimFeed) -> None:
        if self._is_lenient:
            self._last.clear()
            return
        self._look_at_the_last(self._world.clock.now_s)
        writers: dict[int, str] = {}
        for capture in self._world.captures:
            for replica in capture.plane.replicas:
                if replica.changefeed_id != feed.name.id or not replica.is_trusted:
                    continue
                for table_id in replica.writers():
                    self._succeed(replica, table_id, self._world.clock.now_s)
                    other = writers.setdefault(table_id, capture.node)
                    require(
                        other == capture.node, f"I1: {other} and {capture.node} write t{table_id}"
                    )

    def _look_at_the_last(self, now_s: float) -> None:
        for key, (replica, _) in list(self._last.items()):
            is_trusted = replica.is_trusted
            if (key[1] not in replica.writers()) if is_trusted else replica.is_closed():
                del self._last[key]
            elif is_trusted:
                self._last[key] = (replica, now_s)

    def _succeed(self, replica: FakeReplica, table_id: int, now_s: float) -> None:
        """Who may still have something under way has the quiet time for it (deadline.py)."""
        key = (replica.changefeed_id, table_id, replica.start)
        before, trusted_at = self._last.setdefault(key, (replica, now_s))
        if before is not replica:
            quiet_s = now_s - trusted_at
            require(quiet_s >= QUIET_S, f"I1: t{table_id} is given away after {quiet_s:.2f} s")
            self._last[key] = (replica, now_s)

    def _checkpoint(self, feed: SimFeed) -> None:
        key = keys.changefeed_status_key(CLUSTER, feed.name)
        value = self._world.value(key)
        if value is None or not self._is_news(key, value):
            return
        checkpoint_ts = load(ChangefeedStatus, value).checkpoint_ts
        require(checkpoint_ts >= feed.seen_checkpoint_ts, "I3: the changefeed's checkpoint falls")
        if checkpoint_ts > feed.seen_checkpoint_ts:
            feed.seen_checkpoint_ts = checkpoint_ts
            feed.warehouse.check_checkpoint(checkpoint_ts)

    def _states(self, feed: SimFeed) -> None:
        info_key = keys.changefeed_info_key(CLUSTER, feed.name)
        row_key = keys.schedule_key(CLUSTER, feed.name)
        values = {key: self._world.value(key) for key in (info_key, row_key)}
        is_news = any(value is not self._states_seen.get(key) for key, value in values.items())
        self._states_seen.update(values)
        if not is_news or (info := feed.info) is None:
            return
        row = feed.row
        require(info.epoch >= feed.seen_epoch, "an epoch is given out twice")
        require(info.unknown.get(LATER) == 1, "a field of a later release is lost")
        feed.seen_epoch = info.epoch
        is_launched = row is not None and row.owner_state is SchedState.LAUNCHED
        is_removed = info.state is FeedState.REMOVED
        require(not (is_launched and is_removed), "a changefeed is launched that is removed")

    def _sets(self, feed: SimFeed) -> None:
        for capture in self._world.captures:
            if (coordinator := capture.coordinator_of(feed.name)) is not None:
                for made in coordinator.replication.sets.values():
                    try:
                        check_invariants(made)
                    except AssertionError as error:
                        raise InvariantBroken(f"I6: {error}") from error
                known = coordinator.replication.tables
                registered = feed.warehouse.registered
                is_current = feed.warehouse.term == coordinator.info.term
                lost = [t for t in known if t not in registered] if is_current else []
                dropped = {each.table_id for each in feed.source.ddls if each.kind == "drop"}
                require(set(lost) <= dropped, f"I4: tables that nobody registered: {lost}")

    def _one_owner(self) -> None:
        """I8. (A backup brings back the election key of one that had not heard that it was gone,
        beside who was elected since: until that one looks again, both lead. Their terms decide.)"""
        if self._world.clock.now_s < self._world.lenient_until + REREAD_S:
            return
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
            # A backup brings back the key of one that slept through the end of its lease.
            and (not self._world.lenient_until or is_open(capture.fence))
        ]
        require(len(leading) <= 1, f"I8: {leading} all lead")

    def _reports(self) -> None:
        """Two primaries, a failed step, a conflict of owners: none of it was played."""
        infos = {keys.changefeed_info_key(CLUSTER, name) for name in self._world.feeds}
        errors = [
            load(ChangefeedInfo if key in infos else TaskPosition, kv.value).error
            for key, kv in self._world.etcd._kvs.items()
            if (key in infos or "/task/position/" in key) and self._is_news(key, kv.value)
        ]
        for error in errors:
            if error is not None:
                require(error.code in PLAYED, f"an error was reported: {error.message}")

    def _is_news(self, key: str, value: bytes) -> bool:
        is_news = self._seen.get(key) is not value
        self._seen[key] = value
        return is_news

    def unsettled(self, since_ts: int) -> str:
        """I4, I9: what is still missing for all to be well again; empty: nothing."""
        found = (self._unsettled(feed, since_ts) for feed in self._world.feeds.values())
        of_jobs = self._jobs.unsettled() if self._jobs is not None else ""
        return next(filter(None, found), of_jobs)

    def _unsettled(self, feed: SimFeed, since_ts: int) -> str:
        info = feed.info
        if info is None or info.state is FeedState.REMOVED:
            left = [key for key in self._world.etcd._kvs if key.endswith(f"/{feed.name.id}")]
            return f"{feed.name} was removed, but there is {left}" if left else ""
        if feed.target_ts is not None:
            is_finished = feed.warehouse.is_finished and info.state is FeedState.FINISHED
            return "" if is_finished else f"{feed.name} does not come to its target-ts"
        owner = self._world.owner_of(feed.name)
        coordinator = owner and owner.coordinator_of(feed.name)
        if coordinator is None:
            return f"nobody owns {feed.name}"
        if feed.seen_checkpoint_ts < since_ts:
            return f"the checkpoint of {feed.name} does not move"
        return self._unsettled_spans(feed, coordinator.replication)

    def _unsettled_spans(self, feed: SimFeed, replication: ReplicationManager) -> str:
        for table_id in feed.warehouse.registered:
            made = replication.sets.get(table_id)
            if made is None or made.state is not ReplicationState.REPLICATING:
                return f"t{table_id} of {feed.name} does not replicate"
        return "" if replication.is_settled else f"spans of {feed.name} are not settled"
