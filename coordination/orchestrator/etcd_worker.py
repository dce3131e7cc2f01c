"""EtcdWorker: lets a reactor act on etcd as if nobody else wrote to it. The loop around `Snapshot`.

              ┌──────── read (first; history lost; watch silent; outcome settled) ◄──────┐
              ▼                                                                          │
    pass: drain inbox ─► commit pending ─► updates into state ─► tick ─► collect ─► commit
              ▲               │ conflict: keep patches until there is news               │
              └───────────────┘              outcome unknown: drop the patches, settle ──┘

A reactor ticks only when no patch is pending and the watch has brought back its last write: so it
always sees etcd as it was at one moment, never older than its own writes. A reactor does not talk
to etcd; its state hands out the changes as patches.
A transaction without an answer may still take effect, even after a read that did not show it. So it
is *settled* first: the delete counter that it compares is counted up, after which it either has
happened or never will. Then the state is read again, and the reactor ticks again.

Between ticks the worker rests. News end the rest: an event of etcd, or `news` (a message has come,
the data plane has got on). So does the reactor's own `due_at`, and at last `REST_S`: a wake-up that
was lost delays the work, and cannot stop it.

All of this runs on one thread. The watch calls back on another one, which only queues and wakes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from coordination.errors import TryAgain
from coordination.etcd.client import EtcdClient, KeyValue, Watch, WatchBatch
from coordination.model import Revision
from coordination.orchestrator.snapshot import Plan, Snapshot, counter_compare, counter_put
from coordination.orchestrator.transaction import PatchGroup
from coordination.trust.clock import Clock

logger = logging.getLogger(__name__)

SILENCE_S: Final = 10.0  # without a watch batch for so long, the keys are read again (as TiCDC)
OWED_S: Final = 2.0  # the same while an event must come: of an own write, or of a conflict
RETRY_S: Final = 0.5  # between reads while etcd does not answer
SLOW_TXN_S: Final = 1.0  # a transaction that takes longer is logged
REST_S: Final = 1.0  # between two ticks, at most
TICK_BURST: Final = 2  # ticks in a row after a rest, as TiCDC: an event does not wait for the timer


class ReactorState(Protocol):
    """What the worker keeps up to date for its reactor. Called on the worker's thread only."""

    def update(self, key: str, kv: KeyValue | None) -> None:
        """A key was put, or deleted (None)."""
        ...

    def update_pending_change(self, now_s: float) -> None:
        """Called right before each tick: make the changes that only wait for their time (monotonic
        clock)."""
        ...

    def take_patches(self) -> list[PatchGroup]:
        """Hand out, once, what the last tick wants changed. Each group is written wholly or not at
        all."""
        ...


S = TypeVar("S", bound=ReactorState)
S_contra = TypeVar("S_contra", bound=ReactorState, contravariant=True)


class Reactor(Protocol[S_contra]):
    def tick(self, state: S_contra, now_s: float) -> None:
        """Look at the state and leave patches in it. Must not block.

        The worker drops patches if etcd did not say whether it took them. So a tick must derive all
        its patches from the state: the next tick then asks again for what is still missing.
        """
        ...


@dataclass(slots=True)
class TickLimit:
    """When a reactor ticks: with news as soon as the rate allows; without news when it is due, but
    not within ``interval_s`` of the last tick, and within ``rest_s`` in any case. Times are on the
    monotonic clock, in seconds."""

    interval_s: float
    rest_s: float = REST_S
    _last: float = float("-inf")
    _paid_until: float = float("-inf")  # when the ticks so far would end, one per interval

    def due_at(self, *, has_news: bool, reactor_due_at: float = float("-inf")) -> float:
        """When the next tick takes place; -inf is at once."""
        if not has_news:
            return min(max(self._last + self.interval_s, reactor_due_at), self._last + self.rest_s)
        return self._paid_until - self.interval_s * (TICK_BURST - 1)

    def take(self, now: float) -> None:
        """A tick takes place now."""
        self._last = now
        self._paid_until = max(now, self._paid_until) + self.interval_s


class EtcdWorker(Generic[S]):
    """Drive it by `run_once` and then `close`, from one thread."""

    def __init__(
        self,
        *,
        client: EtcdClient,
        clock: Clock,
        snapshot: Snapshot,
        reactor: Reactor[S],
        state: S,
        tick_interval_s: float,
        wake: Callable[[], None],
        rest_s: float = REST_S,
        due_at: Callable[[], float] = lambda: float("-inf"),
        unanswered: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """`snapshot` is empty, and names the keys to follow. `wake` is called when there are news:
        on the watch's thread, or on the thread of the caller of `news`. `due_at` says when the
        reactor needs its next tick even without news, on the monotonic clock; by default as soon as
        ``tick_interval_s`` allows, and at the latest `rest_s` after the last one. `unanswered` is
        told why a write is not carried out, and None when it is."""
        self._client = client
        self._clock = clock
        self._reactor = reactor
        self._state = state
        self._wake = wake
        self._snapshot = snapshot
        self._due_at = due_at
        self._unanswered = unanswered
        self._tick_limit = TickLimit(tick_interval_s, rest_s)
        self._pending: list[PatchGroup] = []
        self._has_news = False  # since the last tick
        self._must_read = True  # before anything else
        self._read_at = float("-inf")  # when to read again, unless events come before
        self._is_answered = True  # whether the last read was answered; only for the log
        self._unsettled: int | None = None  # delete counter of a transaction without an answer
        self._collided_at: Revision | None = None  # the snapshot's revision when a compare failed
        self._watch: Watch | None = None
        self._watch_number = 0
        self._inbox: deque[tuple[int, WatchBatch]] = deque()

    @property
    def revision(self) -> Revision:
        """The revision of etcd up to which this worker has seen all changes."""
        return self._snapshot.revision

    def news(self) -> None:
        """Something outside of etcd has happened that the reactor is to see: it ticks as soon as
        the rate allows. Any thread."""
        self._has_news = True
        self._wake()

    def close(self) -> None:
        """End the watch. Idempotent."""
        self._unanswered(None)
        self._end_watch()

    def _end_watch(self) -> None:
        self._watch_number += 1
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def run_once(self) -> float:
        """One pass; returns the seconds until the next pass is due, unless `wake` comes first.

        Blocks only for calls to etcd. Raises ``GuardLost``, ``CaptureSuicide`` if etcd went back to
        an older revision, and the errors of the reactor and its patches.
        """
        self._drain()
        self._read_if_due()
        if self._must_read:
            return RETRY_S
        self._snapshot.check_guards()
        self._commit()
        if self._is_ready:
            self._apply_updates()
            if (wait_s := self._tick_wait_s) > 0:
                return min(wait_s, self._doubt_wait_s)
            self._tick()
            self._commit()
        return self._wait_s

    @property
    def _wait_s(self) -> float:
        if self._must_read or self._inbox:
            return 0.0
        if self._is_ready:
            return min(max(0.0, self._tick_wait_s), self._doubt_wait_s)
        return self._doubt_wait_s  # nothing can be done before events come

    @property
    def _is_ready(self) -> bool:
        """Whether the state may change and the reactor may tick."""
        return not self._pending and not self._must_read and self._snapshot.caught_up

    @property
    def _doubt_wait_s(self) -> float:
        return max(0.0, self._read_at - self._clock.monotonic())

    # the watch

    def _drain(self) -> None:
        is_heard = False
        while self._inbox:
            number, batch = self._inbox.popleft()
            if number != self._watch_number:
                continue
            is_heard = True
            if batch.missed:
                logger.info("the watch began anew, reading again revision=%s", self.revision)
                self._must_read = True
                return
            self._take_in(batch)
        if is_heard:
            is_owed = self._has_collided or not self._snapshot.caught_up
            self._read_at = self._clock.monotonic() + (OWED_S if is_owed else SILENCE_S)

    def _take_in(self, batch: WatchBatch) -> None:
        if self._snapshot.apply(batch.events):
            self._has_news = True
        for event in batch.events:
            if event.kind == "delete" and event.kv.key == self._snapshot.counter_key:
                logger.warning(
                    "somebody deleted the delete counter key=%s", self._snapshot.counter_key
                )

    @property
    def _has_collided(self) -> bool:
        """Whether the same transaction would fail again: no event has come since it failed."""
        return self._collided_at == self.revision

    def _read_if_due(self) -> None:
        if not self._must_read and self._clock.monotonic() < self._read_at:
            return
        try:
            self._settle()
            self._snapshot.read(self._client.range(self._snapshot.scope, prefix=True))
        except TryAgain as error:
            if self._is_answered:
                logger.warning(
                    "etcd does not answer, and is asked again until it does revision=%s: %s",
                    self.revision,
                    error,
                )
            self._is_answered = False
            self._unanswered(str(error))
            self._read_at = self._clock.monotonic() + RETRY_S
            return
        self._is_answered = True
        self._unanswered(None)
        self._must_read = False
        self._collided_at = None
        self._has_news = True
        self._read_at = self._clock.monotonic() + SILENCE_S
        self._watch_anew()

    def _watch_anew(self) -> None:
        self._end_watch()
        number = self._watch_number

        def receive(batch: WatchBatch) -> None:
            """Called on the watch's thread."""
            self._inbox.append((number, batch))
            self._wake()

        self._watch = self._client.watch(
            self._snapshot.scope,
            receive,
            prefix=True,
            start_revision=Revision(self.revision + 1),
        )

    # writes

    def _commit(self) -> None:
        """Send the pending groups until all are written, another writer was faster, or etcd does
        not answer; each transaction once the watch has brought back the one before. A group that is
        refused on the newest values is dropped: the next tick sees them and decides again."""
        while self._pending and self._may_send:
            plan = self._snapshot.plan(self._pending, drops_refused=True)
            if not plan.ops or self._send(plan):
                del self._pending[: plan.taken]

    @property
    def _may_send(self) -> bool:
        return self._snapshot.caught_up and not self._must_read and not self._has_collided

    def _send(self, plan: Plan) -> bool:
        """Whether etcd committed the plan. If not, the worker waits for events after a conflict,
        and reads again if there was no answer."""
        started_at = self._clock.monotonic()
        try:
            result = self._client.txn(plan.compares, plan.ops)
        except TryAgain as error:
            self._lose_track(plan, error)
            return False
        ended_at = self._clock.monotonic()
        if ended_at - started_at > SLOW_TXN_S:
            logger.warning("etcd was slow to commit seconds=%.1f", ended_at - started_at)
        if result.succeeded:
            self._snapshot.committed(result.revision)
        else:
            self._collided_at = self.revision
        self._read_at = min(self._read_at, ended_at + OWED_S)
        return result.succeeded

    def _lose_track(self, plan: Plan, error: TryAgain) -> None:
        logger.warning(
            "a transaction has no answer, reading again keys=%s: %s", len(plan.ops), error
        )
        self._unsettled = plan.counter
        self._must_read = True
        self._pending.clear()

    def _settle(self) -> None:
        if self._unsettled is None:
            return
        unmoved = counter_compare(self._snapshot.counter_key, self._unsettled)
        self._client.txn((unmoved,), (counter_put(self._snapshot.counter_key, self._unsettled),))
        self._unsettled = None  # counted up by this put or by another writer's delete

    # the reactor

    @property
    def _tick_wait_s(self) -> float:
        due_at = self._tick_limit.due_at(has_news=self._has_news, reactor_due_at=self._due_at())
        return due_at - self._clock.monotonic()

    def _apply_updates(self) -> None:
        for key, kv in self._snapshot.take_updates():
            self._state.update(key, kv)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._tick_limit.take(now)
        self._has_news = False  # before the tick looks: what comes meanwhile has one of its own
        self._state.update_pending_change(now)
        self._reactor.tick(self._state, now)
        self._pending += self._state.take_patches()
