"""The one place that builds real things: clients, session, threads; and their order of start and
end.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType
from typing import Protocol

from conf.settings import EtcdSettings, Settings
from coordination.capture import Capture
from coordination.clock import SystemClock
from coordination.errors import Stop
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.fence import Fence
from coordination.model import CaptureID, ProcessorEpoch
from coordination.secrets import revealed_options
from sinks.changefeeds import Changefeeds
from sinks.dead_letters import DeadLetters
from sinks.progress import Progress
from sinks.snapshots import Snapshots
from streaming import logs
from streaming.application import Application
from streaming.cluster.neighbours import refuse_a_clusters
from streaming.preflight import check_changefeed
from streaming.protocols.canal_json_sql import CanalJson
from streaming.record import ControlTables
from streaming.scratch import scratch
from streaming.session import SparkOnDemand
from streaming.source.kafka import Source
from streaming.warm_up import WarmUp

logger = logging.getLogger(__name__)


class Stoppable(Protocol):
    """What can be asked to end from a signal handler."""

    def request_stop(self) -> None: ...


SignalHandler = Callable[[int, FrameType | None], None]


def run(settings: Settings) -> int:
    """Be one capture until its changefeed finishes or a stop is asked for; the exit code.

    What can be wrong from the start (URI, topic, broker, etcd, offsets that Kafka has no more) is
    found before Spark starts.
    """
    with ExitStack() as stack:
        stack.enter_context(handling(stop_before_start))
        stack.enter_context(scratch())
        source = Source(settings.changefeed.source)
        stack.callback(source.close)
        check_changefeed(settings.changefeed)
        sink = settings.changefeed.sink
        etcd, client = stack.enter_context(connected_etcd(settings.etcd))
        spark = SparkOnDemand()
        stack.callback(spark.stop)
        clock = SystemClock()
        fence = Fence(clock)
        options = revealed_options(sink.storage_options)
        application = Application(
            settings=settings,
            spark=spark,
            fence=fence,
            source=source,
            decoder=CanalJson(),
            tables=ControlTables(
                changefeeds=Changefeeds(sink.warehouse, options),
                progress=Progress(sink.warehouse, options),
                snapshots=Snapshots(sink.warehouse, options),
            ),
            dead_letters=DeadLetters(sink.warehouse, options),
        )
        capture = Capture(
            client=client,
            etcd=etcd,
            session=settings.session,
            changefeed_id=settings.changefeed.id,
            replication=application,
            fence=fence,
            clock=clock,
            address=socket.gethostname(),
            warehouse=sink.warehouse,
            admitted=lambda: refuse_a_clusters(
                client, etcd.cluster_id, settings.changefeed.id, sink.warehouse
            ),
            on_reset=_identify,
            on_standby=WarmUp(spark, settings.changefeed.source, CanalJson()).begin,
        )
        stack.enter_context(handling(asking(capture)))
        capture.run()
    return 0


def stop_before_start(number: int, _frame: FrameType | None) -> None:
    """Nothing has been claimed yet: leave from wherever the main thread is."""
    logger.info("asked to stop before the start signal=%s", signal.Signals(number).name)
    raise Stop("asked to stop before the start")


def asking(capture: Stoppable) -> SignalHandler:
    def asked(number: int, _frame: FrameType | None) -> None:
        logger.info("asked to stop signal=%s", signal.Signals(number).name)
        capture.request_stop()

    return asked


def _identify(capture_id: CaptureID, epoch: ProcessorEpoch) -> None:
    logs.identity.capture_id = capture_id
    logs.identity.epoch = epoch


@contextmanager
def connected_etcd(settings: EtcdSettings) -> Iterator[tuple[EtcdSettings, EtcdClient]]:
    """A client of the etcd that was asked for, which is started here if it is the embedded one."""
    with ExitStack() as stack:
        if settings.embedded:
            embedded = stack.enter_context(EmbeddedEtcd())
            settings = replace(settings, endpoints=(embedded.endpoint,), embedded=False)
        client = connect(settings)
        stack.callback(client.close)
        yield settings, client


@contextmanager
def handling(handler: SignalHandler) -> Iterator[None]:
    """SIGTERM and SIGINT go to the handler meanwhile. Spark's start puts in a SIGINT one of its
    own.
    """
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
