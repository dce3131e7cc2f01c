"""Messages of Debezium's own engine, recorded from a real MariaDB
(`tests/benchmarks/record_debezium.py`), lead to what that database answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conf.settings import TableRule
from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.one_process import Lives
from tests.services.delta_rows import read_rows

pytestmark = pytest.mark.acceptance
DATA = Path(__file__).resolve().parents[1] / "data" / "debezium"
# With time.precision.mode=connect the connector has cut these to milliseconds of a day.
CUT = {"source-types": {"tm", "tm6", "dtm6"}}
TIMES = {"tm", "tm6"}


def shown(name: str, value: Any) -> Any:
    """As the recording has it: bytes and bits in hexadecimal, times as Python's durations."""
    if value is None or isinstance(value, bytes):
        return value.hex() if value is not None else None
    if name in TIMES:
        hours, minutes, seconds = value.lstrip("-").split(":")
        span = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
        return str(-span if value.startswith("-") else span)
    if name in ("b1", "b12"):
        return f"{value:02x}" if name == "b1" else f"{value:04x}"
    return str(value).removesuffix("+00:00")


def same(name: str, was: Any, now: Any) -> bool:
    if name in ("f", "db") and was is not None:
        return float(was) == float(now)
    return bool(was == shown(name, now))


def differences(
    rows: list[dict[str, Any]], truth: list[dict[str, Any]], cut: set[str]
) -> list[Any]:
    def key(row: Mapping[str, Any]) -> Any:
        return [str(row[name]) for name in ("id", "a", "b") if name in row]

    found: list[Any] = [] if len(rows) == len(truth) else [(len(rows), len(truth))]
    for row, told in zip(sorted(rows, key=key), sorted(truth, key=key), strict=False):
        found += [
            (key(told), name, was, row.get(name))
            for name, was in told.items()
            if name not in cut and not same(name, was, row.get(name))
        ]
    return found


@pytest.mark.parametrize("variant", ["schemas", "plain", "source-types"])
def test_its_messages_lead_to_what_the_database_has(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot and what follows; with DDLs of the schema-change topic, or tables made from rows,
    which do not tell a key for certain. The connector shows the NULL of a column with a default as
    the default."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    uri = f"file://{DATA}/{variant}.jsonl.gz?protocol=debezium&at-least-once=true"
    settings = parse_source_uri(uri)
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=settings)
    of_rows = (TableRule(matcher=("*.*",), key="all-columns"),) if variant == "source-types" else ()
    sink = replace(lives.settings.changefeed.sink, tables=of_rows)
    lives.finish(target_ts=open_source(settings).end_ts(), sink=sink)
    truth = json.loads((DATA / f"{variant}.json").read_text())
    for table, told in truth.items():
        rows = read_rows(lives.warehouse / "shop" / table)
        found = differences(rows, told, CUT.get(variant, set()))
        assert [each for each in found if each[1:] != ("v", None, 5)] == []
    assert lives.dead_letters() == []


MS = 1_795_711_891_298
CREATE = "CREATE TABLE {} (id INT PRIMARY KEY)"
AGAIN = {  # what comes in one ms, by table
    "dropped": ("DROP TABLE IF EXISTS {}", CREATE),
    "truncated": ("ALTER TABLE {} ADD COLUMN x INT", "TRUNCATE TABLE {}"),
}


def line(topic: str, offset: int, value: Mapping[str, Any], key: Mapping[str, Any]) -> str:
    both = {"key_b64": key, "value_b64": value}
    coded = {name: base64.b64encode(json.dumps(each, separators=(",", ":")).encode()).decode()
             for name, each in both.items()}  # fmt: skip
    at = {"topic": topic, "partition": 0, "offset": offset, "timestamp_ms": MS + 11_000}
    return json.dumps({**at, **coded}) + "\n"


def table_begun_again(prefix: str, table: str, at: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Its topic and value for each message: a row, two DDLs and two rows of one ms, another row."""

    def told(ms: int, pos: int) -> dict[str, Any]:
        whose = {"version": "2.7.4.Final", "connector": "mysql", "name": "srv", "ts_ms": MS}
        source = {**whose, "db": "shop", "table": table, "file": "b.1", "pos": pos}
        return {"source": source, "ts_ms": MS + at + ms}

    def ddl(query: str, ms: int, pos: int) -> tuple[str, dict[str, Any]]:
        of = {"databaseName": "shop", "schemaName": None, "ddl": query.format(table)}
        return "srv", {**told(ms, pos), **of, "tableChanges": []}

    def row(n: int, ms: int) -> tuple[str, dict[str, Any]]:
        sides = {"before": None, "after": {"id": n}, **told(ms, 900 + n)}
        time = sides.pop("ts_ms")
        return prefix + table, {**sides, "op": "c", "ts_ms": time}

    yield ddl(CREATE, 0, 100)
    yield row(1, 100)
    yield from (ddl(query, 200, 300 + n) for n, query in enumerate(AGAIN[table]))
    yield from (row(2, 200), row(3, 200), row(4, 300))


@pytest.mark.parametrize("prefix", ["srv.shop.", "routed-"])
def test_rows_behind_ddls_of_the_same_ms_stay(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever other topics are there and however they are named (by a RegexRouter perhaps)."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sent: list[tuple[str, dict[str, Any]]] = [("__debezium-heartbeat.srv", {"ts_ms": MS})]
    for n, table in enumerate(AGAIN):
        sent += table_begun_again(prefix, table, n * 1_000)
    offsets: dict[str, int] = {}
    with (tmp_path / "sent.jsonl").open("w") as file:
        for topic, value in sent:
            offset = offsets[topic] = offsets.get(topic, -1) + 1
            file.write(line(topic, offset, value, value.get("after") or {}))
    settings = parse_source_uri(f"file://{file.name}?protocol=debezium&at-least-once=true")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=settings)
    lives.finish(target_ts=open_source(settings).end_ts())
    for table in AGAIN:
        rows = read_rows(lives.warehouse / "shop" / table)
        assert sorted(row["id"] for row in rows) == [2, 3, 4], table
    assert lives.dead_letters() == []
