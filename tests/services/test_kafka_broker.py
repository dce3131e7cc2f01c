"""What the other tests rely on in the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.kafka_broker import REPOSITORY, KafkaBroker
from tests.services.topic_producer import TopicProducer

pytestmark = pytest.mark.kafka


def is_running(pid: int) -> bool:
    """Whether a process lives (a zombie that waits for its parent does not)."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_order_per_partition_is_the_order_of_sending(broker: KafkaBroker):
    broker.create_topic("order", partitions=2)
    broker.produce("order", [(n % 2, None, str(n).encode()) for n in range(5000)])
    read = broker.read("order")
    for partition in (0, 1):
        values = [int(m.value or b"") for m in read if m.partition == partition]
        assert values == list(range(partition, 5000, 2))
    assert broker.end_offsets("order") == {0: 2500, 1: 2500}


def test_a_null_value_is_not_an_empty_one(broker: KafkaBroker):
    broker.create_topic("nulls", partitions=1)
    broker.produce("nulls", [(0, None, None), (0, b"", b"")])
    assert [(m.key, m.value) for m in broker.read("nulls")] == [(None, None), (b"", b"")]


def test_deleted_records_leave_the_offsets(broker: KafkaBroker):
    broker.create_topic("deleted", partitions=2)
    broker.produce("deleted", [(0, None, b"x")] * 5)
    broker.delete_records("deleted", {0: 3})
    assert broker.start_offsets("deleted") == {0: 3, 1: 0}
    assert broker.end_offsets("deleted") == {0: 5, 1: 0}


def test_a_deleted_topic_can_be_made_again(broker: KafkaBroker):
    broker.create_topic("again", partitions=1)
    broker.produce("again", [(0, None, b"x")])
    broker.delete_topic("again")
    broker.create_topic("again", partitions=2)
    assert broker.end_offsets("again") == {0: 0, 1: 0}


@pytest.mark.soak  # the outage tests rest on it, and fail without it
def test_data_and_port_survive_restart_kill_and_pause():
    with KafkaBroker() as own:
        bootstrap = own.bootstrap
        own.create_topic("kept", partitions=1)
        own.produce("kept", [(0, None, b"1")])
        own.restart()
        own.produce("kept", [(0, None, b"2")])
        own.kill()
        own.restart()
        own.pause()
        producer = TopicProducer(own.bootstrap)
        producer.send("kept", [(0, None, b"3")])
        own.resume()
        producer.flush()
        assert own.bootstrap == bootstrap
        assert [m.value for m in own.read("kept")] == [b"1", b"2", b"3"]
        folder = own._folder
        assert folder is not None
    assert not folder.exists()


@pytest.mark.soak
def test_the_broker_dies_with_its_parent():
    program = (
        "import time; from tests.services.kafka_broker import KafkaBroker\n"
        "broker = KafkaBroker().start(); print(broker.pid, broker._folder, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while is_running(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(int(pid))
    subprocess.run(["rm", "-r", folder], check=True)
