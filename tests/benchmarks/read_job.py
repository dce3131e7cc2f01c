"""The process of (d) that reads and decodes a topic through Spark and does nothing with it.

It tells when each pass began and ended: what the processes around it used meanwhile is the price
of Spark jobs, worker processes and blocks on their way.
"""

from __future__ import annotations

import argparse
import time

from conf.source_uri import parse_source_uri
from coordination.model import TableName, Ts
from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.contract import Kind, WantedTable
from streaming.source.kafka.broker import KafkaSource
from streaming.source.kafka.offset_ranges import cut
from streaming.source.kafka.spark_reader import SparkReader
from streaming.source.positions import TopicPartition
from streaming.spark.jvm import DriverJvm
from streaming.spark.session import spark_session
from tests.benchmarks.measure import tell

REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source-uri", required=True)
    parser.add_argument("--tables", required=True, type=lambda text: text.split(","))
    args = parser.parse_args()
    kafka = parse_source_uri(args.source_uri)
    wanted = {
        TableName(*name.split(".")): WantedTable(above_ts=Ts(0), key=("id",))
        for name in args.tables
    }
    source = KafkaSource(kafka)
    shape = source.shape()
    ends = source.ends(shape.partitions)
    source.close()
    spark = spark_session(DriverJvm())
    reader = SparkReader(spark.sparkContext, kafka, decode)
    for _ in range(REPEATS):
        at: dict[TopicPartition, int] = dict.fromkeys(ends, 0)
        first, jobs = time.time(), 0
        while ranges := cut(at, ends, shape.topic_ids, messages=reader.messages):
            jobs += 1
            for block in reader.read(ranges, wanted):
                if block.kind is Kind.DONE:
                    at[TopicPartition(block.topic, block.partition)] = block.last
        tell("pass", first=first, last=time.time(), messages=sum(ends.values()), jobs=jobs)
    reader.close()
    spark.stop()


if __name__ == "__main__":
    main()
