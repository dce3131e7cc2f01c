"""What is done to a world, by the dice of its seed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random

from coordination.capture.owner.operator_jobs import JobContext
from coordination.etcd import keys
from coordination.etcd.client import delete
from coordination.metadata.records import RunningError
from coordination.model import Revision
from tests.fakes.fake_replica import PLAYED
from tests.fakes.fake_source import ts_at
from tests.simulation.feeds import CLUSTER, SimFeed
from tests.simulation.jobs.deeds import JobDeeds
from tests.simulation.plots import PLOTS
from tests.simulation.world import SimCapture, World

MAX_CAPTURES = 4


class Faults:
    """`act` after each step while faults last; `heal` ends them all.

    Each deed has a number and dice of its own: those of ``without`` are left out, and the others
    stay as they are."""

    def __init__(self, world: World, without: Collection[int] = ()) -> None:
        self.deeds = 0  # so far
        self.world = world
        self._without = without
        self.dice = dice = world.dice("faults")
        self._chance = dice.choice((0.05, 0.15, 0.3))
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._deeds: list[Callable[[], None]] = [
            self.crash,
            self.crash_two,
            self.freeze,
            self.stall,
            self.cut_etcd,
            self.cut_pair,
            self.lose_answers,
            self.delay_watches,
            self.move,
            self.move_many,
            self.rebalance,
            self.drain,
            self.stop,
            self.start,
            self.delete_owner_key,
            self.compact,
            self.fail_data,
            self.doubt_storage,
            self.pause,
            self.update,
            self.rewind,
            self.remove,
            self.create,
            self.warn,
            self.doubt_operator,
            self.etcd_down,
            self.restore_etcd,
        ]
        self.of_jobs = JobDeeds(self, world.jobs) if world.jobs is not None else None
        if self.of_jobs is not None:
            self._deeds += self.of_jobs.all
        # each seed has its favourites, so that what is rare in general is dense in some
        self._deeds = dice.sample(self._deeds, dice.randrange(4, len(self._deeds)))
        self._do(self._trouble_the_network)
        plot = dice.choice(PLOTS)
        self._do(lambda: plot(self, self.dice))

    def _trouble_the_network(self) -> None:
        network, rng = self.world.network, self.dice
        network.bare = rng.choice((0.0, 0.3))
        if rng.random() < 0.7:
            network.loss = rng.choice((0.0, 0.1, 0.3))
            network.double = rng.choice((0.0, 0.2, 0.5))
            network.late = rng.choice((0.0, 0.1, 0.4))
            network.late_s = rng.choice((1.0, 4.0, 8.0))

    def act(self) -> None:
        now = self.world.clock.now_s
        due = [deed for at, deed in self._later if at <= now]
        self._later = [each for each in self._later if each[0] > now]
        for deed in due:
            deed()
        if self.dice.random() < self._chance:
            self._do(self.dice.choice(self._deeds))

    def _do(self, deed: Callable[[], None]) -> None:
        number, self.deeds = self.deeds, self.deeds + 1
        if number not in self._without:
            self._rolling(self.world.dice(f"deed {number}"), deed)

    def _rolling(self, dice: Random, deed: Callable[[], None]) -> None:
        before, self.dice = self.dice, dice
        deed()
        self.dice = before

    def heal(self) -> None:
        """All faults end; what was scheduled as their end happens now."""
        world = self.world
        for _, deed in self._later:
            deed()
        self._later.clear()
        network = world.network
        network.loss = network.double = network.late = network.bare = 0.0
        network.cuts.clear()
        world.etcd.down = False
        world.pace.batch_s = None
        world.pace.read = 40
        world.pace.slow_s = world.pace.commit_s = 0.5
        world.pace.doubt = 0.0
        for capture in world.captures:
            capture.frozen_until = capture.stalled_until = 0.0
            capture.plane.fails_at = None
            capture.link.lost_answers = 0.0
            capture.link.heal_if_cut()
        world.operator.settle()
        if self.of_jobs is not None:
            self.of_jobs.heal()
        while sum(not each.is_stopping for each in world.captures) < 2:
            world.start_capture()
        world.tell("all faults end")

    # the deeds

    def crash(self) -> None:
        if (capture := self._one_writing()) is not None:
            self.kill(capture)

    def kill(self, capture: SimCapture) -> None:
        world = self.world
        world.tell(f"{capture.node} is killed")
        world.captures.remove(capture)
        capture.crash()
        self.after(self.dice.random() * 6, self.start)

    def crash_two(self) -> None:
        """The owner too, so that who comes next has never seen the other one."""
        if len(self.world.captures) > 2:
            self.crash()
            owner = self.world.owner
            if owner is not None:
                self.kill(owner)

    def stall(self) -> None:
        """The coordination thread hangs in a call; the data plane does not know, and goes on."""
        if (capture := self._one_writing()) is not None:
            seconds = self.dice.choice((1.0, 3.0, 9.0, 12.0))
            self.world.tell(f"{capture.node} stalls for {seconds} s")
            capture.stalled_until = self.world.clock.now_s + seconds

    def freeze(self) -> None:
        self.freeze_for(self.dice.choice((0.5, 2.0, 9.0, 11.0, 13.0)))

    def freeze_for(self, seconds: float) -> None:
        capture = self.dice.choice((self._one, self._one_writing))()
        if capture is not None:
            self.world.tell(f"{capture.node} is frozen for {seconds:.1f} s")
            capture.freeze(self.world.clock.now_s + seconds)

    def cut_etcd(self) -> None:
        self.cut_etcd_for(self.dice.random() * 8)

    def cut_etcd_for(self, seconds: float) -> None:
        self.cut_off(self.dice.choice((self._one, self._one_writing))(), seconds)

    def cut_off(self, capture: SimCapture | None, seconds: float) -> None:
        if capture is None or capture.link.is_cut:
            return
        self.world.tell(f"{capture.node} is cut off from etcd")
        capture.link.cut()
        self.after(seconds, capture.link.heal_if_cut)

    def cut_pair(self) -> None:
        world = self.world
        if len(world.captures) < 2:
            return
        pair = frozenset(each.node for each in self.dice.sample(world.captures, 2))
        world.tell(f"nothing passes between {sorted(pair)}")
        world.network.cuts.add(pair)
        self.after(self.dice.random() * 10, lambda: world.network.cuts.discard(pair))

    def lose_answers(self) -> None:
        capture = self._one()
        if capture is not None:
            self.world.tell(f"{capture.node} loses answers of etcd")
            capture.link.lost_answers = 0.3
            self.after(3.0, lambda: setattr(capture.link, "lost_answers", 0.0))

    def delay_watches(self) -> None:
        self._delay_watches(self._one())

    def delay_watches_of_owner(self) -> None:
        self._delay_watches(self.world.owner)

    def _delay_watches(self, capture: SimCapture | None) -> None:
        if capture is not None:
            self.world.tell(f"{capture.node} hears late of what changes in etcd")
            capture.link.late_watches = 0.9
            self.after(2.0, lambda: setattr(capture.link, "late_watches", 0.3))

    def move(self) -> None:
        feed = self.feed
        owner = self.world.owner_of(feed.name)
        coordinator = owner and owner.coordinator_of(feed.name)
        if owner is None or coordinator is None or not coordinator.replication.tables:
            return
        tables = sorted(coordinator.replication.tables.items())
        _, span = self.dice.choice(tables)
        dest = self.dice.choice(self.world.captures).server.capture
        if dest is not None:
            self._post(owner, JobContext.move_table, feed.name, span.name, dest.id)

    def move_many(self) -> None:
        """And again, before all of it is over."""
        for seconds in (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0):
            self.after(seconds, self.move)

    def rebalance(self) -> None:
        if (owner := self.world.owner) is not None:
            self._post(owner, JobContext.rebalance, self.feed.name)

    def drain(self) -> None:
        owner, target = self.world.owner, self._one()
        if owner is None or target is None or target.server.capture is None:
            return
        if len(self.world.captures) < 3:
            return
        self._post(owner, JobContext.drain, target.server.capture.id)
        self.after(4.0, lambda: self._retire(target))  # a drained capture has no other use

    def _retire(self, target: SimCapture) -> None:
        if target in self.world.captures:
            self.world.tell(f"{target.node} is asked to stop")
            target.server.request_stop()
            self.after(1.0, self.start)

    def stop(self) -> None:
        if (capture := self._one()) is not None:
            self._retire(capture)

    def start(self) -> None:
        if len(self.world.captures) < MAX_CAPTURES:
            node = self.world.start_capture().node
            self.world.tell(f"{node} starts")

    def delete_owner_key(self) -> None:
        if self.world.etcd.down:
            return
        found = self.world.etcd.range(keys.election_prefix(CLUSTER), prefix=True).kvs
        if found:
            self.dice.choice((self.delay_watches_of_owner, int))()
            first = min(found, key=lambda kv: kv.create_revision)
            self.world.tell("the owner's election key is deleted by hand")
            delete(self.world.etcd, first.key)

    def compact(self) -> None:
        etcd = self.world.etcd
        etcd.compact(Revision(etcd._revision))
        self.world.tell("etcd is compacted")

    def fail_data(self) -> None:
        if (capture := self._one()) is not None:
            self.world.tell(f"a write of {capture.node} fails")
            capture.plane.fails_at = self.world.clock.now_s

    def doubt_storage(self) -> None:
        self.world.tell("the storage loses answers")
        self.world.pace.doubt = 0.3
        self.after(self.dice.random() * 6, lambda: setattr(self.world.pace, "doubt", 0.0))

    def warn(self) -> None:
        capture = self._one()
        for replica in capture.plane.replicas if capture is not None else ():
            warning = RunningError(code=PLAYED[0], message=f"slow at {self.world.clock.now_s:.2f}")
            replica.warnings.append(warning)

    # the operator's

    def pause(self) -> None:
        self._pause(self.feed, self.world.operator.resume)

    def _pause(self, feed: SimFeed, resume: Callable[[SimFeed], bool]) -> None:
        if self.world.operator.pause(feed):
            self.world.tell(f"{feed.name.id} is paused")
        again = self.dice.choice((resume, self.world.operator.resume_where_it_is))
        self.after(self.dice.random() * 4, lambda: again(feed) and None)

    def update(self) -> None:
        """Paused first, as it must be."""
        feed = self.feed
        self._pause(feed, self.world.operator.resume)
        later_ts = feed.target_ts and feed.target_ts + ts_at(1.0)

        def update() -> None:
            if self.world.operator.update(feed, later_ts):
                self.world.tell(f"{feed.name.id} is updated")

        self.after(self.dice.random() * 2, update)

    def rewind(self) -> None:
        feed, share = self.feed, self.dice.random()
        if self.world.operator.pause(feed):
            self.world.tell(f"{feed.name.id} is paused")

        def rewind() -> None:
            if self.world.operator.rewind(feed, share):
                self.world.tell(f"{feed.name.id} goes back to an earlier checkpoint")

        self.after(self.dice.random() * 4, rewind)

    def remove(self) -> None:
        feed = self.feed
        self.remove_only(feed)
        for _ in range(3):
            self.after(self.dice.random() * 8, lambda: self.create_again(feed))

    def remove_only(self, feed: SimFeed) -> None:
        if self.world.operator.remove(feed):
            self.world.tell(f"{feed.name.id} is removed")

    def create(self) -> None:
        self.create_again(self.feed)

    def create_again(self, feed: SimFeed) -> None:
        if self.world.operator.create(feed):
            self.world.tell(f"{feed.name.id} is created again")

    def doubt_operator(self) -> None:
        self.world.tell("the operator loses answers of etcd")
        link = self.world.operator.link
        link.lost_answers = 0.3
        self.after(6.0, lambda: setattr(link, "lost_answers", 0.0))

    def etcd_down(self) -> None:
        etcd = self.world.etcd
        etcd.down = True
        self.world.tell("etcd is down")
        self.after(self.dice.random() * 5, lambda: setattr(etcd, "down", False))

    def restore_etcd(self) -> None:
        world = self.world
        if any(feed.target_ts is not None for feed in world.feeds.values()):
            return  # another end might be written there
        restore = world.etcd.back_up()
        world.tell("etcd is backed up")

        def put_back() -> None:
            world.tell("etcd is restored from its backup")
            world.put_back(restore)

        self.after(self.dice.choice((0.5, 2.0, 6.0)), put_back)

    # how

    def _one(self) -> SimCapture | None:
        """Any, but more often the owner than its share."""
        world = self.world
        if not world.captures:
            return None
        if world.owner is not None and self.dice.random() < 0.3:
            return world.owner
        return self.dice.choice(world.captures)

    def _one_writing(self) -> SimCapture | None:
        """One with a commit under way, if there is one: that is where it hurts."""
        writing = [each for each in self.world.captures if each.plane.is_writing]
        return self.dice.choice(writing) if writing else self._one()

    def after(self, seconds: float, deed: Callable[[], None]) -> None:
        dice = Random(self.dice.getrandbits(64))
        later = partial(self._rolling, dice, deed)
        self._later.append((self.world.clock.now_s + seconds, later))

    def _post(self, owner: SimCapture, job: Callable[..., object], *arguments: object) -> None:
        self.world.tell(f"{owner.node} is asked to {job.__name__} {arguments}")
        future = owner.server.jobs.post(lambda context: job(context, *arguments))
        future.add_done_callback(lambda done: done.exception())

    @property
    def feed(self) -> SimFeed:
        return self.dice.choice(list(self.world.feeds.values()))
