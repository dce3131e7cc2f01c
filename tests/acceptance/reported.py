"""Recordings after public bug reports, played through one life of the program.

A recording is a file in ``tests/data/cases`` (a JSON object a line: ``partition``, ``key``,
``value``), or messages that a test writes with ``row``, ``ddl`` and ``mark``.

    play(new_lives(2, partitions=None), recording("like-unread"))  # a topic of two partitions
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.acceptance.one_process import Lives
from tests.shop.feed import Message

CASES = Path(__file__).resolve().parents[1] / "data" / "cases"
FIRST_TS = 470620744125251584  # of the recordings; STEP apart
STEP = 1 << 22
Texts = Mapping[str, str | None]


def recording(name: str) -> list[Message]:
    """The messages of ``tests/data/cases/<name>.jsonl``, in produce order."""
    lines = (json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines())
    return [(line["partition"], None, line["value"].encode()) for line in lines]


def at(n: int) -> int:
    """The TSO of the nth moment of a recording."""
    return FIRST_TS + n * STEP


def row(
    ts: int,
    table: str,
    data: Texts,
    types: Mapping[str, str],
    *,
    kind: str = "INSERT",
    old: Texts | None = None,
    key: Sequence[str] | None = ("id",),
    partition: int = 0,
) -> Message:
    """An event of ``shop.<table>``: texts as TiCDC writes them, ``types`` as in ``mysqlType``."""
    return _message(
        ts, table, kind, partition, data=[data], mysqlType=types, old=old and [old],
        pkNames=key and list(key), sqlType=dict.fromkeys(types, 12), _tidb={"commitTs": ts},
    )  # fmt: skip


def ddl(ts: int, table: str, query: str, *, kind: str = "ALTER", partition: int = 0) -> Message:
    """``kind`` is canal's type: CREATE, ALTER, RENAME, TRUNCATE, ERASE, CINDEX, DINDEX, QUERY."""
    return _message(
        ts, table, kind, partition, sql=query, isDdl=True, _tidb={"commitTs": ts}
    )  # fmt: skip


def mark(ts: int, *partitions: int) -> list[Message]:
    """A watermark to each of these partitions; to partition 0 if none is named."""
    return [
        _message(ts, "", "TIDB_WATERMARK", each, database="", _tidb={"watermarkTs": ts})
        for each in partitions or (0,)
    ]


def play(lives: Lives, messages: Iterable[Message], **changes: Any) -> Lives:
    """Send them, and live once, to right below the last watermark of all partitions. ``changes``:
    settings of the changefeed. The life must end well."""
    messages = list(messages)
    lives.produce(messages)
    lives.finish(target_ts=changes.pop("target_ts", last_ts(messages)), **changes)
    return lives


def last_ts(messages: Iterable[Message]) -> int:
    """What the watermarks of these messages resolve."""
    last: dict[int, int] = {}
    for partition, _, value in messages:
        if watermark := json.loads(value)["_tidb"].get("watermarkTs"):
            last[partition] = max(last.get(partition, 0), watermark)
    return min(last.values()) - 1


def _message(ts: int, table: str, kind: str, partition: int, **fields: Any) -> Message:
    made = ts >> 18
    message = {
        "id": 0, "database": "shop", "table": table, "pkNames": None, "isDdl": False, "type": kind,
        "es": made, "ts": made + 900, "sql": "", "sqlType": None, "mysqlType": None, "data": None,
        "old": None,
    }  # fmt: skip
    return partition, None, json.dumps(message | fields).encode()
