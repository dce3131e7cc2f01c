"""Captures of one process that run jobs: a real etcd, real gRPC, and units that copy nothing.

Each server has a thread of its own; one more thread moves the units of all captures. What the units
have done lies in one `Copies`, which refuses what must never be (J1 to J3)."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from conf.settings import EtcdSettings, SessionSettings, TransportSettings
from coordination.capture.context import CaptureContext
from coordination.capture.leader import LeaderReactor
from coordination.capture.reset_limit import ResetLimit
from coordination.capture.server import CaptureServer
from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.etcd.client import EtcdClient
from coordination.etcd.etcd3_client import connect
from coordination.jobmaster.job_master import Pace as JobsPace
from coordination.jobmaster.job_operator import JobOperator
from coordination.jobmaster.jobs_state import read_jobs
from coordination.jobmaster.records import Job, UnitState
from coordination.jobmaster.units import Unit
from coordination.model import CaptureID, JobID, TaskID
from coordination.transport.grpc_transport import GrpcTransport
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from tests.coordination.jobmaster.jobs import COPY, T1
from tests.fakes.fake_data_plane import FakeDataPlane, Pace
from tests.fakes.fake_units import Copies, Copy, FakeUnit
from tests.fakes.fake_warehouse import FakeWarehouse
from tests.services.message_proxy import MessageProxy

CLOCK = SystemClock()
GRACE_S = 1.0
PATIENCE_S = 60.0
STEP_S = 0.01


@dataclass
class LiveCapture:
    server: CaptureServer
    plane: FakeDataPlane
    client: EtcdClient
    transport: GrpcTransport
    proxy: MessageProxy | None
    thread: threading.Thread
    error: list[BaseException]

    @property
    def id(self) -> CaptureID:
        capture = self.server.capture
        return capture.id if capture is not None else CaptureID("")

    @property
    def leader(self) -> LeaderReactor | None:
        capture = self.server.capture
        leading = capture._leadership._leader if capture is not None else None
        return leading.reactor if leading is not None else None

    @property
    def leads(self) -> bool:
        capture = self.server.capture
        return capture is not None and capture.owner is not None

    @property
    def units(self) -> list[FakeUnit]:
        """Those that have not ended."""
        return [each for units in self.plane.unit_sets for each in list(units.opened)]


class LiveCaptures:
    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.cluster_id = f"c{uuid.uuid4().hex}"
        self.copies = Copies()
        self.captures: dict[str, LiveCapture] = {}
        self.most_chunks: dict[Unit, int] = {}  # units of these stop there
        self.client = self._connect()
        self.operator = JobOperator(self.client, self.cluster_id)
        self._clients = [self.client]
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._mover = threading.Thread(target=self._move, daemon=True)
        self._mover.start()

    def _connect(self) -> EtcdClient:
        return connect(EtcdSettings(endpoints=(self._endpoint,), embedded=False))

    def start(
        self,
        node: str,
        *,
        loss: float = 0.0,
        stall_timeout_s: float = 20.0,
        leads_jobs: bool = True,
        plane: type[FakeDataPlane] = FakeDataPlane,
    ) -> LiveCapture:
        """``loss``: of the messages to this capture, by chance."""
        woken, servers = threading.Event(), list[CaptureServer]()
        transport = GrpcTransport(
            TransportSettings(addr="127.0.0.1:0"),
            resolve=lambda each: servers[0].address_of(each) if servers else None,
            wake=woken.set,
        )
        address, proxy = transport.start(), None
        if loss:
            proxy = MessageProxy(address, loss=loss, seed=len(self.captures))
            address = proxy.start()
        made = plane(
            _no_warehouse,
            rng=random.Random(node),
            now=CLOCK.monotonic,
            pace=Pace(),
            copies=self.copies,
            node=node,
        )
        made.holds_unit = self._holds
        client = self._connect()
        self._clients.append(client)
        context = CaptureContext(
            client=client,
            cluster_id=self.cluster_id,
            session=SessionSettings(
                ttl_s=2, safety_margin_s=0.5, stall_timeout_s=stall_timeout_s, answer_timeout_s=20.0
            ),
            clock=CLOCK,
            fence=Fence(CLOCK),
            watchdog=Watchdog(CLOCK),
            transport=transport,
            data_plane=made,
            address=address,
            version="1.0.0",
            removal_grace_s=GRACE_S,
            leads_jobs=leads_jobs,
            jobs_pace=JobsPace(heartbeat_s=0.3, normal_interval_s=1.0, error_interval_s=0.3),
            woken=woken,
        )
        server = CaptureServer(context, reset_limit=ResetLimit(interval_s=0.2), drain_s=10.0)
        servers.append(server)
        errors: list[BaseException] = []
        thread = threading.Thread(target=_run, args=(server, errors), daemon=True)
        capture = LiveCapture(server, made, client, transport, proxy, thread, errors)
        self.captures[node] = capture
        thread.start()
        return capture

    def start_two(self) -> tuple[LiveCapture, LiveCapture]:
        """The first one leads."""
        one = self.start("a")
        self.until(lambda: one.leads)
        two = self.start("b")
        self.until(lambda: two.id in self.registered)
        return one, two

    @property
    def registered(self) -> set[str]:
        prefix = keys.capture_prefix(self.cluster_id)
        return {kv.key.removeprefix(prefix) for kv in self.client.range(prefix, prefix=True).kvs}

    def kill(self, capture: LiveCapture) -> None:
        """As kill -9: from now on nothing of it moves or is heard."""
        self.captures = {k: each for k, each in self.captures.items() if each is not capture}
        capture.client.close()
        _close_lines(capture)
        capture.server.request_stop()

    def stop(self, capture: LiveCapture) -> None:
        """In order; returns when it has ended."""
        capture.server.request_stop()
        capture.thread.join(PATIENCE_S)
        assert not capture.thread.is_alive()
        self.captures = {k: each for k, each in self.captures.items() if each is not capture}
        _close_lines(capture)

    def lose_session(self, capture: LiveCapture) -> None:
        found = capture.server.capture
        assert found is not None
        self.client.revoke(found.session.lease)

    def close(self) -> None:
        self.most_chunks.clear()
        for capture in list(self.captures.values()):
            self.stop(capture)
        self._stopping.set()
        self._mover.join(PATIENCE_S)
        for client in self._clients:
            client.close()
        if self._error is not None:
            raise self._error

    def _holds(self, unit: FakeUnit) -> bool:
        most = self.most_chunks.get(unit.order.unit)
        return most is not None and unit.copy.done.get(unit.order.unit, 0) >= most

    def _move(self) -> None:
        try:
            while not self._stopping.wait(STEP_S):
                for capture in list(self.captures.values()):
                    capture.plane.step()
        except BaseException as error:  # noqa: BLE001 - of an invariant: the test's
            self._error = error

    def until(self, reached: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not reached():
            if self._error is not None:
                raise self._error
            assert time.monotonic() < deadline_s, "it does not come"
            time.sleep(0.02)

    # What is there.

    def copy(self, task_id: TaskID = T1, job_id: JobID = COPY) -> Copy:
        with self.copies.lock:
            return self.copies.latest(job_id, task_id)

    def unit_state(self, job_id: JobID = COPY) -> UnitState:
        found = read_jobs(self.client, self.cluster_id).get(job_id)
        state = found.unit_state if found is not None else UnitState()
        assert isinstance(state, UnitState)
        return state

    def job(self, job_id: JobID = COPY) -> Job | None:
        found = read_jobs(self.client, self.cluster_id).get(job_id)
        job = found.job if found is not None else None
        assert job is None or isinstance(job, Job)
        return job

    def finished(self, task_id: TaskID = T1) -> list[Unit]:
        return [each.unit for each in self.unit_state().finished.get(task_id, ())]

    def where(self, task_id: TaskID = T1) -> LiveCapture:
        """The capture that has the task's worker."""
        at = self.unit_state().current[task_id].capture
        return next(each for each in self.captures.values() if each.id == at)


def _run(server: CaptureServer, errors: list[BaseException]) -> None:
    try:
        server.run()
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        errors.append(error)


def _close_lines(capture: LiveCapture) -> None:
    if capture.proxy is not None:
        capture.proxy.close()
    with suppress(TidelakeError):
        capture.transport.close()


def _no_warehouse(_changefeed_id: object) -> FakeWarehouse:
    raise AssertionError("there are no changefeeds")
