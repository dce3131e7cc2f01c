"""Tasks on threads of one process: each has consumers of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor

from streaming.source.kafka.consumer import CONSUMERS, RangeConsumer, consumer_for, discard
from streaming.source.kafka.offset_ranges import OffsetRange
from streaming.source.kafka.read_ranges import read_list
from tests.contracts.topics_contract import Cluster
from tests.streaming.source.kafka.tiny_decoder import decode, decoded

NOWHERE = {"client.id": "tests", "group.id": "tests", "bootstrap.servers": "127.0.0.1:1"}


def test_a_thread_gets_its_own_consumer_and_keeps_it():
    barrier = threading.Barrier(3)

    def mine(_: int) -> tuple[int, int]:
        first = consumer_for(NOWHERE, [])
        barrier.wait(30)
        second = consumer_for(NOWHERE, [])
        barrier.wait(30)
        discard(second)
        return id(first), id(second)

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(mine, range(3)))
    assert all(first == second for first, second in found)
    assert len({first for first, _ in found}) == 3


def test_discarding_is_of_this_thread_alone():
    mine = consumer_for(NOWHERE, [])
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: discard(consumer_for(NOWHERE, []))).result(30)
    assert consumer_for(NOWHERE, []) is mine
    discard(mine)
    again = consumer_for(NOWHERE, [])
    assert again is not mine
    discard(again)


def test_a_thread_keeps_few_and_a_fork_is_not_their_end():
    """In the child of a fork Python frees what is local to other threads."""
    left: list[weakref.ref[RangeConsumer]] = []
    opened, over = threading.Event(), threading.Event()

    def open_some() -> None:
        for number in range(CONSUMERS + 2):
            left.append(weakref.ref(consumer_for({**NOWHERE, "client.id": f"t{number}"}, [])))
        opened.set()
        over.wait(60)
        for each in left:
            if (kept := each()) is not None:
                discard(kept)

    thread = threading.Thread(target=open_some)
    thread.start()
    assert opened.wait(60)
    assert [each() is not None for each in left] == [False, False, *[True] * CONSUMERS]
    done = subprocess.run([sys.executable, "-c", ""], preexec_fn=os.getpid, check=False)
    over.set()
    thread.join(60)
    assert done.returncode == 0


def test_threads_read_at_the_same_time(cluster: Cluster):
    topic = f"threads-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 4)
    cluster.produce(topic, ((each % 4, None, b"%d" % each) for each in range(8_000)))
    settings = {"client.id": "t", "group.id": "t", "bootstrap.servers": cluster.bootstrap}
    barrier = threading.Barrier(4)

    def read(partition: int) -> list[int]:
        barrier.wait(60)
        found: list[int] = []
        for begin in range(0, 2_000, 250):
            ranges = [OffsetRange(topic, "id", partition, begin, begin + 250)]
            blocks = read_list(consumer_for(settings, ranges), ranges, decode, {})
            whole = [each for some in blocks for each in some]
            found += [int(value or b"") for _, value in decoded(whole, partition)]
        discard(consumer_for(settings, []))
        return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(read, range(4)))
    assert found == [list(range(partition, 8_000, 4)) for partition in range(4)]
