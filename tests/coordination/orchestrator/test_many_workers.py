"""Many workers on one etcd: each sees one moment of it, and does each thing once."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from conf.settings import EtcdSettings
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.trust.clock import SystemClock
from tests.coordination.orchestrator import bank
from tests.coordination.orchestrator.ground import Ground, MapState, Ticks, real_ground
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.services.child_process import start_child

GROUPS, MEMBERS = 10, 5


def in_threads(*targets: Callable[[], None]) -> None:
    """Until all have returned; raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]


@pytest.mark.etcd
def test_bank_in_threads(real_client: EtcdClient):
    ground = real_ground(real_client)
    asked = bank.work_in_threads(real_client, ground.root, seconds=4.0, workers=10, seed=1)
    done = bank.check(ground.values())
    assert 100 < done <= sum(asked)
    assert int(ground.value("count") or b"0") > 10


@pytest.mark.etcd
def test_bank_in_processes_some_of_which_are_killed(etcd: EmbeddedEtcd, real_client: EtcdClient):
    ground = real_ground(real_client)

    def process(seconds: float, seed: int) -> subprocess.Popen[bytes]:
        module = "tests.coordination.orchestrator.bank"
        arguments = (etcd.endpoint, ground.root, str(seconds), "2", str(seed))
        return start_child([sys.executable, "-m", module, *arguments], output=subprocess.PIPE)

    processes = [process(3.0, seed) for seed in (2, 3, 4, 5)]
    victim = process(60.0, 6)
    ground.drive(until=lambda: any("mark/6-" in key for key in ground.values()), patience_s=20)
    victim.kill()
    victim.communicate()
    outputs = [each.communicate(timeout=120)[0].decode() for each in processes]
    assert [each.returncode for each in processes] == [0] * 4, "\n".join(outputs)
    assert bank.check(ground.values()) > 100


@pytest.mark.seeds(20)
def test_bank_on_the_fake_in_any_order(seed: int):
    """Seeded: the order of turns, what they do, and the answers that are lost."""
    random_, clock = random.Random(seed), FakeClock()
    etcd = FakeEtcd(clock)
    ground = Ground(client=etcd, clock=clock, compact=etcd.compact)
    late: list[Callable[[], None]] = []
    bad = bank.BadClient(
        etcd, random_, later=lambda _, arrive: late.append(arrive), sleep=clock.advance
    )
    hired = itertools.count()

    def hire() -> tuple[bank.Teller, EtcdWorker[MapState]]:
        teller = bank.Teller(f"{next(hired)}", random_)
        return teller, bank.open_worker(bad, ground.root, teller, clock)

    workers = [hire() for _ in range(10)]
    for _ in range(600):
        n = random_.randrange(len(workers))
        teller, worker = workers[n]
        worker.run_once()
        if teller.is_over or random_.random() < 0.005:  # finished, or crashed
            worker.close()
            workers[n] = hire()
        clock.advance(random_.choice([0.0, 0.001, 0.01]))
        if late and random_.random() < 0.3:
            late.pop(0)()
    assert bank.check(ground.values()) > 100
    assert len(bad.faults) == 4


@pytest.mark.etcd
def test_sum_every_observed_state_is_consistent(real_client: EtcdClient):
    """Each group of keys has one that holds their sum; all that change it change that as well."""
    ground = real_ground(real_client)
    seen: list[int] = []

    def tick(random_: random.Random, ticks: list[int]) -> Callable[[MapState], None]:
        def look_and_change(state: MapState) -> None:
            for n in range(GROUPS):
                members = [state.values.get(f"{n}/{m}", b"0") for m in range(MEMBERS)]
                assert sum(map(int, members)) == int(state.values.get(f"{n}/sum", b"0"))
            ticks.append(sum(int(state.values.get(f"{n}/sum", b"0")) for n in range(GROUPS)))
            for n in random_.sample(range(GROUPS), 2):
                adds = partial(_plus, change=random_.randint(1, 9))
                state.patch((f"{n}/{random_.randrange(MEMBERS)}", adds), (f"{n}/sum", adds))

        return look_and_change

    def work(seed: int) -> None:
        ticks: list[int] = []
        reactor = Ticks(always=tick(random.Random(seed), ticks))
        worker = ground.worker(reactor, clock=SystemClock())
        ground.run(worker, lambda: len(ticks) >= 60)
        assert ticks == sorted(ticks), "it only grows, and nobody sees it fall"
        seen.extend(ticks)

    in_threads(*(lambda seed=seed: work(seed) for seed in range(10)))
    assert len(seen) == 600


def _plus(old: bytes | None, change: int) -> bytes:
    return str(int(old or b"0") + change).encode()


@pytest.mark.etcd
def test_an_outside_writer_is_seen_in_order(etcd: EmbeddedEtcd, real_client: EtcdClient):
    ground = real_ground(real_client)
    last = 1_500

    def write() -> None:
        client = connect(EtcdSettings(endpoints=(etcd.endpoint,), embedded=False))
        for n in range(last + 1):
            client.put(ground.root + "n", str(n).encode())
            if n % 100 == 0:
                time.sleep(0.02)
        client.close()

    def is_at_the_end() -> bool:
        return reactor.seen[-1:] == [{"n": str(last).encode()}]

    reactor = Ticks()
    worker = ground.worker(reactor, tick_interval_s=0.005)
    in_threads(write, lambda: ground.run(worker, is_at_the_end))
    seen = [int(each.get("n", b"-1")) for each in reactor.seen]
    assert seen == sorted(seen)
    assert seen[-1] == last
    assert len(set(seen)) > 20


@pytest.mark.etcd
def test_two_that_add_to_one_key_both_count(real_client: EtcdClient):
    ground = real_ground(real_client)

    def work() -> None:
        def add(state: MapState) -> None:
            state.patch(("n", lambda old: _plus(old, 1)))

        reactor = Ticks(*[add] * 40)
        worker = ground.worker(reactor, tick_interval_s=0.005)
        ground.run(worker, lambda: len(reactor.seen) > 40)  # the last one is written by then

    in_threads(*[work] * 5)
    assert ground.value("n") == b"200"
