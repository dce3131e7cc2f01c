"""How a `run` begins and ends, over an etcd and a data plane in memory; its threads are real."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from conf.settings import Changefeed, DeltaSink, SessionSettings, Settings, TransportSettings
from conf.sources.kafka_uri import KafkaSettings
from coordination.capture.context import CaptureContext
from coordination.capture.server import CaptureServer
from coordination.errors import ConfigError, TidelakeError
from coordination.etcd import keys
from coordination.metadata.changefeed_writes import create_writes
from coordination.metadata.lookup import read_captures, read_changefeeds
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID
from coordination.orchestrator.commit_once import commit_once
from coordination.ports import ShownState
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from streaming.changefeed.settings_in_etcd import changefeed_config
from streaming.jobs.on_spark import SparkOfProcess
from streaming.process.run_capture import RunCapture
from streaming.spark.session import SparkOnDemand
from tests.fakes.fake_data_plane import FakeDataPlane, Pace
from tests.fakes.fake_etcd import FakeEtcd
from tests.fakes.fake_source import FakeSource, ts_at
from tests.fakes.fake_transport import FakeNetwork, FakeTransport
from tests.fakes.fake_warehouse import FakeWarehouse

CLUSTER = "default"
SHOP = ChangefeedID("shop")
SCOPE = keys.run_scope(CLUSTER, SHOP)
WAREHOUSE = "/lake"
PATIENCE_S = 90.0
SOURCE = KafkaSettings(
    brokers=("b:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=None
)


class Plane(FakeDataPlane):
    """Says at once how a changefeed stands."""

    shown: ShownState | None = None

    def show(self, *named: Any) -> None:
        super().show(*named)
        self.shown = next(each for each in named if isinstance(each, ShownState))

    def has_shown(self, changefeed_id: ChangefeedID, state: FeedState) -> bool:
        del changefeed_id
        return self.shown is not None and self.shown.state is state


def no_spark() -> Any:
    raise AssertionError("Spark is not wanted here")


class Ground:
    """One etcd and one warehouse for all `run`s of a changefeed."""

    def __init__(self, etcd: FakeEtcd | None = None) -> None:
        self.clock = SystemClock()
        self.etcd = etcd or FakeEtcd(self.clock)
        began_at = self.clock.monotonic()
        self.source = FakeSource(began_at)
        for number in range(1, 5):
            table = self.source.add_table(number)
            self.source.fill(table, random.Random(number), began_at + 0.1, began_at + 1)
        self.warehouse = FakeWarehouse(self.source, None, 6.0)
        self.runs: list[Run] = []

    def settings(self, **changes: Any) -> Settings:
        shop = Changefeed(id=SHOP, source=SOURCE, sink=DeltaSink(warehouse=WAREHOUSE), **changes)
        self.warehouse.aim_at(changes.get("target_ts"))
        session = SessionSettings(ttl_s=2, safety_margin_s=0.5)
        return Settings(changefeed=shop, session=session)

    def plane(self) -> Plane:
        return Plane(
            lambda _changefeed_id: self.warehouse,
            rng=random.Random(len(self.runs)),
            now=self.clock.monotonic,
            pace=Pace(slow_s=0.0, commit_s=0.1),
        )

    def in_s(self, seconds: float) -> int:
        return ts_at(self.clock.monotonic() + seconds)

    def run(self, settings: Settings | None = None) -> Run:
        self.runs.append(Run(self, settings or self.settings()))
        return self.runs[-1]

    def keys(self) -> list[str]:
        return [kv.key for kv in self.etcd.range(f"/tidelake/{SCOPE}/", prefix=True).kvs]


class Run:
    """One, in a thread; another steps its data plane."""

    def __init__(self, ground: Ground, settings: Settings) -> None:
        self.plane = ground.plane()
        self.jvm_ended: Callable[[], None] = lambda: None

        def open_plane(*_: object, jvm_ended: Callable[[], None], **_named: object) -> Plane:
            self.jvm_ended = jvm_ended
            return self.plane

        self._capture = RunCapture(
            settings,
            client=ground.etcd,
            cluster_id=CLUSTER,
            engine=SparkOfProcess(SparkOnDemand(no_spark)),
            open_plane=open_plane,
            drain_s=3.0,  # a capture that answers takes them within one
        )
        self._error: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        threading.Thread(target=self._step, daemon=True).start()

    def _run(self) -> None:
        try:
            self._capture.run()
        except BaseException as error:  # noqa: BLE001  # for the test to look at
            self._error = error
        self._ended.set()

    def _step(self) -> None:
        while not self._ended.wait(0.01):
            self.plane.step()

    @property
    def span_count(self) -> int:
        return sum(each.get_table_span_count() for each in self.plane.replicas)

    def await_(self, what: str, is_so: Callable[[], object]) -> None:
        waiting = threading.Event()
        for _ in range(int(PATIENCE_S / 0.02)):
            if is_so():
                return
            assert not self._ended.is_set(), f"ended before {what}: {self._error!r}"
            waiting.wait(0.02)
        raise AssertionError(what)

    def end(self) -> BaseException | None:
        """How it ends by itself."""
        assert self._ended.wait(PATIENCE_S), "it goes on and on"
        return self._error

    def stop(self) -> BaseException | None:
        self._capture.request_stop()
        return self.end()


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    for run in made.runs:
        run.stop()


def test_at_its_target_it_ends_and_leaves_nothing_in_etcd(ground: Ground) -> None:
    run = ground.run(ground.settings(target_ts=ground.in_s(1.0)))
    assert run.end() is None
    assert ground.keys() == []
    assert ground.warehouse.shown is None or ground.warehouse.shown.state is FeedState.FINISHED


def test_a_stop_is_no_failure_and_no_end_of_the_changefeed(ground: Ground) -> None:
    run = ground.run()
    run.await_("its tables", lambda: run.span_count == 4)
    assert run.stop() is None
    assert read_changefeeds(ground.etcd, SCOPE)[0].known_info.state is FeedState.NORMAL


def test_two_of_one_changefeed_share_its_tables_and_end_with_it(ground: Ground) -> None:
    settings = ground.settings(target_ts=ground.in_s(6.0))
    one, two = ground.run(settings), ground.run(settings)
    one.await_("all tables", lambda: one.span_count + two.span_count == 4)
    one.await_("both have some", lambda: one.span_count and two.span_count)
    assert (one.end(), two.end()) == (None, None)
    assert ground.keys() == []


def test_another_one_goes_on_when_the_first_is_stopped(ground: Ground) -> None:
    one = ground.run()
    one.await_("its tables", lambda: one.span_count == 4)
    two = ground.run()
    two.await_("its replica", lambda: two.plane.replicas)
    assert one.stop() is None
    two.await_("all tables", lambda: two.span_count == 4)


def test_other_arguments_beside_one_that_lives_are_refused(ground: Ground) -> None:
    one = ground.run()
    one.await_("its tables", lambda: one.span_count == 4)
    two = ground.run(ground.settings(on_error="fail"))
    error = two.end()
    assert isinstance(error, ConfigError)
    assert "on-error is dead-letter there and fail here" in str(error)
    assert one.span_count == 4
    assert one.stop() is None


def test_an_error_is_final_and_said(ground: Ground) -> None:
    one = ground.run()
    one.await_("its tables", lambda: one.span_count == 4)
    two = ground.run()
    two.await_("its replica", lambda: two.plane.replicas)
    one.plane.fails_at = two.plane.fails_at = ground.clock.monotonic()
    errors = [one.end(), two.end()]
    assert all(isinstance(error, TidelakeError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1
    assert ground.warehouse.shown is not None
    assert ground.warehouse.shown.state is FeedState.FAILED
    again = ground.run(ground.settings(target_ts=ground.in_s(1.0)))
    assert again.end() is None


def test_what_a_cluster_has_is_the_clusters(ground: Ground) -> None:
    config = changefeed_config({}, delta_uri=f"delta://{WAREHOUSE}")
    info = ChangefeedInfo(id=SHOP, config=config)
    counter = keys.delete_counter_key(CLUSTER)
    commit_once(ground.etcd, [create_writes(CLUSTER, info)], counter)
    error = ground.run().end()
    assert isinstance(error, ConfigError)
    assert "belongs to the captures of cluster default" in str(error)
    assert not ground.runs[0].plane.replicas


def test_a_jvm_that_is_gone_ends_it_with_an_error_unless_it_was_asked_to_stop(
    ground: Ground,
) -> None:
    run = ground.run()
    run.await_("its tables", lambda: run.span_count == 4)
    run.jvm_ended()
    assert "Spark has ended" in str(run.end())
    run = ground.run()
    run.await_("its tables", lambda: run.span_count == 4)
    run._capture.request_stop()
    run.jvm_ended()
    assert run.end() is None


def test_one_that_nobody_reaches_gets_no_tables_and_goes_on_with_them_when_it_leads(
    ground: Ground,
) -> None:
    nowhere = TransportSettings(addr="127.0.0.1:0", advertise_addr="127.0.0.1:9")
    one = ground.run()
    one.await_("its tables", lambda: one.span_count == 4)
    two = ground.run(replace(ground.settings(), transport=nowhere))
    two.await_("its replica", lambda: two.plane.replicas)
    one.await_("the tables stay", lambda: one.span_count == 4)
    ground.source.add_table(5)
    threading.Event().wait(4.0)
    assert two.span_count == 0
    one.stop()
    two.await_("all tables", lambda: two.span_count >= 4)


def test_beside_a_clusters_capture_each_replicates_its_own(ground: Ground) -> None:
    """On one etcd, under one cluster ID: neither owner counts on the other's captures."""
    mall = Ground(ground.etcd)
    info = ChangefeedInfo(id=ChangefeedID("mall"))
    counter = keys.delete_counter_key(CLUSTER)
    commit_once(ground.etcd, [create_writes(CLUSTER, info)], counter)
    run = ground.run()
    run.await_("its tables", lambda: run.span_count == 4)
    plane, woken = mall.plane(), threading.Event()
    context = CaptureContext(
        client=ground.etcd,
        cluster_id=CLUSTER,
        session=SessionSettings(),
        clock=mall.clock,
        fence=Fence(mall.clock),
        watchdog=Watchdog(mall.clock),
        transport=FakeTransport(FakeNetwork(random.Random(1)), "n1", woken.set),
        data_plane=plane,
        address="n1",
        version="another",  # captures of one cluster must have the same
        woken=woken,
    )
    server = CaptureServer(context)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def serves() -> bool:
        plane.step()
        return any(each.get_table_span_count() == 4 for each in plane.replicas)

    run.await_("the cluster's tables", serves)
    assert run.span_count == 4
    assert [each.address for each in read_captures(ground.etcd, CLUSTER)] == ["n1"]
    server.request_stop()
    run.await_("the server's end", lambda: plane.step() or not thread.is_alive())
    assert run.span_count == 4
