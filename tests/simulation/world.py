"""A whole cluster in virtual time: captures as `bootstrap` builds them, on fakes of all else.

Everything that is random comes from the seed, so a seed replays. One step is `STEP_S`: messages and
watch events arrive, data planes get on, each capture has its turn, and the invariants are checked.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from datetime import UTC, datetime, timedelta

from conf.settings import SessionSettings
from coordination import deadline
from coordination.capture_context import CaptureContext
from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.fence import Fence
from coordination.metadata.etcd_observation import create_writes
from coordination.metadata.model import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID, Ts
from coordination.orchestrator.commit_once import commit_once
from coordination.owner.owner import OwnerReactor
from coordination.reset_limit import ResetLimit
from coordination.scheduler.coordinator import Coordinator, SchedulerSettings
from coordination.server import CaptureServer, Phase
from tests.fakes.fake_data_plane import FakeDataPlane, Pace, Sent
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_replica import PLAYED
from tests.fakes.fake_source import FakeSource, ts_at
from tests.fakes.fake_warehouse import FakeWarehouse, InvariantBroken
from tests.simulation.network import EtcdLink, RawNetwork

CLUSTER = "sim"
NAME = ChangefeedName(ChangefeedID("shop"))
STEP_S = 0.25
STARTED_AT = 1000.0
SESSION = SessionSettings(ttl_s=2, safety_margin_s=0.5)
# What a commit that was sent while trust lasted has, to land before a successor begins.
QUIET_S = deadline.quiet_s(
    SESSION.safety_margin_s, deadline.removal_grace_s(SESSION.ttl_s, SESSION.safety_margin_s)
)
SCHEDULER = SchedulerSettings(heartbeat_tick=1, check_balance_interval_s=5.0)
PASSES = 3  # of one turn: a pass may make the next one worth while


class SimClock:
    def __init__(self) -> None:
        self.now_s = STARTED_AT

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:  # noqa: ARG002 - the port's
        raise AssertionError("nothing waits in a simulation")


class SimCapture:
    """One process: a server, its data plane, its ways to the others."""

    def __init__(self, world: World, node: str) -> None:
        self.node = node
        self.frozen_until = self.stalled_until = 0.0
        self.link = EtcdLink(world.etcd, world.rng)
        self.plane = FakeDataPlane(
            world.source,
            world.warehouse,
            rng=world.rng,
            now=world.clock.monotonic,
            pace=world.pace,
        )
        self.woken = threading.Event()
        self.transport = world.network.transport(node, self.woken.set)
        self._due_at = 0.0
        self._clock = world.clock
        self._world = world
        context = CaptureContext(
            client=self.link,
            cluster_id=CLUSTER,
            session=SESSION,
            clock=world.clock,
            fence=Fence(world.clock),
            transport=self.transport,
            data_plane=self.plane,
            address=node,
            version="1.0.0",
            new_id=world.new_id,
            utc_now=world.utc_now,
            rng=world.rng,
            scheduler=SCHEDULER,
            tick_interval_s=STEP_S * 0.8,
            is_driven=True,
            woken=self.woken,
        )
        self.server = CaptureServer(context, reset_limit=ResetLimit(interval_s=1.0), drain_s=10.0)

    @property
    def owner(self) -> OwnerReactor | None:
        inner = self.server.capture
        return inner.owner if inner is not None else None

    @property
    def coordinator(self) -> Coordinator | None:
        feed = self.owner and self.owner.feeds.get(NAME)
        return feed.coordinator if feed else None

    @property
    def is_stopping(self) -> bool:
        """Asked to stop, or drained: it takes no tables any more."""
        inner = self.server.capture
        return self.server.is_stopping or (inner is not None and inner.processor.is_stopping)

    @property
    def is_stopped(self) -> bool:
        return self.server.phase is Phase.STOPPED

    def step(self) -> None:
        now = self._clock.now_s
        if now < self.frozen_until:
            return
        self.link.deliver()
        self.plane.step()
        if now < self.stalled_until:
            return
        for _ in range(PASSES):
            if now < self._due_at and not self.woken.is_set():
                return
            self.woken.clear()
            wait_s = self.server.turn()
            if wait_s is None:
                self.close()
                return
            self._due_at = now + wait_s

    def freeze(self, until: float) -> None:
        """SIGSTOP: time passes, nothing happens, and nothing is looked at again."""
        self.frozen_until = until
        self._world.sent += self.plane.freeze()

    def crash(self) -> None:
        self._world.sent += self.plane.freeze()
        self.close()

    def close(self) -> None:
        self.link.close()
        self.transport.close()


class World:
    def __init__(self, seed: int, *, captures: int = 3, may_end: bool = True) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = SimClock()
        self.etcd = FakeEtcd(self.clock)
        self.network = RawNetwork(self.rng)
        self.run_s = 22.0
        tables = self.rng.randrange(4, 7)
        self.source = FakeSource.random(self.rng, STARTED_AT, self.run_s, tables)
        # Some end of themselves, in the midst of it all.
        ends = self.rng.random() < 0.2 and may_end
        self.target_ts = ts_at(STARTED_AT + self.run_s * 0.6) if ends else None
        self.sync_interval_ms = 4000 if self.rng.random() < 0.5 else None
        self.pace = Pace(
            slow_s=self.rng.choice((0.2, 0.6, 1.5)),
            commit_s=self.rng.choice((0.5, 2.0, QUIET_S)),
            long_chance=self.rng.choice((0.1, 0.5)),
            batch_s=self.rng.choice((None, 1.0, 3.0)),
        )
        self.warehouse = FakeWarehouse(
            self.source, self.sync_interval_ms, QUIET_S, target_ts=self.target_ts
        )
        self.sent: list[Sent] = []  # commits of captures that are frozen or dead
        self.captures: list[SimCapture] = []
        self.steps = 0
        self.story: list[str] = []  # what was done to it
        self._nodes = 0
        self._ids = 0
        self.errors: list[str] = []
        self._create_changefeed()
        for _ in range(captures):
            self.start_capture()

    def new_id(self) -> str:
        self._ids += 1
        return str(uuid.UUID(int=self.rng.getrandbits(96) << 32 | self._ids))

    def utc_now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clock.now_s)

    def start_capture(self) -> SimCapture:
        self._nodes += 1
        capture = SimCapture(self, f"n{self._nodes}")
        self.captures.append(capture)
        return capture

    def step(self) -> None:
        self.steps += 1
        self.clock.now_s = STARTED_AT + self.steps * STEP_S
        self.etcd.expire_leases()
        self.network.advance_to(self.clock.now_s)
        self._land_sent()
        self.captures = [each for each in self.captures if not each.is_stopped]
        for capture in self.rng.sample(self.captures, len(self.captures)):
            capture.step()
        if self.errors:
            raise InvariantBroken(f"an unexpected error was logged: {self.errors[0]}")

    def _land_sent(self) -> None:
        now_s = self.clock.now_s
        for _, table_id, landing in [each for each in self.sent if each[0] <= now_s]:
            self.warehouse.land(table_id, landing, now_s)
        self.sent = [each for each in self.sent if each[0] > now_s]

    def tell(self, what: str) -> None:
        self.story.append(f"{self.clock.now_s - STARTED_AT:6.2f} s  {what}")

    def value(self, key: str) -> bytes | None:
        """What etcd has now, seen from outside."""
        kv = self.etcd._kvs.get(key)
        return kv.value if kv else None

    @property
    def owner(self) -> SimCapture | None:
        """One that leads, whose key exists."""
        return next((each for each in self.captures if each.coordinator is not None), None)

    def _create_changefeed(self) -> None:
        config = {"enable-sync-point": True, "sync-point-interval": "4s"}
        info = ChangefeedInfo(
            id=NAME.id,
            sink_uri="delta:///tmp",
            start_ts=Ts(self.source.start_ts),
            target_ts=Ts(self.target_ts or 0),
            state=FeedState.NORMAL,
            config=config if self.sync_interval_ms else None,
        )
        counter = keys.delete_counter_key(CLUSTER)
        commit_once(self.etcd, [create_writes(CLUSTER, info, None)], counter)


class ErrorCatcher(logging.Handler):
    """Whatever the program calls an error is one, unless it was played."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if any(code in text for code in PLAYED):
            return
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if isinstance(error, InvariantBroken):
                text = str(error)
            else:
                text = f"{text}: {type(error).__name__}: {error}"
        self._world.errors.append(text)
