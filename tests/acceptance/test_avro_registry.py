"""TiCDC's avro with a topic for each table in Kafka, and with a real schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.acceptance.test_avro import NEEDED
from tests.services import wire
from tests.services.apicurio import Apicurio
from tests.services.kafka_broker import KafkaBroker
from tests.services.registry_package import program
from tests.services.topic_producer import Outgoing

pytestmark = pytest.mark.acceptance


def test_each_table_has_a_topic_in_kafka_and_a_real_registry_has_the_schemas(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics of tables that are gone get no watermarks; a restart at a state in between."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        program()
    except FileNotFoundError as why:
        pytest.skip(str(why))
    with Apicurio() as registry:
        texts = wire.schemas("avro-watermark")
        ids = {old: registry.register(f"s{old}-value", text) for old, text in texts.items()}
        sent: dict[str, list[Outgoing]] = {}
        for m in wire.messages("avro-watermark"):
            key, value = (with_id(each, ids) for each in (m.key, m.value))
            sent.setdefault(m.topic, []).append((m.partition, key, value))
        for topic, messages in sent.items():
            broker.create_topic(f"avro-{topic}", partitions=3)
            broker.produce(f"avro-{topic}", messages)
        topics = ",".join(f"avro-{topic}" for topic in sent)
        uri = f"kafka://{broker.bootstrap}/avro-wire?{NEEDED}&topics={topics}"
        source = parse_source_uri(f"{uri}&schema-registry={registry.url}")
        lives = Lives(ThreadsOfProcess, broker, tmp_path, source=source)
        for label in ("after_first_ddls", "final"):
            lives.finish(target_ts=wire.state_ts(label))
            assert (label, wire.differences(lives.warehouse, label)) == (label, [])
            if label != "final":
                registry.restart()  # the next life asks it anew


def with_id(part: bytes | None, ids: Mapping[int, int]) -> bytes | None:
    """A key or a value, where it has a schema with another id for it."""
    if not part or part[0] != 0:
        return part
    return b"".join((part[:1], ids[int.from_bytes(part[1:5])].to_bytes(4), part[5:]))
