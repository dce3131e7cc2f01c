"""Start of `tidelake run`: builds etcd client, Spark and capture, and starts and ends them in
order. `serve.py` uses the parts too.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FrameType

from conf.settings import EtcdSettings, Settings
from coordination.errors import Stop
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import check_cluster_id
from coordination.scheduler.grpc_calls import check_free
from streaming.preflight import check_changefeed, has_finished
from streaming.scratch import scratch
from streaming.session import SparkOnDemand

logger = logging.getLogger(__name__)


SignalHandler = Callable[[int, FrameType | None], None]


def run(settings: Settings) -> int:
    """Be one capture until its changefeed finishes or a stop is asked for; returns the exit code.

    What can be wrong at the start (URI, topic, broker, etcd) is checked before Spark starts.
    """
    with ExitStack() as stack:
        stack.enter_context(handling(stop_before_start))
        stack.enter_context(scratch())
        check_changefeed(settings.changefeed)
        check_cluster_id(settings.etcd.cluster_id)
        check_free(settings.transport.addr)
        spark = SparkOnDemand()
        stack.callback(spark.stop)
        is_to_read = not has_finished(settings.changefeed)
        # As soon as nothing can be wrong any more, since Spark starts slower than all else until it
        # is needed: an embedded etcd and the imports below take a second of that time.
        if is_to_read and settings.etcd.embedded:
            spark.begin()
        etcd, client = stack.enter_context(connected_etcd(settings.etcd))
        if is_to_read:
            spark.begin()
        from streaming.run_capture import RunCapture

        capture = RunCapture(settings, client=client, cluster_id=etcd.cluster_id, spark=spark)
        stack.enter_context(handling(asking(capture.request_stop)))
        capture.run(is_host=settings.etcd.embedded)
    return 0


def stop_before_start(number: int, _frame: FrameType | None) -> None:
    """The signal handler before the capture runs. Nothing has been claimed yet, so it raises Stop
    wherever the main thread is."""
    logger.info("asked to stop before the start signal=%s", signal.Signals(number).name)
    raise Stop("asked to stop before the start")


def asking(request_stop: Callable[[], None]) -> SignalHandler:
    def asked(number: int, _frame: FrameType | None) -> None:
        logger.info("asked to stop signal=%s", signal.Signals(number).name)
        request_stop()

    return asked


@contextmanager
def connected_etcd(settings: EtcdSettings) -> Iterator[tuple[EtcdSettings, EtcdClient]]:
    """A client of the etcd in the settings, and the settings that lead to it. An embedded etcd is
    started here, and ended with the context. Raises ConfigError or TidelakeError."""
    check_cluster_id(settings.cluster_id)
    with ExitStack() as stack:
        if settings.embedded:
            embedded = stack.enter_context(EmbeddedEtcd())
            settings = replace(settings, endpoints=(embedded.endpoint,), embedded=False)
        client = connect(settings)
        stack.callback(client.close)
        yield settings, client


@contextmanager
def handling(handler: SignalHandler) -> Iterator[None]:
    """Inside, SIGTERM and SIGINT go to the handler. (Spark's start sets a SIGINT handler of its
    own.)
    """
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
