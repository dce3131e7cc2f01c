"""A load generator in a process of its own: the shop's feed into a topic, at a rate.

``python -m tests.shop.produce --bootstrap 127.0.0.1:9092 --topic shop --seed 7 --rate 200``
Whoever knows the arguments knows the history: ``history(HistorySettings(seed=7, rate=200))``. The
topic must be there, with ``--partitions`` partitions or more. Prints one JSON line at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

from coordination.model import TSO_LOGICAL_BITS
from tests.services.topic_producer import TopicProducer
from tests.shop.feed import CLEAN, Burst, FeedSettings, bursts
from tests.shop.history import START_TS, HistorySettings, history


def produce(
    producer: TopicProducer, topic: str, feed: Iterable[Burst], *, start_ts: int | None
) -> tuple[int, int]:
    """Send each burst when TiDB's clock, which is at ``start_ts`` now, has come to it.

    With None nothing waits. Returns how many messages were sent and the last ts, all acknowledged.
    """
    sent, last_ts, started = 0, 0, time.monotonic()
    for burst in feed:
        if start_ts is not None:
            due_s = (burst.ts - start_ts) / (1000 << TSO_LOGICAL_BITS)
            time.sleep(max(0.0, started + due_s - time.monotonic()))
        producer.send(topic, burst.messages)
        sent, last_ts = sent + len(burst.messages), burst.ts
    producer.flush()
    return sent, last_ts


def command(bootstrap: str, topic: str, history: HistorySettings, *options: str) -> list[str]:
    """The command line that sends this history; run it in the repository's root."""
    return [
        *(sys.executable, "-m", "tests.shop.produce", "--bootstrap", bootstrap, "--topic", topic),
        *("--seed", str(history.seed), "--transactions", str(history.transactions)),
        *("--start-ts", str(history.start_ts), "--rate", str(history.rate)),
        *("--customers", str(history.customers)),
        *options,
    ]


def main(arguments: list[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    settings = HistorySettings(
        seed=given.seed,
        transactions=given.transactions,
        start_ts=given.start_ts,
        rate=given.rate,
        customers=given.customers,
    )
    layout = replace(
        CLEAN if given.clean else FeedSettings(),
        seed=given.seed,
        partitions=given.partitions,
        watermark_every=given.watermark_every,
    )
    sent, last_ts = produce(
        TopicProducer(given.bootstrap),
        given.topic,
        bursts(history(settings), layout),
        start_ts=None if given.unpaced else given.start_ts,
    )
    print(json.dumps({"messages": sent, "last_ts": last_ts}), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.shop.produce", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--start-ts", type=int, default=START_TS)
    parser.add_argument("--rate", type=float, default=500.0, help="transactions a second")
    parser.add_argument("--customers", type=int, default=50, help="before the first transaction")
    parser.add_argument("--watermark-every", type=int, default=10, help="transactions")
    parser.add_argument("--unpaced", action="store_true", help="as fast as it goes")
    parser.add_argument("--clean", action="store_true", help="no replays, duplicates, disorder")
    return parser


if __name__ == "__main__":
    main()
