"""Messages whose keys have facts come with them: in a read, and when they are read once more."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from streaming.protocols.contract import Kind, Messages, with_key
from streaming.protocols.decoders import decoder_of
from streaming.source.kafka.consumer import RangeConsumer
from streaming.source.kafka.message_bytes import values_at
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import read_list
from streaming.source.kafka.topic_partition import TopicPartition
from tests.services import wire
from tests.services.kafka_broker import KafkaBroker
from tests.streaming.protocols.canal_json.reading import EveryTable, plain
from tests.streaming.source.kafka.test_message_bytes import source_of, topic_ids

pytestmark = pytest.mark.kafka
SETTINGS = {"client.id": "tests", "group.id": "tests"}


def test_a_batch_is_read_with_its_key(broker: KafkaBroker) -> None:
    topic = wire.produce(broker, "open-protocol", topic=f"keyed-{uuid.uuid4().hex[:8]}")
    decode = decoder_of("open-protocol")
    kafka = replace(source_of(broker, topic), protocol="open-protocol")
    ids = topic_ids(kafka)
    with closing(RangeConsumer({**SETTINGS, "bootstrap.servers": broker.bootstrap})) as consumer:
        for partition, sent in wire.partitions("open-protocol").items():
            values = [with_key(each.key, each.value) for each in sent]
            offsets = pa.array(range(len(sent)), pa.int64())
            part = f"{topic}/{partition}"
            chunk = Messages(part=part, positions=offsets, values=pa.array(values, pa.binary()))
            wanted = EveryTable(None)
            whole = OffsetRange(topic, ids[topic], partition, 0, len(sent))
            found = [b for each in read_list(consumer, [whole], decode, wanted) for b in each]
            blocks = [block for block in found if block.kind is not Kind.DONE]
            assert plain(blocks) == plain(list(decode(chunk, wanted)))
            (table,) = values_at(kafka, {TopicPartition(topic, partition): [0, 7]}, ids)
            assert table["value"].to_pylist() == [values[0], values[7]]
