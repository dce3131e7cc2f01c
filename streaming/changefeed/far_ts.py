"""Refuse a TSO that an operator gives and that is further ahead than the clocks allow."""

from __future__ import annotations

import time

from coordination.errors import ConfigError, TidelakeError
from coordination.model import TSO_LOGICAL_BITS
from streaming.protocols.clocks import latest_ts, shown_ts
from streaming.source.kafka.broker import KafkaSource
from streaming.source.kafka.deleted_messages import CLOCKS_MS


def refuse_far_ahead(name: str, ts: int | None, source: KafkaSource | None) -> None:
    """Raise ConfigError for a setting with a TSO that is more than a minute ahead. The broker is
    asked only if it is ahead of this machine's clock; ``source``: None where it cannot be."""
    ours_ms = time.time() * 1e3
    if ts is None or ts <= latest_ts(ours_ms):
        return
    brokers_ms, safe_ms = _clocks_ms(source) if source is not None else (None, None)
    if ts <= latest_ts(*(each for each in (ours_ms, brokers_ms, safe_ms) if each is not None)):
        return
    broker = (
        "the broker's is not known (it was not asked, did not answer, or has no message)"
        if brokers_ms is None
        else f"the newest message on the broker is of {_shown_ms(brokers_ms)}"
    )
    raise ConfigError(
        f"{name} {ts} is the time {shown_ts(ts)}, more than a minute ahead: this machine's clock "
        f"says {_shown_ms(ours_ms)}, and {broker}. All changes up to then would be passed over: "
        "give a TSO of the past, or set the clock"
    )


def _clocks_ms(source: KafkaSource) -> tuple[float | None, float | None]:
    """The time of the newest message; and where Kafka has deleted some, the latest that
    `deleted_messages.py` may advise to start at, though that is ahead of the clocks."""
    try:
        newest_ms = source.newest_ms()
        first = source.beginnings(source.shape().partitions)
    except TidelakeError:
        return None, None  # our clock alone has to do
    is_cut = newest_ms is not None and any(offset > 0 for offset in first.values())
    return newest_ms, (newest_ms or 0) + CLOCKS_MS if is_cut else None


def _shown_ms(at_ms: float) -> str:
    return shown_ts(int(at_ms) << TSO_LOGICAL_BITS)
