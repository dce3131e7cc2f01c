"""Accounts whose sum is nought, moved about by many workers; and who checks them.

Each transfer is one transaction: two accounts and a mark of its own with the amount. An account
that comes to nought is deleted, so that deletes collide with all else. What the accounts hold must
be what the marks say: a transfer that was done twice, or by half, or that was not done though its
mark is there, shows, and a sum alone would not tell.

``python -m tests.coordination.orchestrator.bank <endpoint> <root> <seconds> <workers> <seed>`` runs
workers in a process of their own; it prints how many transfers it has asked for.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from conf.settings import EtcdSettings
from coordination.errors import TidelakeError, TryAgain
from coordination.etcd.client import Compare, EtcdClient, Op, TxnResult
from coordination.etcd.etcd3_client import connect
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import Snapshot
from coordination.trust.clock import SystemClock
from tests.coordination.orchestrator.ground import MapState, run

ACCOUNTS = 25
RESTART = 0.03  # per tick
LATE_S = 0.03


class BadClient:
    """Delays answers, loses them, and lets requests arrive after it has said that it is over."""

    def __init__(
        self,
        client: EtcdClient,
        random_: random.Random,
        *,
        later: Callable[[float, Callable[[], None]], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._random, self._sleep = client, random_, sleep
        self._later = later or (lambda seconds, arrive: threading.Timer(seconds, arrive).start())
        self.faults: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        draw = self._random.random()
        if draw < 0.02:
            self.faults["lost on its way"] += 1
            raise TryAgain("lost on its way")
        if draw < 0.05:
            self.faults["late"] += 1
            self._later(LATE_S * self._random.random(), lambda: self._arrive(compares, then))
            raise TryAgain("not there yet")
        result = self._client.txn(compares, then)
        if draw < 0.08:
            self.faults["answer lost"] += 1
            raise TryAgain("its answer was lost")
        if draw < 0.18:
            self.faults["delayed"] += 1
            self._sleep(LATE_S * self._random.random())
        return result

    def _arrive(self, compares: Sequence[Compare], then: Sequence[Op]) -> None:
        try:
            self._client.txn(compares, then)
        except TidelakeError:  # the test is over
            return


class Teller:
    """A reactor: checks what it sees, and moves money."""

    def __init__(self, name: str, random_: random.Random) -> None:
        self._name, self._random = name, random_
        self.asked = 0
        self.is_over = False  # a new one takes its place

    def tick(self, state: MapState, _now_s: float) -> None:
        check(state.values, is_brief=True)
        if self._random.random() < RESTART:
            self.is_over = True
            return
        for _ in range(self._random.randint(1, 3)):
            self._transfer(state)

    def _transfer(self, state: MapState) -> None:
        source, target = self._random.sample(range(ACCOUNTS), 2)
        amount = self._random.randint(1, 5)
        mark = f"mark/{self._name}-{self.asked}"
        self.asked += 1
        state.patch(
            (f"account/{source}", lambda old: moved(old, -amount)),
            (f"account/{target}", lambda old: moved(old, amount)),
            (mark, lambda old: marked(mark, old, f"{source} {target} {amount}".encode())),
        )


def moved(old: bytes | None, amount: int) -> bytes | None:
    new = int(old or b"0") + amount
    return str(new).encode() if new else None


def marked(mark: str, old: bytes | None, new: bytes) -> bytes:
    assert old is None, f"{mark} is done, and asked for again"
    return new


def check(values: dict[str, bytes], *, is_brief: bool = False) -> int:
    """Fail if the accounts are not what the marks say; returns how many transfers were done."""
    accounts = {key: int(value) for key, value in values.items() if key.startswith("account/")}
    assert sum(accounts.values()) == 0, f"the sum is {sum(accounts.values())}"
    if is_brief:
        return 0
    told: Counter[str] = Counter()
    marks = [value.split() for key, value in values.items() if key.startswith("mark/")]
    for source, target, amount in marks:
        told[f"account/{source.decode()}"] -= int(amount)
        told[f"account/{target.decode()}"] += int(amount)
    assert accounts == {key: value for key, value in told.items() if value}
    return len(marks)


def open_worker(
    client: object,
    root: str,
    teller: Teller,
    clock: object,
    wake: Callable[[], None] = lambda: None,
) -> EtcdWorker[MapState]:
    return EtcdWorker(
        client=client,  # type: ignore[arg-type]
        clock=clock,  # type: ignore[arg-type]
        snapshot=Snapshot((root,), root + "count"),
        reactor=teller,
        state=MapState(root),
        tick_interval_s=0.02,
        wake=wake,
    )


def work(client: EtcdClient, root: str, seconds: float, name: str, seed: int) -> int:
    """One worker and its successors, until the time is over; returns the transfers asked for."""
    random_ = random.Random(seed)
    bad = BadClient(client, random_)
    deadline = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < deadline:
        teller = Teller(f"{name}-{asked}", random_)
        woken = threading.Event()
        worker = open_worker(bad, root, teller, SystemClock(), woken.set)
        run(worker, woken, lambda teller=teller: teller.is_over or time.monotonic() > deadline)  # type: ignore[misc]
        asked += teller.asked
    return asked


def work_in_threads(
    client: EtcdClient, root: str, seconds: float, workers: int, seed: int
) -> list[int]:
    """Raises what any of them raised."""
    asked: list[int] = []
    errors: list[BaseException] = []

    def one(n: int) -> None:
        try:
            asked.append(work(client, root, seconds, f"{seed}-{n}", seed * 1_000 + n))
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(2 * LATE_S)  # what is late must have come
    if errors:
        raise errors[0]
    return asked


def main(endpoint: str, root: str, seconds: str, workers: str, seed: str) -> None:
    client = connect(EtcdSettings(endpoints=(endpoint,), embedded=False))
    asked = work_in_threads(client, root, float(seconds), int(workers), int(seed))
    print(sum(asked), flush=True)  # to the test
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
