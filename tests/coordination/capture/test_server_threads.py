"""The blocking loop around a server's turns, with real threads and a real clock."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

from conf.settings import SessionSettings
from coordination.capture.context import CaptureContext
from coordination.capture.server import CaptureServer, Phase
from coordination.etcd import keys
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.records import ChangefeedInfo
from coordination.orchestrator.commit_once import commit_once
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from tests.fakes.fake_data_plane import FakeDataPlane, Pace
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_source import FakeSource
from tests.fakes.fake_transport import FakeNetwork, FakeTransport
from tests.fakes.fake_warehouse import FakeWarehouse
from tests.simulation.feeds import CLUSTER, NAME


def test_a_server_runs_until_it_is_asked_to_stop() -> None:
    clock, woken = SystemClock(), threading.Event()
    etcd = FakeEtcd(clock)
    source = FakeSource(0.0)
    rng = random.Random(1)
    warehouse = FakeWarehouse(source, None, 6.0)
    plane = FakeDataPlane(lambda _: warehouse, rng=rng, now=clock.monotonic, pace=Pace(slow_s=0.0))
    info = ChangefeedInfo(id=NAME.id)
    commit_once(etcd, [create_writes(CLUSTER, info)], keys.delete_counter_key(CLUSTER))
    context = CaptureContext(
        client=etcd,
        cluster_id=CLUSTER,
        session=SessionSettings(),
        clock=clock,
        fence=Fence(clock),
        watchdog=Watchdog(clock),
        transport=FakeTransport(FakeNetwork(rng), "n1", woken.set),
        data_plane=plane,
        address="n1",
        version="1.0.0",
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


WEDGED = """
import threading
from conf.settings import SessionSettings
from coordination.capture import server
from coordination.trust import watchdog
from coordination.capture.context import CaptureContext
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from tests.fakes.fake_etcd import FakeEtcd

class Plane:
    def units(self, _): pass

class Transport:
    def receive(self): threading.Event().wait()
    def set_self(self, _): pass

clock = SystemClock()
watchdog.LOOK_S = 0.05
context = CaptureContext(
    client=FakeEtcd(clock), cluster_id="default", session=SessionSettings(answer_timeout_s=0.2),
    clock=clock, fence=Fence(clock), watchdog=watchdog.Watchdog(clock), transport=Transport(),
    data_plane=Plane(), address="n1",
)
wedged = server.CaptureServer(context)
server.STOP_AFTER_SUICIDE_S = 0.2
threading.Timer(0.1, wedged.request_stop).start()
wedged.run()
"""


def test_a_loop_that_hangs_itself_ends_the_process_with_exit_code_1_and_one_line() -> None:
    """Its session lets go of the lease; nobody else could end the process."""
    ended = subprocess.run(
        [sys.executable, "-c", WEDGED], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "the coordination loop hangs: no step for" in ended.stderr
    assert "so this process ends" in ended.stderr
    assert "Traceback" not in ended.stderr
