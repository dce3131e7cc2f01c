"""Where workers are tried: a real etcd or the fake one, with faults, and a way to drive turns."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordination.errors import TryAgain
from coordination.etcd.client import (
    NOW,
    Compare,
    EtcdClient,
    Keys,
    KeyValue,
    Op,
    TxnResult,
    Watch,
    WatchBatch,
    get,
)
from coordination.model import Revision
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import Snapshot
from coordination.orchestrator.transaction import Patch, PatchGroup
from coordination.trust.clock import Clock, SystemClock
from tests.fakes.fake_clock import FakeClock

PATIENCE_S = 60.0


class MapState:
    """The keys below a root as a dict; whoever ticks leaves patches in `groups`."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.values: dict[str, bytes] = {}
        self.history: list[tuple[str, bytes | None]] = []
        self.groups: list[PatchGroup] = []

    def update(self, key: str, kv: KeyValue | None) -> None:
        name = key.removeprefix(self.root)
        self.history.append((name, kv.value if kv is not None else None))
        if kv is None:
            self.values.pop(name, None)
        else:
            self.values[name] = kv.value

    def update_pending_change(self, now_s: float) -> None:
        pass

    def take_patches(self) -> list[PatchGroup]:
        taken, self.groups = self.groups, []
        return taken

    def patch(self, *changes: tuple[str, Callable[[bytes | None], bytes | None]]) -> None:
        """One group."""
        self.groups.append(tuple(Patch(self.root + name, change) for name, change in changes))

    def set(self, **values: bytes | None) -> None:
        self.patch(*((name, lambda _old, new=new: new) for name, new in values.items()))


Tick = Callable[[MapState], None]


class Ticks:
    """A reactor that does what it is told; without orders it does nothing."""

    def __init__(self, *ticks: Tick, always: Tick = lambda _state: None) -> None:
        self._ticks, self._always = list(ticks), always
        self.seen: list[dict[str, bytes]] = []  # the state at every tick
        self.at: list[float] = []

    def next(self, *ticks: Tick) -> None:
        self._ticks += ticks

    def tick(self, state: MapState, now_s: float) -> None:
        self.seen.append(dict(state.values))
        self.at.append(now_s)
        (self._ticks.pop(0) if self._ticks else self._always)(state)


class FaultyClient:
    """An EtcdClient that loses answers and holds its watches back, as told."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.results: list[bool] = []  # of each transaction that was answered
        self.before_txn: Callable[[], None] = lambda: None
        self.after_txn: Callable[[], None] = lambda: None
        self.before_watch: Callable[[], None] = lambda: None
        self.watched_from: list[Revision] = []
        self.is_silent = False  # watches tell nothing …
        self.held: list[tuple[Callable[[WatchBatch], None], WatchBatch]] = []  # … but this, later

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        self.before_txn()
        result = self._client.txn(compares, then)
        self.results.append(result.succeeded)
        self.after_txn()
        return result

    def watch(
        self,
        key: Keys,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> Watch:
        self.before_watch()
        self.watched_from.append(start_revision)

        def tell(batch: WatchBatch) -> None:
            if self.is_silent:
                self.held.append((callback, batch))
            else:
                callback(batch)

        return self._client.watch(key, tell, prefix=prefix, start_revision=start_revision)

    def release(self) -> None:
        self.is_silent = False
        held, self.held = self.held, []
        for callback, batch in held:
            callback(batch)


def once(action: Callable[[], None]) -> Callable[[], None]:
    """The action at the first call, nothing at later ones."""
    actions = [action]
    return lambda: actions.pop()() if actions else None


def no_answer() -> None:
    raise TryAgain("the answer was lost")


@dataclass
class Ground:
    client: EtcdClient
    clock: Clock
    compact: Callable[[Revision], None]
    root: str = field(default_factory=lambda: f"/orchestrator/{uuid.uuid4()}/")
    _woken: threading.Event = field(default_factory=threading.Event)
    _workers: list[EtcdWorker[MapState]] = field(default_factory=list)

    @property
    def counter_key(self) -> str:
        return self.root + "count"

    def worker(
        self,
        reactor: Ticks,
        *,
        client: object = None,
        guards: Sequence[Compare] = (),
        tick_interval_s: float = 0.02,
        due_at: Callable[[], float] = lambda: float("-inf"),
        clock: Clock | None = None,
    ) -> EtcdWorker[MapState]:
        made = EtcdWorker(
            client=client or self.client,  # type: ignore[arg-type]
            clock=clock or self.clock,
            snapshot=Snapshot((self.root,), self.counter_key, lambda: guards),
            reactor=reactor,
            state=MapState(self.root),
            tick_interval_s=tick_interval_s,
            due_at=due_at,
            wake=self._woken.set,
        )
        self._workers.append(made)
        return made

    def put(self, name: str, value: bytes) -> Revision:
        return self.client.put(self.root + name, value)

    def value(self, name: str) -> bytes | None:
        found = get(self.client, self.root + name)
        return found.value if found else None

    def values(self) -> dict[str, bytes]:
        kvs = self.client.range(self.root, prefix=True).kvs
        return {kv.key.removeprefix(self.root): kv.value for kv in kvs}

    @property
    def revision(self) -> Revision:
        return self.client.range(self.root).revision

    def run(self, worker: EtcdWorker[MapState], until: Callable[[], bool]) -> None:
        """As many at once as there are threads, all woken together."""
        run(worker, self._woken, until)

    def drive(
        self,
        *workers: EtcdWorker[MapState],
        until: Callable[[], bool],
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Turn them in turn until it is so; time passes as they ask for it."""
        deadline = self.clock.monotonic() + patience_s
        while not until():
            assert self.clock.monotonic() < deadline, "it does not come to that"
            self._woken.clear()
            waits_s = [worker.run_once() for worker in workers]
            if until():
                return
            self.pause(min(waits_s, default=0.0))

    def pause(self, seconds: float) -> None:
        if isinstance(self.clock, FakeClock):
            if not self._woken.is_set():
                self.clock.advance(max(seconds, 0.001))
        else:
            self._woken.wait(min(seconds, 0.05))

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def real_ground(client: EtcdClient) -> Ground:
    return Ground(client=client, clock=SystemClock(), compact=client.compact)  # type: ignore[attr-defined]


def run(worker: EtcdWorker[MapState], woken: threading.Event, until: Callable[[], bool]) -> None:
    """On the calling thread and a real clock."""
    try:
        while not until():
            woken.clear()
            wait_s = worker.run_once()
            woken.wait(min(wait_s, 0.05))
    finally:
        worker.close()
