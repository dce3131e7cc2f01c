"""What is done to a world, by the dice of its seed."""

from __future__ import annotations

from collections.abc import Callable

from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.etcd.client import delete
from coordination.metadata.committer import ClientCommitter
from coordination.metadata.etcd_roles import EtcdOwnerObservation
from coordination.metadata.querier import EtcdQuerier
from coordination.model import Revision
from coordination.owner.jobs import DrainCapture, MoveTable, OwnerJob, Rebalance
from tests.simulation.world import CLUSTER, NAME, QUIET_S, SimCapture, World

MAX_CAPTURES = 4


class Faults:
    """`act` after each step while faults last; `heal` ends them all."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._chance = world.rng.choice((0.05, 0.15, 0.3))
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._deeds: list[Callable[[], None]] = [
            self.crash,
            self.crash_two,
            self.freeze,
            self.stall,
            self.cut_etcd,
            self.cut_pair,
            self.lose_answers,
            self.move,
            self.move_many,
            self.rebalance,
            self.drain,
            self.stop,
            self.start,
            self.delete_owner_key,
            self.compact,
            self.fail_data,
            self.pause,
            self.etcd_down,
        ]
        # each seed has its favourites, so that what is rare in general is dense in some
        self._deeds = world.rng.sample(self._deeds, world.rng.randrange(4, len(self._deeds)))
        network = world.network
        network.bare = world.rng.choice((0.0, 0.3))
        if world.rng.random() < 0.7:
            network.loss = world.rng.choice((0.0, 0.1, 0.3))
            network.double = world.rng.choice((0.0, 0.2, 0.5))
            network.late = world.rng.choice((0.0, 0.1, 0.4))
            network.late_s = world.rng.choice((1.0, 4.0, 8.0))

        self._plot(world.rng.choice(("zombie", "partition", "widow", "shuttle", "none")))

    def _plot(self, plot: str) -> None:
        """What hurts most is rare by chance alone: each seed has one such story in it."""
        world, rng = self._world, self._rng
        pace, network = world.pace, world.network
        at = rng.uniform(3.0, 6.0)
        if plot in ("zombie", "partition", "widow"):  # a commit under way when its capture is lost
            pace.commit_s, pace.long_chance, pace.slow_s = QUIET_S, 0.5, 0.2
        if plot == "zombie":
            pace.batch_s = 0.7
            self._after(at, lambda: self._freeze(rng.uniform(10.0, 13.0)))
        elif plot == "partition":
            self._after(at, lambda: self._cut_etcd(9.0))
        elif plot == "widow":
            self._after(at, self.crash_two)
        elif plot == "shuttle":
            pace.slow_s, pace.commit_s = 0.2, 0.5
            network.double, network.late, network.late_s = 0.6, 0.4, 6.0
            for second in range(3, 15, 3):
                self._after(second, self.move_many)

    def act(self) -> None:
        now = self._world.clock.now_s
        due = [deed for at, deed in self._later if at <= now]
        self._later = [each for each in self._later if each[0] > now]
        for deed in due:
            deed()
        if self._rng.random() < self._chance:
            self._rng.choice(self._deeds)()

    def heal(self) -> None:
        """All faults end; what was scheduled as their end happens now."""
        world = self._world
        for _, deed in self._later:
            deed()
        self._later.clear()
        network = world.network
        network.loss = network.double = network.late = network.bare = 0.0
        network.cuts.clear()
        world.etcd.down = False
        world.pace.batch_s = None
        world.pace.slow_s = world.pace.commit_s = 0.5
        for capture in world.captures:
            capture.frozen_until = capture.stalled_until = 0.0
            capture.plane.fails_at = None
            capture.link.lost_answers = 0.0
            capture.link.heal_if_cut()
        while sum(not each.is_stopping for each in world.captures) < 2:
            world.start_capture()
        world.tell("all faults end")

    # the deeds

    def crash(self) -> None:
        if (capture := self._one_writing()) is not None:
            self._kill(capture)

    def _kill(self, capture: SimCapture) -> None:
        world = self._world
        world.tell(f"{capture.node} is killed")
        world.captures.remove(capture)
        capture.crash()
        self._after(self._rng.random() * 6, self.start)

    def crash_two(self) -> None:
        """The owner too, so that who comes next has never seen the other one."""
        if len(self._world.captures) > 2:
            self.crash()
            owner = self._world.owner
            if owner is not None:
                self._kill(owner)

    def stall(self) -> None:
        """The coordination thread hangs in a call; the data plane does not know, and goes on."""
        if (capture := self._one_writing()) is not None:
            seconds = self._rng.choice((1.0, 3.0, 9.0, 12.0))
            self._world.tell(f"{capture.node} stalls for {seconds} s")
            capture.stalled_until = self._world.clock.now_s + seconds

    def freeze(self) -> None:
        self._freeze(self._rng.choice((0.5, 2.0, 9.0, 11.0, 13.0)))

    def _freeze(self, seconds: float) -> None:
        capture = self._rng.choice((self._one, self._one_writing))()
        if capture is not None:
            self._world.tell(f"{capture.node} is frozen for {seconds:.1f} s")
            capture.freeze(self._world.clock.now_s + seconds)

    def cut_etcd(self) -> None:
        self._cut_etcd(self._rng.random() * 8)

    def _cut_etcd(self, seconds: float) -> None:
        capture = self._rng.choice((self._one, self._one_writing))()
        if capture is None or capture.link.is_cut:
            return
        self._world.tell(f"{capture.node} is cut off from etcd")
        capture.link.cut()
        self._after(seconds, capture.link.heal_if_cut)

    def cut_pair(self) -> None:
        world = self._world
        if len(world.captures) < 2:
            return
        pair = frozenset(each.node for each in self._rng.sample(world.captures, 2))
        world.tell(f"nothing passes between {sorted(pair)}")
        world.network.cuts.add(pair)
        self._after(self._rng.random() * 10, lambda: world.network.cuts.discard(pair))

    def lose_answers(self) -> None:
        capture = self._one()
        if capture is not None:
            self._world.tell(f"{capture.node} loses answers of etcd")
            capture.link.lost_answers = 0.3
            self._after(3.0, lambda: setattr(capture.link, "lost_answers", 0.0))

    def move(self) -> None:
        owner = self._world.owner
        if owner is None or owner.coordinator is None or not owner.coordinator.replication.tables:
            return
        tables = sorted(owner.coordinator.replication.tables.items())
        _, span = self._rng.choice(tables)
        dest = self._rng.choice(self._world.captures).server.capture
        if dest is not None:
            self._post(owner, MoveTable(changefeed=NAME, table=span.name, dest=dest.id))

    def move_many(self) -> None:
        """And again, before all of it is over."""
        for seconds in (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0):
            self._after(seconds, self.move)

    def rebalance(self) -> None:
        if (owner := self._world.owner) is not None:
            self._post(owner, Rebalance(changefeed=NAME))

    def drain(self) -> None:
        owner, target = self._world.owner, self._one()
        if owner is None or target is None or target.server.capture is None:
            return
        if len(self._world.captures) < 3:
            return
        self._post(owner, DrainCapture(capture_id=target.server.capture.id))
        self._after(4.0, lambda: self._retire(target))  # a drained capture has no other use

    def _retire(self, target: SimCapture) -> None:
        if target in self._world.captures:
            self._world.tell(f"{target.node} is asked to stop")
            target.server.request_stop()
            self._after(1.0, self.start)

    def stop(self) -> None:
        if (capture := self._one()) is not None:
            self._retire(capture)

    def start(self) -> None:
        if len(self._world.captures) < MAX_CAPTURES:
            node = self._world.start_capture().node
            self._world.tell(f"{node} starts")

    def delete_owner_key(self) -> None:
        if self._world.etcd.down:
            return
        found = self._world.etcd.range(keys.election_prefix(CLUSTER), prefix=True).kvs
        if found:
            first = min(found, key=lambda kv: kv.create_revision)
            self._world.tell("the owner's election key is deleted by hand")
            delete(self._world.etcd, first.key)

    def compact(self) -> None:
        etcd = self._world.etcd
        etcd.compact(Revision(etcd._revision))
        self._world.tell("etcd is compacted")

    def fail_data(self) -> None:
        if (capture := self._one()) is not None:
            self._world.tell(f"a write of {capture.node} fails")
            capture.plane.fails_at = self._world.clock.now_s

    def pause(self) -> None:
        if self._operate(lambda operator: operator.pause_changefeed()):
            self._world.tell("the changefeed is paused")
            self._after(self._rng.random() * 4, self._resume)

    def _resume(self) -> None:
        self._operate(lambda operator: operator.resume_changefeed())

    def etcd_down(self) -> None:
        etcd = self._world.etcd
        etcd.down = True
        self._world.tell("etcd is down")
        self._after(self._rng.random() * 5, lambda: setattr(etcd, "down", False))

    # how

    def _one(self) -> SimCapture | None:
        """Any, but more often the owner than its share."""
        world = self._world
        if not world.captures:
            return None
        if world.owner is not None and self._rng.random() < 0.3:
            return world.owner
        return self._rng.choice(world.captures)

    def _one_writing(self) -> SimCapture | None:
        """One with a commit under way, if there is one: that is where it hurts."""
        writing = [each for each in self._world.captures if each.plane.is_writing]
        return self._rng.choice(writing) if writing else self._one()

    def _after(self, seconds: float, deed: Callable[[], None]) -> None:
        self._later.append((self._world.clock.now_s + seconds, deed))

    def _post(self, owner: SimCapture, job: OwnerJob) -> None:
        self._world.tell(f"{owner.node} is asked for {job}")
        owner.server.jobs.post(job).add_done_callback(lambda future: future.exception())

    def _operate(self, what: Callable[[EtcdOwnerObservation], None]) -> bool:
        etcd = self._world.etcd
        was_down, etcd.down = etcd.down, False
        try:
            committer = ClientCommitter(etcd, keys.delete_counter_key(CLUSTER))
            what(
                EtcdOwnerObservation.for_operator(
                    EtcdQuerier(etcd, CLUSTER), CLUSTER, committer, NAME
                )
            )
        except TidelakeError:
            return False
        else:
            return True
        finally:
            etcd.down = was_down
