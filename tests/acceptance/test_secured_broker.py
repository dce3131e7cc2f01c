"""`tidelake run` against a broker that asks who is there, as a user starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.small_tables import A, made, marks, row
from tests.services.delta_rows import read_rows
from tests.services.secured_broker import SecuredBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]


def run(uri: str, warehouse: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streaming.cli.main", "run", "--source-uri", uri]
    command += ["--sink-uri", f"delta://{warehouse}", "--etcd", "embedded"]
    command += ["--start-ts", "1", "--target-ts", "40"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.soak  # in make test with PLAIN and executors elsewhere: test_executors
def test_tls_and_scram_from_the_source_uri_to_the_table(
    secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    broker, topic = secured_broker, f"secured-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=3)
    broker.produce(topic, [*made(10, A), (1, None, row(20, 1, "x")), (2, None, b"{"), *marks(50)])
    login = broker.login("SCRAM-SHA-512")
    uri = broker.source_uri("sasl_tls", topic, broker.trusted + login)

    ended = run(uri, tmp_path / "lake")

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert [each["v"] for each in read_rows(tmp_path / "lake" / "shop" / "a")] == ["x"]
    letters = read_rows(tmp_path / "lake" / "_tidelake" / "dead_letters")
    assert [each["value"] for each in letters] == [b"{"]


def test_a_wrong_password_is_refused_in_a_line(
    secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    broker, login = secured_broker, secured_broker.login("PLAIN", password="wrong-one")
    refused = run(broker.source_uri("sasl_tls", "any", broker.trusted + login), tmp_path / "lake")
    assert refused.returncode in (1, 2)
    assert "Traceback" not in refused.stderr
    assert "password" in refused.stderr.splitlines()[-1]
