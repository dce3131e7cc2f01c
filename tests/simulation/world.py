"""A whole cluster in virtual time: captures as `bootstrap` builds them, on fakes of all else.

Everything that is random comes from the seed, so a seed replays; each part has dice of its own, so
that a case with fewer events stays like the one with all of them. One step is `STEP_S`: messages
and watch events arrive, data planes get on, each capture has its turn, and the invariants are
checked.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from conf.settings import SessionSettings
from coordination.capture.context import CaptureContext
from coordination.capture.owner.owner import OwnerReactor
from coordination.capture.reset_limit import ResetLimit
from coordination.capture.server import CaptureServer, Phase
from coordination.errors import TidelakeError
from coordination.etcd.keys import ChangefeedName
from coordination.model import ChangefeedID
from coordination.orchestrator.etcd_worker import REST_S
from coordination.scheduler.coordinator import Coordinator
from coordination.scheduler.schedulers import SchedulerSettings
from coordination.trust import deadline
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from tests.fakes.fake_data_plane import FakeDataPlane, Pace, Sent
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_replica import PLAYED
from tests.fakes.fake_transport import FakeNetwork, FakeTransport
from tests.fakes.fake_warehouse import FakeWarehouse, InvariantBroken
from tests.simulation.etcd_link import EtcdLink
from tests.simulation.feeds import CLUSTER, NAME, SimFeed, SimOperator
from tests.simulation.jobs.sim_jobs import PACE, SimJobs

STEP_S = 0.25
STARTED_AT = 1000.0
SESSION = SessionSettings(ttl_s=2, safety_margin_s=0.5)
DRIFT = 0.05  # of a node's clock, at most: the margin is there for it
MAX_TXN_OPS = 12  # of etcd; small, so that what a tick changes does not fit


def _quiet_s() -> float:
    """What a commit that was sent while trust lasted has, to land before a successor begins: the
    capture's clock is slow, the owner's is fast."""
    trusted_s = deadline.trusted_until(0.0, SESSION.ttl_s, SESSION.safety_margin_s) / (1 - DRIFT)
    grace_s = deadline.removal_grace_s(SESSION.ttl_s, SESSION.safety_margin_s) / (1 + DRIFT)
    return SESSION.ttl_s - trusted_s + grace_s


QUIET_S = _quiet_s()
LONG_S = QUIET_S - STEP_S  # a commit that ends within it; steps make it longer
SLOW_S = 12.0  # the longest commit of one who lives
SCHEDULER = SchedulerSettings(heartbeat_tick=1, check_balance_interval_s=5.0)
RUN_S = 22.0  # of history
JOBS_RUN_S = 42.0  # where jobs run beside it: they take longer
PASSES = 3  # of one turn: a pass may make the next one worth while


class SimClock:
    def __init__(self) -> None:
        self.now_s = STARTED_AT

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:  # noqa: ARG002 - the port's
        raise AssertionError("nothing waits in a simulation")


class NodeClock(SimClock):
    """A node's own: it began at another moment, and goes a little fast or slow."""

    def __init__(self, clock: SimClock, rng: random.Random) -> None:
        self._clock = clock
        self._rate = 1 + DRIFT * rng.choice((-1.0, 0.0, 1.0))
        self._ahead_s = rng.uniform(0.0, 1e6)

    def lose(self, seconds: float) -> None:
        """As a virtual machine's: what its host took from it does not count."""
        self._ahead_s -= seconds

    def monotonic(self) -> float:
        return self._clock.now_s * self._rate + self._ahead_s


class SimCapture:
    """One process: a server, its data plane, its ways to the others."""

    def __init__(self, world: World, node: str) -> None:
        self.node = node
        self.frozen_until = self.stalled_until = 0.0
        rng = world.dice(node)
        self.clock = clock = NodeClock(world.clock, rng)
        self.link = EtcdLink(world.etcd, rng, world.clock.monotonic)
        world.links.append(self.link)
        self.fence = Fence(clock)
        self.plane = FakeDataPlane(
            lambda changefeed_id: world.feeds[ChangefeedName(changefeed_id)].warehouse,
            rng=rng,
            now=world.clock.monotonic,
            pace=world.pace,
            copies=world.jobs.copies if world.jobs is not None else None,
            node=node,
        )
        if world.jobs is not None:
            self.plane.send_chunk = world.jobs.send
        self.woken = threading.Event()
        self.watchdog = Watchdog(clock)
        self.transport = FakeTransport(world.network, node, self.woken.set)
        self._due_at = 0.0
        self._clock = world.clock
        self._world = world
        context = CaptureContext(
            client=self.link,
            cluster_id=CLUSTER,
            session=SESSION,
            clock=clock,
            fence=self.fence,
            watchdog=self.watchdog,
            transport=self.transport,
            data_plane=self.plane,
            address=node,
            version="1.0.0",
            new_id=world.new_id,
            utc_now=partial(world.utc_now, timedelta(hours=rng.uniform(-24, 24))),
            rng=rng,
            scheduler=SCHEDULER,
            tick_interval_s=STEP_S * 0.8,
            # In every other world reactors rest as in the product; some wake-ups are lost here.
            rest_s=REST_S if world.seed % 2 else STEP_S * 0.8,
            is_driven=True,
            woken=self.woken,
            jobs_pace=PACE,
        )
        self.server = CaptureServer(context, reset_limit=ResetLimit(interval_s=1.0), drain_s=10.0)

    @property
    def owner(self) -> OwnerReactor | None:
        inner = self.server.capture
        return inner.owner if inner is not None else None

    @property
    def coordinator(self) -> Coordinator | None:
        return self.coordinator_of(NAME)

    def coordinator_of(self, name: ChangefeedName) -> Coordinator | None:
        feed = self.owner and self.owner.feeds.get(name)
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
        self._world.sent += self.plane.take_in_doubt()
        if now < self.stalled_until:
            return
        for _ in range(PASSES):
            if now < self._due_at and not self.woken.is_set():
                return
            self.woken.clear()
            try:
                wait_s = self.server.run_once()
            except TidelakeError:  # a commit outlasts the end that was asked for
                if not (self.server.is_stopping and self._world.goes_on_without_the_hung):
                    raise
                self._world.tell(f"{self.node} ends in a hurry")
                self.crash()
                self._world.captures.remove(self)
                return
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
    def __init__(
        self,
        seed: int,
        *,
        captures: int = 3,
        changefeeds: int = 3,
        may_end: bool = True,
        has_jobs: bool = False,
    ) -> None:
        """``changefeeds``: at most so many."""
        self.seed = seed
        self.rng = self.dice("world")
        self.clock = SimClock()
        self.etcd = FakeEtcd(self.clock, max_txn_ops=MAX_TXN_OPS)
        self.links: list[EtcdLink] = []  # of the dead too
        self.network = FakeNetwork(self.dice("network"), least_s=0.01)
        self.run_s = JOBS_RUN_S if has_jobs else RUN_S
        self.pace = Pace(
            slow_s=self.rng.choice((0.2, 0.6, 1.5)),
            commit_s=self.rng.choice((0.5, 2.0, LONG_S, SLOW_S)),
            long_chance=self.rng.choice((0.1, 0.5)),
            batch_s=self.rng.choice((None, 1.0, 3.0)),
            read=self.rng.choice((3, 4, 40, 40)),
        )
        self.sent: list[Sent] = []  # commits of which no living capture hears
        self.captures: list[SimCapture] = []
        self.goes_on_without_the_hung = False  # whose process has ended though it was not killed
        self.lenient_until = 0.0  # etcd has forgotten leases, whose captures have yet to hear it
        self.steps = 0
        self.story: list[str] = []  # what was done to it
        self._nodes = 0
        self._ids = 0
        self.errors: list[str] = []
        self.feeds = {feed.name: feed for feed in self._feeds(changefeeds, may_end)}
        self.operator = SimOperator(self, self.dice("operator"))
        self.jobs = SimJobs(self, longest_s=LONG_S, quiet_s=QUIET_S) if has_jobs else None
        for feed in self.feeds.values():
            self.operator.create(feed)
        for _ in range(captures):
            self.start_capture()

    def dice(self, whose: str) -> random.Random:
        return random.Random(f"{self.seed} {whose}")

    def new_id(self) -> str:
        self._ids += 1
        return str(uuid.UUID(int=self.rng.getrandbits(96) << 32 | self._ids))

    def utc_now(self, wrong_by: timedelta) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clock.now_s) + wrong_by

    def start_capture(self) -> SimCapture:
        self._nodes += 1
        capture = SimCapture(self, f"n{self._nodes}")
        self.captures.append(capture)
        return capture

    def step(self) -> None:
        self.steps += 1
        self.clock.now_s = STARTED_AT + self.steps * STEP_S
        self.etcd.expire_leases()
        for link in self.links:
            link.land()
        self.network.advance_to(self.clock.now_s)
        self._land_sent()
        if self.jobs is not None:
            self.jobs.step()
        self.captures = [each for each in self.captures if not each.is_stopped]
        for capture in self.rng.sample(self.captures, len(self.captures)):
            capture.step()
        if self.errors:
            raise InvariantBroken(f"an unexpected error was logged: {self.errors[0]}")

    def _land_sent(self) -> None:
        now_s = self.clock.now_s
        for _, warehouse, table_id, landing in [each for each in self.sent if each[0] <= now_s]:
            warehouse.land(table_id, landing, now_s)
        self.sent = [each for each in self.sent if each[0] > now_s]

    def put_back(self, restore: Callable[[], None]) -> None:
        """etcd is restored from a backup: what lies in it, checkpoints too, is of before."""
        restore()
        if self.jobs is not None:
            self.jobs.copies.forget_ids()
        self.lenient_until = self.clock.now_s + SESSION.ttl_s
        for link in self.links:
            link.break_off()
        for feed in self.feeds.values():
            feed.seen_checkpoint_ts = feed.seen_epoch = 0
            feed.warehouse.lenient_until = self.lenient_until

    def tell(self, what: str) -> None:
        self.story.append(f"{self.clock.now_s - STARTED_AT:6.2f} s  {what}")

    def value(self, key: str) -> bytes | None:
        """What etcd has now, seen from outside."""
        kv = self.etcd._kvs.get(key)
        return kv.value if kv else None

    @property
    def warehouse(self) -> FakeWarehouse:
        return self.feeds[NAME].warehouse

    def owner_of(self, name: ChangefeedName) -> SimCapture | None:
        """One that leads and has claimed its term."""
        leading = (each for each in self.captures if each.coordinator_of(name) is not None)
        return next(leading, None)

    @property
    def owner(self) -> SimCapture | None:
        owners = (self.owner_of(name) for name in self.feeds)
        return next((each for each in owners if each is not None), None)

    def _feeds(self, most: int, may_end: bool) -> Iterator[SimFeed]:
        """The first is the large one."""
        more = min(most, self.rng.choice((1, 1, 2, 3))) - 1
        names = [NAME, *(ChangefeedName(ChangefeedID(f"more-{n}")) for n in range(more))]
        for name in names:
            tables = self.rng.randrange(4, 7) if name == NAME else self.rng.randrange(1, 3)
            yield SimFeed(name, self, tables=tables, may_end=may_end, quiet_s=QUIET_S)


class ErrorCatcher(logging.Handler):
    """Whatever the program calls an error is one, unless it was played."""

    def __init__(self, errors: list[str]) -> None:
        """``errors``: where their texts go."""
        super().__init__(logging.ERROR)
        self._errors = errors

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
        self._errors.append(text)
