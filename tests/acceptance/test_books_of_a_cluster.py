"""Books that balance in every snapshot, while tables change shape under two captures that are
killed and started again, and between which tables are moved.

A seed that fails is told: ``FIRST=7 SEEDS=1 pytest -m soak`` on this file has its history and its
deeds again, though not the moments at which they come.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.settings import TableRule
from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.books import Books
from tests.acceptance.books_reader import BooksReader
from tests.acceptance.cluster import FEED, Cluster
from tests.acceptance.live_feed import LiveFeed
from tests.seeds import chosen_seeds
from tests.services.kafka_broker import KafkaBroker
from tests.shop import proof
from tests.shop.history import Event

pytestmark = [pytest.mark.acceptance, pytest.mark.soak]

RATE_PER_S = 10.0
DDL_EVERY = 40  # transactions
DEEDS = 8
TABLES = 6
LEAST_SNAPSHOTS = 5
STOP_WITHIN_S = 60.0
NAMES = ("a", "b")
# Of a life that begins: where it dies by itself, if it comes there.
VICTIMS = (
    "",
    "before-ddl=kill:2",
    "after-ddl=kill",
    "after-ddl=kill:3",
    "after-fence-check=kill:40",
    "after-apply-one=kill:15",
    "after-progress=kill:20",
)


class BooksFeed(LiveFeed):
    def __init__(self, broker: KafkaBroker, topic: str, seed: int) -> None:
        super().__init__(broker, topic, seed=seed, rate=RATE_PER_S)
        self.books = Books(seed, ddl_every=DDL_EVERY, rate=RATE_PER_S)

    def _happening(self) -> Iterator[Event]:
        for event in self.books.events():
            if self._closing.is_set():
                return
            self.events.append(event)
            yield event


class Deeds:
    """What is done to the captures, drawn from a seed; ``done`` is what it was."""

    def __init__(self, cluster: Cluster, books: Books, dice: random.Random) -> None:
        self.done: list[str] = []
        self._cluster, self._books, self._dice = cluster, books, dice

    def next(self) -> None:
        deed = self._dice.choice((self._kill, self._move, self._move))
        deed()
        checkpoint = self._cluster.watch.checkpoint
        self.await_checkpoint(checkpoint + 1)

    def await_checkpoint(self, ts: int) -> None:
        """While whoever dies by itself is started again."""

        def is_there() -> bool:
            self.revive()
            return self._cluster.watch.checkpoint >= ts

        self._cluster.await_(f"checkpoint {ts} after {self.done}", is_there)

    def revive(self) -> None:
        for name in NAMES:
            server = self._cluster.servers[name]
            if server.life.is_over:
                code = server.life.await_exit()
                assert code == -signal.SIGKILL, f"{name} ended: {code}\n{server.life.tail()}"
                self._start(name)

    def _start(self, name: str) -> None:
        victim = self._dice.choice(VICTIMS)
        self._cluster.start(name, **({"failpoints": victim} if victim else {}))
        self.done.append(f"start of {name} {victim}")

    def _kill(self) -> None:
        name, group = self._dice.choice(NAMES), self._dice.random() < 0.7
        if not (life := self._cluster.servers[name].life).is_over:
            life.kill(group=group)
            self.done.append(f"kill of {name}{'' if group else ' without its JVM'}")

    def _captures(self) -> set[str]:
        running = self._cluster.running()
        return {each.capture for each in running if each.life.lines("capture starts")}

    def _are_all_there(self) -> bool:
        self.revive()
        return len(self._captures()) == len(NAMES)

    def _move(self) -> None:
        """Once the table is elsewhere; or whoever should give or take it has died meanwhile."""
        self._cluster.await_(f"all captures after {self.done}", self._are_all_there)
        holders = self._cluster.holders()
        captures = self._captures()
        movable = {name: captures - {holder} for name, holder in holders.items()}
        names = sorted(name for name, others in movable.items() if others)
        if len(captures) < 2 or not names:
            return
        name, since = self._dice.choice(names), self._cluster.watch.checkpoint
        (to,) = movable[name]

        def has_changed() -> bool:
            """Who was to give or take it is gone, or another table has the name."""
            return not captures <= self._captures() or self._books.ended(name, since)

        move = ("table", "move", "-c", FEED, "--table", name, "--capture-id", to)
        refusal = self._cluster.refusal(*move)
        self.done.append(f"move of {name} {'refused' if refusal else ''}")
        if refusal:  # said of who died meanwhile, or by who died over it
            self._cluster.await_(f"a reason for: {refusal}", has_changed)
            return
        self._cluster.await_(
            f"{name} at {to}",
            lambda: self._cluster.holders().get(name) == to or has_changed(),
        )


def text_of(rule: TableRule) -> str:
    """In a changefeed file."""
    lines = {
        "matcher": json.dumps(rule.matcher),
        "write-mode": json.dumps(rule.write_mode),
        "soft-delete": json.dumps(rule.soft_delete),
        "extra-columns": json.dumps(rule.extra_columns),
    }
    return "\n".join(["[[sink.tables]]", *(f"{at} = {text}" for at, text in lines.items()), ""])


@pytest.mark.parametrize("seed", chosen_seeds(2))
def test_every_snapshot_balances(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, seed: int
) -> None:
    def make_feed(broker: KafkaBroker, topic: str) -> BooksFeed:
        return BooksFeed(broker, topic, seed)

    with Cluster(broker, etcd.endpoint, tmp_path, make_feed) as cluster:
        feed = cluster.feed
        assert isinstance(feed, BooksFeed)
        deeds = Deeds(cluster, feed.books, random.Random(seed))
        for name in NAMES:
            cluster.start(name)
        for server in cluster.servers.values():
            server.life.await_line("capture starts")
        cluster.create(settings="".join(map(text_of, feed.books.rules)))
        with feed:
            cluster.await_shared_out(TABLES, among=len(NAMES))
            for _ in range(DEEDS):
                deeds.next()
            last_ts = feed.close()
            deeds.await_checkpoint(last_ts)
        print(f"seed {seed}: {len(feed.events)} events, {len(feed.books.ddls)} DDLs, {deeds.done}")
        for server in cluster.running():
            server.life.signal(signal.SIGTERM)
        for server in cluster.servers.values():
            assert server.life.await_exit(STOP_WITHIN_S) in (0, -signal.SIGKILL)
        reader = BooksReader(feed.books, cluster.warehouse)
        reader.check_now(last_ts)
        reader.check_ddls(last_ts)
        snapshots = reader.check(proof.ledger(cluster.warehouse))
        assert snapshots >= LEAST_SNAPSHOTS
        print(f"snapshots: {snapshots}, late commits: {cluster.commits.assert_one_writer()}")
