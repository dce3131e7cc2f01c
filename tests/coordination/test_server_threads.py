"""The blocking loop around a server's turns, with real threads and a real clock."""

from __future__ import annotations

import random
import threading
import uuid
from datetime import UTC, datetime

from conf.settings import SessionSettings
from coordination.capture_context import CaptureContext
from coordination.clock import SystemClock
from coordination.etcd import keys
from coordination.fence import Fence
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.model import ChangefeedInfo
from coordination.orchestrator.commit_once import commit_once
from coordination.server import CaptureServer, Phase
from coordination.watchdog import Watchdog
from tests.fakes.fake_data_plane import FakeDataPlane, Pace
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_source import FakeSource
from tests.fakes.fake_warehouse import FakeWarehouse
from tests.simulation.feeds import CLUSTER, NAME
from tests.simulation.network import RawNetwork


def test_a_server_runs_until_it_is_asked_to_stop() -> None:
    clock, woken = SystemClock(), threading.Event()
    etcd = FakeEtcd(clock)
    source = FakeSource(0.0)
    rng = random.Random(1)
    warehouse = FakeWarehouse(source, None, 6.0)
    plane = FakeDataPlane(lambda _: warehouse, rng=rng, now=clock.monotonic, pace=Pace(slow_s=0.0))
    info = ChangefeedInfo(id=NAME.id)
    commit_once(etcd, [create_writes(CLUSTER, info, None)], keys.delete_counter_key(CLUSTER))
    context = CaptureContext(
        client=etcd,
        cluster_id=CLUSTER,
        session=SessionSettings(),
        clock=clock,
        fence=Fence(clock),
        watchdog=Watchdog(clock),
        transport=RawNetwork(rng).transport("n1", woken.set),
        data_plane=plane,
        address="n1",
        version="1.0.0",
        new_id=lambda: str(uuid.uuid4()),
        utc_now=lambda: datetime.now(UTC),
        rng=rng,
        woken=woken,
    )
    server = CaptureServer(context)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    opened = threading.Event()
    for _ in range(500):
        if plane.replicas and plane.controls:
            opened.set()
            break
        opened.wait(0.01)
    assert opened.is_set()
    server.request_stop()
    stepping = threading.Event()
    for _ in range(1000):  # the data plane's own threads, here
        plane.step()
        thread.join(0.01)
        if not thread.is_alive():
            stepping.set()
            break
    assert stepping.is_set()
    assert server.phase is Phase.STOPPED
    assert etcd.range(keys.capture_prefix(CLUSTER), prefix=True).kvs == ()
