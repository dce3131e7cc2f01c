"""Load and compile what a first batch needs before the election, not after it.

A JVM's first query costs seconds of class loading and compiling. A standby has the time; a capture
that is alone pays the same a little earlier."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from coordination.model import TableName, Ts
from sinks.schema import Column, MySQLType, TableSchema
from streaming.cells import CastRules
from streaming.due import TableTask
from streaming.events import KAFKA_COLUMNS, Decoder
from streaming.segments import TableCount, read_segment
from streaming.small_tables import SmallTables
from streaming.source import Source

_NOTHING = TableName("", "nothing")
_NO_ROWS = TableCount(rows=0, min_ts=0, max_ts=0, key_updates=0)
_TYPES = ("bigint", "varchar(8)", "decimal(10,2)", "datetime(6)", "timestamp", "double", "int")


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
