"""The own times of transactions. Pure.

Such a time must be the same in the log of a replica, with which reading goes on after a failover:

- MySQL's is its ``original_commit_timestamp``, which a replica keeps.
- MariaDB has no such thing. Its GTID event has the second of the COMMIT, but on a replica of 10.11
  that of the last statement. The event behind it has the same second on all servers: when the first
  statement began.
"""

from __future__ import annotations

import numpy as np

from streaming.source.binlog.format.control.gtids import mysql_gtid
from streaming.source.binlog.format.events import (
    HEADER_BYTES,
    Events,
    Offsets,
    event_at,
    words_of,
)
from streaming.source.binlog.format.type_codes import GTIDS, EventType
from streaming.source.resolved.commit_clock import Numbers


def own_times(data: bytes, events: Events, count: int) -> tuple[Numbers, Offsets]:
    """The own time of each transaction that begins among the first ``count`` events, in ms, and its
    GTID event."""
    gtids = np.flatnonzero(np.isin(events.kind[:count], GTIDS))
    kind, at = events.kind[gtids], events.at[gtids]
    # In MariaDB that of the event behind it (`commit_clock`).
    behind = events.at[np.minimum(gtids + 1, len(events) - 1)]
    timed = np.where(kind == EventType.MARIADB_GTID, behind, at)
    own_ms = words_of(events.data, "<u4")[timed].astype(np.int64) * 1_000
    is_tagged = kind == EventType.GTID_TAGGED
    for nth in np.flatnonzero(is_tagged).tolist():
        told = mysql_gtid(event_at(data, int(at[nth]), checksum=False))
        own_ms[nth] = (told.original_us or 0) // 1_000
    is_mysql = (kind != EventType.MARIADB_GTID) & ~is_tagged
    if is_mysql.any():
        words = words_of(events.data, "<u8")
        body, end = at + HEADER_BYTES, events.end[gtids]
        has_times = is_mysql & (body + 42 + 7 <= end)
        immediate = words[np.where(has_times, body + 42, 0)].astype(np.int64) & ((1 << 56) - 1)
        has_original = has_times & (immediate >> 55 == 1) & (body + 49 + 7 <= end)
        original = words[np.where(has_original, body + 49, 0)].astype(np.int64) & ((1 << 56) - 1)
        us = np.where(has_original, original, immediate & ((1 << 55) - 1))
        own_ms = np.where(has_times, us // 1_000, own_ms)
    return own_ms, gtids
