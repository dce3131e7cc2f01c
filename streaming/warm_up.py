"""A standby loads and compiles what a first batch needs while it waits.

A JVM's first query costs seconds of class loading and compiling. Who is alone has them in its first
batch: a query more, before it, would only cost more."""

from __future__ import annotations

import logging
import threading
from contextlib import closing, suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from conf.settings import KafkaSource
from coordination.errors import TidelakeError
from coordination.model import TableName, Ts
from sinks.schema import Column, MySQLType, TableSchema
from streaming.cells import CastRules
from streaming.due import TableTask
from streaming.events import KAFKA_COLUMNS, Decoder
from streaming.segments import TableCount, read_segment
from streaming.session import SparkOnDemand
from streaming.small_tables import SmallTables
from streaming.source.kafka import Source

logger = logging.getLogger(__name__)

_NOTHING = TableName("", "nothing")
_NO_ROWS = TableCount(rows=0, min_ts=0, max_ts=0, key_updates=0)
_TYPES = ("bigint", "varchar(8)", "decimal(10,2)", "datetime(6)", "timestamp", "double", "int")


class WarmUp:
    """Once, on a thread of its own, with nothing that the stream uses but the session, which it
    starts.
    """

    def __init__(self, spark: SparkOnDemand, settings: KafkaSource, decoder: Decoder) -> None:
        self._work = (spark, settings, decoder)
        self._has_begun = False

    def begin(self) -> None:
        """Returns at once."""
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._run, name="warm-up", daemon=True).start()

    def _run(self) -> None:
        spark, settings, decoder = self._work
        with suppress(PySparkException, Py4JError, OSError), closing(Source(settings)) as source:
            try:
                warm_up(spark(), source, decoder)
            except TidelakeError as error:  # to be mended before this capture is the owner
                logger.warning("the standby is not warm: %s", error)


def warm_up(spark: SparkSession, source: Source, decoder: Decoder) -> None:
    """Read no message at all from Kafka's end, decode it, and resolve it."""
    ends = source.ends(source.shape().partitions)
    messages = source.read(spark, ends, ends).select(*KAFKA_COLUMNS)
    segment = read_segment(decoder(messages, {_NOTHING: ("c0",)}))
    columns = tuple(
        Column(name=f"c{number}", type=MySQLType.parse(text)) for number, text in enumerate(_TYPES)
    )
    task = TableTask(
        name=_NOTHING,
        schema=TableSchema(columns=columns, key=("c0",)),
        checkpoint=Ts(0),
        segments=(replace(segment, tables={_NOTHING: _NO_ROWS}),),
    )
    try:
        SmallTables(CastRules(time_zone="UTC", zero_date="null")).resolve([task], Ts(1)).read()
    finally:
        segment.frame.unpersist()
