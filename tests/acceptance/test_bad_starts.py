"""A command that cannot be carried out answers at once, in one line."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.processes import Life, Stage
from tests.services.kafka_broker import KafkaBroker

pytestmark = pytest.mark.acceptance

QUICK_S = 60.0  # a bad start answers within seconds; five of them at once, on a busy machine
KAFKA = "kafka://{brokers}/{topic}?protocol={protocol}&enable-tidb-extension=true"


def assert_one_line(life: Life, *says: str, code: int = 1) -> None:
    """It ended with this code, and its last line says what is wrong."""
    assert life.await_exit() == code, life.tail()
    last = life.lines()[-1]
    in_json = r'\{.* "level": "ERROR", "logger": "tidelake", "message": ".*\}'
    assert re.match(rf"(\S+Z ERROR )?tidelake: |{in_json}$", last), life.tail()
    assert [word for word in says if word not in last] == [], last
    assert life.lines("Traceback") == []


def test_bad_starts_answer_at_once(broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path):
    with Stage(broker, etcd.endpoint, tmp_path) as stage:
        ours = {"brokers": broker.bootstrap, "topic": stage.topic, "protocol": "canal-json"}
        nobody = "127.0.0.1:9"
        cases = [
            ("no-broker", {"brokers": nobody}, {"log_format": "json"}, 1, nobody),
            ("no-topic", {"topic": "nowhere"}, {}, 2, "topic nowhere does not exist"),
            ("no-protocol", {"protocol": "craft"}, {}, 2, "craft"),
            ("no-etcd", {}, {"etcd_endpoint": f"http://{nobody}"}, 1, nobody),
            ("no-such-key", {}, {"batch_colour": "red"}, 2, "TIDELAKE_BATCH_COLOUR"),
        ]
        lives = [
            stage.start(name, source_uri=KAFKA.format(**ours | source), **settings)
            for name, source, settings, *_ in cases
        ]
        for life, (name, *_, code, says) in zip(lives, cases, strict=True):
            assert_one_line(life, says, code=code)
            took_s = time.monotonic() - life.started
            print(f"{name}: at most {took_s:.1f} s: {life.lines()[-1]}")
            assert took_s < QUICK_S
            assert life.lines("java") == []
            assert len(life.lines("tidelake")) == 1
            assert life.lines("kafka.") == []  # its client tells of every try
        assert not stage.watch.sightings
