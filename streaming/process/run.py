"""The parts of `tidelake run`: etcd client, Spark and capture, started and ended in order.
`server.py` uses the parts too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from conf.settings import EtcdSettings, Settings
from coordination.etcd.client import EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import check_cluster_id
from coordination.transport.grpc_calls import check_free
from streaming.changefeed.preflight import (
    check_changefeed,
    ends_with_copy,
    has_finished,
    to_its_end,
)
from streaming.process.reload_watch import ReloadWatch
from streaming.process.signals import asking, handling
from streaming.spark.jvm import DriverJvm
from streaming.spark.light_imports import importing
from streaming.spark.session import SparkOnDemand

logger = logging.getLogger(__name__)


def run(settings: Settings, jvm: DriverJvm) -> int:
    """Be one capture until its changefeed finishes or a stop is asked for; returns the exit code.

    ``jvm`` was launched, unless Spark is here already. The settings that can be wrong (URI, topic,
    broker) are checked while it comes up.
    """
    with ExitStack() as stack:
        check_changefeed(settings.changefeed)
        settings = replace(settings, changefeed=to_its_end(settings.changefeed))
        check_cluster_id(settings.etcd.cluster_id)
        check_free(settings.transport.addr)
        is_to_copy_alone = ends_with_copy(settings.changefeed)
        is_to_read = not (is_to_copy_alone or has_finished(settings.changefeed))
        if not is_to_read:
            jvm.stop()
        spark = SparkOnDemand(jvm=jvm if is_to_read else DriverJvm())
        stack.callback(spark.stop)
        if is_to_read:
            spark.begin()
        with importing():
            from streaming.process.copy_first import copy_first

        begun = replace(settings, changefeed=copy_first(settings.changefeed))
        if is_to_copy_alone:
            return 0
        etcd, client = stack.enter_context(connected_etcd(settings.etcd))
        with importing():
            from streaming.jobs.on_spark import SparkOfProcess
            from streaming.process.run_capture import RunCapture

        while True:
            capture = RunCapture(
                begun, client=client, cluster_id=etcd.cluster_id, engine=SparkOfProcess(spark)
            )
            orders = ReloadWatch(settings.changefeed, capture.request_stop)
            with handling(asking(orders.stop)), orders:
                capture.run(is_host=settings.etcd.embedded)
            if not orders.interrupts:
                return 0
            begun = replace(settings, changefeed=copy_first(settings.changefeed))


@contextmanager
def connected_etcd(settings: EtcdSettings) -> Iterator[tuple[EtcdSettings, EtcdClient]]:
    """A client of the etcd in the settings, and the settings that lead to it. An embedded etcd is
    started here, and ended with the context. Raises ConfigError or TidelakeError."""
    check_cluster_id(settings.cluster_id)
    with ExitStack() as stack:
        if settings.embedded:
            embedded = stack.enter_context(EmbeddedEtcd())
            embedded.keep_up()
            settings = replace(settings, endpoints=(embedded.endpoint,), embedded=False)
        client = connect(settings)
        stack.callback(client.close)
        yield settings, client
