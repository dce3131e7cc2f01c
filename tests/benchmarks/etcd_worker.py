"""``python -m tests.benchmarks.etcd_worker [--seconds 5]``: how fast EtcdWorkers get on, on a real
etcd of their own (no fsync: the client side is what is measured).

Three loads, each with 1 worker and with 10 (threads of one process, a client each):
  write     each worker changes a key of its own at every tick: read, tick, commit, own write back
  contend   all workers add to the same key: collisions, and patches run again
  watch     workers that only watch an outside writer: ticks on other people's changes
No timer sets the pace of the first two; ticks without news are not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from conf.settings import EtcdSettings
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.orchestrator.etcd_worker import EtcdWorker
from coordination.orchestrator.snapshot import Snapshot
from coordination.orchestrator.transaction import Patch, PatchGroup
from coordination.trust.clock import SystemClock

WORKERS = (1, 10)
WARM_UP_S = 0.5
TICK_INTERVAL_S = {"write": 0.0001, "contend": 0.0001, "watch": 0.001}  # the last has idle ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What all workers of a run did together, per second."""

    load: str
    workers: int
    transactions_per_s: float
    ticks_per_s: float
    collisions_per_s: float


class Counting:
    """A client that counts its transactions."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.taken = self.refused = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def txn(self, *arguments: object) -> object:
        result = self._client.txn(*arguments)  # type: ignore[arg-type]
        self.taken += result.succeeded
        self.refused += not result.succeeded
        return result


class State:
    """Counts what it is told, and asks for one change at every tick if it has a key to change."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self.is_due = False
        self.has_news = False
        self.ticks = 0

    def update(self, _key: str, _kv: object) -> None:
        self.has_news = True

    def update_pending_change(self, now_s: float) -> None:
        pass

    def tick(self, _state: State, _now_s: float) -> None:
        self.ticks += self.has_news
        self.has_news = False
        self.is_due = True

    def take_patches(self) -> list[PatchGroup]:
        if self._key is None or not self.is_due:
            return []
        self.is_due = False
        return [(Patch(self._key, lambda old: str(int(old or b"0") + 1).encode()),)]


def run_load(endpoint: str, load: str, workers: int, seconds: float) -> Pace:
    """One load with that many workers; counted after a warm-up."""
    root = f"/bench/{load}-{workers}/"
    keys = {"write": [f"{root}{n}" for n in range(workers)], "contend": [f"{root}n"] * workers}
    clients = [Counting(_connected(endpoint)) for _ in range(workers)]
    states = [State(key) for key in keys.get(load, [None] * workers)]
    stopping = threading.Event()
    targets = [
        lambda client=client, state=state: _run(client, state, root, load, stopping)
        for client, state in zip(clients, states, strict=True)
    ]
    if load == "watch":
        targets.append(lambda: _write(endpoint, root, stopping))
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP_S)
    before, began = _count(clients, states), time.monotonic()
    time.sleep(seconds)
    after, took_s = _count(clients, states), time.monotonic() - began
    stopping.set()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()  # type: ignore[operator]
    taken, refused, ticks = ((new - old) / took_s for new, old in zip(after, before, strict=True))
    return Pace(
        load=load,
        workers=workers,
        transactions_per_s=round(taken, 1),
        ticks_per_s=round(ticks, 1),
        collisions_per_s=round(refused, 1),
    )


def run(seconds: float, say: Callable[[str], None]) -> list[Pace]:
    """All loads, on an etcd that is started for them."""
    paces = []
    with EmbeddedEtcd() as etcd:
        for load in ("write", "contend", "watch"):
            for workers in WORKERS:
                pace = run_load(etcd.endpoint, load, workers, seconds)
                say(
                    f"etcd worker: {load:8} {workers:2} worker(s) "
                    f"{pace.transactions_per_s:8.1f} txn/s {pace.ticks_per_s:8.1f} ticks/s "
                    f"{pace.collisions_per_s:8.1f} collisions/s"
                )
                paces.append(pace)
    return paces


def _run(client: Counting, state: State, root: str, load: str, stopping: threading.Event) -> None:
    woken = threading.Event()
    worker = EtcdWorker(
        client=client,  # type: ignore[arg-type]
        clock=SystemClock(),
        snapshot=Snapshot((root,), root + "count"),
        reactor=state,
        state=state,
        tick_interval_s=TICK_INTERVAL_S[load],
        wake=woken.set,
    )
    while not stopping.is_set():
        woken.clear()
        wait_s = worker.run_once()
        woken.wait(min(wait_s, 0.1))
    worker.close()


def _write(endpoint: str, root: str, stopping: threading.Event) -> None:
    client, n = _connected(endpoint), 0
    while not stopping.is_set():
        n += 1
        client.put(f"{root}{n % 100}", str(n).encode())
    client.close()


def _count(clients: list[Counting], states: list[State]) -> tuple[int, int, int]:
    return (
        sum(each.taken for each in clients),
        sum(each.refused for each in clients),
        sum(each.ticks for each in states),
    )


def _connected(endpoint: str) -> EtcdClient:
    return connect(EtcdSettings(endpoints=(endpoint,), embedded=False))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.etcd_worker")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the six runs")
    parser.add_argument("--output", type=Path, help="a JSON file")
    args = parser.parse_args()
    paces = run(args.seconds, lambda line: print(line, flush=True))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps([asdict(pace) for pace in paces], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
