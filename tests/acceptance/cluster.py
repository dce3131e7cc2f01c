"""Captures as a cluster: servers behind bad lines, the real CLI, and an eye on all that is said.

    server a ◄── proxy a ◄──┐
    server b ◄── proxy b ◄──┼── each other, and whoever asks the owner
    server c ◄── proxy c ◄──┘

A ``Server`` is a place (a port, and the proxy in front of it) in which one life follows another.
"""

from __future__ import annotations

from tests.services.message_proxy import MessageProxy

# isort: split

import json
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.settings import EtcdSettings, TransportSettings
from coordination.errors import TidelakeError
from coordination.etcd.embedded import free_ports
from coordination.model import TSO_LOGICAL_BITS
from streaming.operations.cluster import operator
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import ON_SPARK, Life, await_, environment, field
from tests.acceptance.progress_watch import ProgressWatch
from tests.acceptance.target_commits import TargetCommits
from tests.services.commands_here import Done, run_here
from tests.services.kafka_broker import KafkaBroker
from tests.shop import proof
from tests.shop.history import START_TS, Event
from tests.shop.mall import MallFeed, differences

FEED = "shop"  # the changefeed
TTL_S = 5
MARGIN_S = 1.0
LOSS = 0.2
LOOK_EVERY_S = 0.5
SYNC_POINT_INTERVAL = "20s"
REPLICATING = "replicating"


class Server:
    """One place of the cluster; ``life`` is what runs there now."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.target = f"127.0.0.1:{free_ports(1)[0]}"
        self.proxy = MessageProxy(self.target, loss=LOSS, seed=number)
        self.proxy.start()
        self.life: Life

    @property
    def capture(self) -> str:
        """The ID that it has now."""
        return field(self.life.lines("capture starts")[-1], "capture_id")


def a_mall(broker: KafkaBroker, topic: str) -> LiveFeed:
    return MallFeed(broker, topic, seed=5)


class Cluster:
    """One changefeed, of three shops unless another feed is made: a context manager."""

    def __init__(
        self,
        broker: KafkaBroker,
        etcd_endpoint: str,
        folder: Path,
        make_feed: Callable[[KafkaBroker, str], LiveFeed] = a_mall,
        *,
        program: str = ON_SPARK,
    ) -> None:
        self.topic = f"mall-{uuid.uuid4().hex[:8]}"
        self.warehouse = folder / "warehouse"
        self.feed = make_feed(broker, self.topic)
        self.servers: dict[str, Server] = {}
        self.lives: list[Life] = []
        self.frozen: set[str] = set()  # captures that were stopped while they may have written
        self.commits = TargetCommits(self.warehouse)
        self.watch = ProgressWatch(self.warehouse)
        self.lags_s: list[tuple[float, float]] = []  # wall time, lag of the changefeed
        self.errors: list[object] = []  # of the changefeed; it goes on after them by itself
        self._broker = broker
        self._program = program
        self._etcd = EtcdSettings(endpoints=(etcd_endpoint,), embedded=False, cluster_id=self.topic)
        self._folder = folder
        self._config = folder / "changefeed.toml"
        self._closing = threading.Event()
        self._eye = threading.Thread(target=self._look_on, daemon=True)
        self.fallen: list[str] = []  # checkpoints in etcd that fell

    def __enter__(self) -> Cluster:
        self._broker.create_topic(self.topic)
        self.watch.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for life in self.lives:
            life.end()
        self._closing.set()
        if self._eye.is_alive():
            self._eye.join()
        self.watch.stop()
        for server in self.servers.values():
            server.proxy.close()
        if kind is None:
            self.watch.assert_nothing_fell()
            assert self.fallen == []

    # What is started.

    def start(self, name: str, **settings: object) -> Server:
        """A life in this place."""
        server = self.servers.get(name)
        if server is None:
            server = self.servers[name] = Server(name, len(self.servers))
        folder = self._folder / f"{len(self.lives) + 1}-{name}"
        folder.mkdir()
        command = [
            *(sys.executable, "-m", self._program, "server"),
            *("--etcd", self._etcd.endpoints[0], "--cluster-id", self.topic),
            *("--addr", server.target, "--advertise-addr", server.proxy.address),
        ]
        session = {"capture_session_ttl": TTL_S, "session_safety_margin_s": MARGIN_S}
        env = environment(folder, **session | settings)
        server.life = Life(name, folder, command, env)
        self.lives.append(server.life)
        return server

    @property
    def description(self) -> tuple[str, ...]:
        """Of the changefeed, as options."""
        source = (
            f"kafka://{self._broker.bootstrap}/{self.topic}"
            "?protocol=canal-json&partition-num=3&enable-tidb-extension=true"
        )
        uris = ("--source-uri", source, "--sink-uri", f"delta://{self.warehouse}")
        return (*uris, "--config", str(self._config))

    def create(self, *, has_sync_points: bool = True, settings: str = "") -> None:
        """The changefeed; ``settings`` of its file, beside those of sync points."""
        points = f'enable-sync-point = true\nsync-point-interval = "{SYNC_POINT_INTERVAL}"\n'
        self._config.write_text((points if has_sync_points else "") + settings)
        start = ("--start-ts", str(START_TS))
        self.cli("changefeed", "create", "--changefeed-id", FEED, *self.description, *start)
        self._eye.start()

    # What is asked.

    def cli(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that the real command prints."""
        done = self._command(*arguments)
        assert done.code == 0, f"{arguments}: {done.out}{done.err}"
        return json.loads(done.out)["rows"]

    def refusal(self, *arguments: str) -> str:
        """What the real command says when it is refused; empty when it is not."""
        done = self._command(*arguments)
        return done.err or f"exit code {done.code}" if done.code else ""

    def _command(self, *arguments: str) -> Done:
        to = ("--etcd", self._etcd.endpoints[0], "--cluster-id", self.topic, "--format", "json")
        return run_here(*arguments, *to)

    def holders(self) -> dict[str, str]:
        """table -> the capture that replicates it, of those that are replicated now."""
        try:
            with operator(self._etcd, TransportSettings(), print) as asked:
                rows = asked.list_processors(FEED)
        except TidelakeError:
            return {}  # between two owners
        return {row["table"]: row["capture"] for row in rows if row["state"] == REPLICATING}

    def tables_of(self, capture: str) -> set[str]:
        return {name for name, holder in self.holders().items() if holder == capture}

    def owner(self) -> Server | None:
        """Whose capture leads, as etcd knows it."""
        with suppress(TidelakeError), operator(self._etcd, TransportSettings(), print) as asked:
            leader = next((r["capture"] for r in asked.list_captures() if r["is_owner"]), "")
            return next((s for s in self.running() if s.capture == leader), None)
        return None

    def running(self) -> list[Server]:
        return [server for server in self.servers.values() if not server.life.is_over]

    # What is waited for; a failure shows the logs.

    def await_(self, what: str, is_so: Any) -> float:
        """The seconds that it took."""
        begun = time.monotonic()
        try:
            await_(what, is_so, every_s=LOOK_EVERY_S)
        except AssertionError as error:
            tails = "\n".join(f"--- {life.name}\n{life.tail(15)}" for life in self.lives)
            raise AssertionError(f"{error}\nholders: {self.holders()}\n{tails}") from None
        return time.monotonic() - begun

    def await_shared_out(self, count: int, among: int) -> dict[str, str]:
        """All tables are replicated, and every running capture has some."""
        self.await_(
            f"{count} tables shared by {among}",
            lambda: (
                len(found := self.holders()) == count
                and set(found.values()) == {server.capture for server in self.running()}
                and len(set(found.values())) == among
            ),
        )
        return self.holders()

    def await_commits(self, capture: str, names: set[str] | None = None) -> None:
        """The capture brings these tables on (or any), from now on."""
        now = time.time()
        wanted = names or set()
        self.await_(
            f"commits of {capture} to {sorted(wanted) or 'any table'}",
            lambda: (found := self.commits.since(now, capture)) and wanted <= found,
        )

    def await_failover(self, capture: str, names: set[str], begun: float) -> float:
        """Somebody else brings each of these tables on; the seconds that the last one waited."""
        firsts: dict[str, float | None] = defaultdict(lambda: None)

        def all_go_on() -> bool:
            for name in names:
                firsts[name] = self.commits.first_by_others(begun, name, capture)
            return all(firsts.values())

        self.await_(f"{sorted(names)} of {capture} go on elsewhere", all_go_on)
        return max(at for at in firsts.values() if at) - begun

    def highest_lag_s(self, begin: float, end: float) -> float:
        return max((lag for at, lag in self.lags_s if begin <= at <= end), default=0.0)

    def await_checkpoint(self, ts: int) -> None:
        self.await_(f"checkpoint {ts}", lambda: self.watch.checkpoint >= ts)

    # What must be so.

    def assert_right(self, events: list[Event]) -> int:
        """Tables and all snapshots are the model's, row for row, and every table had one writer;
        the number of snapshots."""
        assert differences(events, self.warehouse) == []
        cuts = proof.ledger(self.warehouse)
        for row in cuts:
            at_ts = row["primary_ts"]
            found = differences(events, self.warehouse, up_to=at_ts, versions=row["tables"])
            assert (at_ts, found) == (at_ts, [])
        print(f"late commits: {self.commits.assert_one_writer(self.frozen)}")
        print(f"captures that lived and wrote throughout: {self.commits.assert_nobody_idles()}")
        return len(cuts)

    def _look_on(self) -> None:
        """Checkpoints in etcd never fall; and how far they are behind the shops' clock."""
        before = 0
        with operator(self._etcd, TransportSettings(), print) as asked:
            while not self._closing.wait(LOOK_EVERY_S):
                try:
                    row = asked.query(FEED)
                except TidelakeError:
                    continue
                if (at_ts := row["checkpoint_ts"]) < before:
                    self.fallen.append(f"checkpoint in etcd fell from {before} to {at_ts}")
                before = at_ts
                if row["error"] and row["error"] not in self.errors:
                    self.errors.append(row["error"])
                    print(f"the changefeed had an error: {row['error']}")
                lag_ms = (self.feed.latest_ts - at_ts) >> TSO_LOGICAL_BITS
                self.lags_s.append((time.time(), lag_ms / 1000))
