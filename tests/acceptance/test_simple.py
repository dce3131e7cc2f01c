"""What TiCDC's simple protocol tells beside the rows: their columns, and their checksums."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.route_rules import Extract, RouteRule
from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.services import wire
from tests.services.delta_rows import read_rows
from tests.services.row_checksum import with_checksum

pytestmark = pytest.mark.acceptance


def test_tables_are_what_bootstraps_tell_where_no_ddl_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All types, a unique key, a virtual column; and later DDLs change what was told."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "late.jsonl"
    with gzip.open(wire.DATA / "simple-json" / "messages.jsonl.gz", "rt") as lines:
        kept = [each for each in lines if not made_before(each, wire.state_ts("after_load"))]
    path.write_text("".join(kept))
    source = parse_source_uri(f"file://{path}?protocol=simple&partition-num=3")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    for label in ("after_updates", "after_renames"):  # partitions are not told
        lives.finish(target_ts=wire.state_ts(label))
        assert (label, wire.differences(lives.warehouse, label)) == (label, [])


@pytest.mark.parametrize("is_late", [False, True])
def test_routed_tables_of_simple_are_what_its_messages_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """By their CREATE TABLE, or by BOOTSTRAP messages: both tell tables by upstream names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path, label = tmp_path / "simple.jsonl", "after_updates"
    with gzip.open(wire.DATA / "simple-json" / "messages.jsonl.gz", "rt") as lines:
        late = wire.state_ts("after_load")
        kept = [each for each in lines if not (is_late and made_before(each, late))]
    path.write_text("".join(kept))
    lives = Lives(
        ThreadsOfProcess,
        None,
        tmp_path,
        source=parse_source_uri(f"file://{path}?protocol=simple&partition-num=3"),
    )
    route = RouteRule(
        matcher=("shop.*",),
        target_schema="lake",
        extract_schema=Extract(regexp="(.*)", target_column="of"),
    )
    sink = replace(lives.settings.changefeed.sink, routes=(route,))
    changefeed = replace(lives.settings.changefeed, sink=sink)
    lives.settings = replace(lives.settings, changefeed=changefeed)
    lives.finish(target_ts=wire.state_ts(label))
    assert {each["table_name"] for each in lives.dead_letters()} <= {"audit_log"}
    compared = 0
    for table in wire.expected(label).values():
        if table.key is None:
            continue
        found = read_rows(lives.warehouse / "lake" / table.name)
        assert {row.pop("of") for row in found} <= {"shop"}
        assert table.difference(found) is None
        compared += 1
    assert compared > 3


def made_before(line: str, ts: int) -> bool:
    message = json.loads(base64.b64decode(json.loads(line)["value_b64"]))
    return message["type"] == "CREATE" and message["commitTs"] < ts


def with_checksums(path: Path, wrong: Callable[[dict[str, Any]], bool]) -> None:
    """The recording of simple as it would be with ``integrity-check-level = correctness``."""
    columns: dict[tuple[str, int], Any] = {}
    with (
        gzip.open(wire.DATA / "simple-json" / "messages.jsonl.gz", "rt") as lines,
        path.open("w") as made,
    ):
        for line in lines:
            record = json.loads(line)
            message = json.loads(base64.b64decode(record["value_b64"]))
            for told in filter(None, map(message.get, ("tableSchema", "preTableSchema"))):
                columns[told["table"], told["version"]] = told["columns"]
            if message["type"] in ("INSERT", "UPDATE", "DELETE"):
                of = columns.get((message["table"], message["schemaVersion"]))
                if of is not None:  # told later
                    message = with_checksum(message, of)
                    message["checksum"]["current"] ^= wrong(message)
                value = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
                record["value_b64"] = base64.b64encode(value).decode()
            made.write(json.dumps(record) + "\n")


def test_rows_are_compared_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All types; and columns that were added between others, or got another type."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path, since = tmp_path / "checked.jsonl", wire.state_ts("after_first_ddls")
    with_checksums(path, lambda row: row["table"] == "orders" and row["commitTs"] > since)
    source = parse_source_uri(f"file://{path}?protocol=simple&partition-num=3")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    changefeed = replace(lives.settings.changefeed, integrity_check_level="correctness")
    lives.settings = replace(lives.settings, changefeed=changefeed)
    for label in ("after_first_ddls", "after_renames"):
        lives.finish(target_ts=wire.state_ts(label))
        letters = [each for each in lives.dead_letters() if each["table_name"] != "audit_log"]
        differences = wire.differences(lives.warehouse, label)
        if label == "after_first_ddls":
            assert (differences, letters) == ([], [])
    assert {(each["table_name"], each["error_class"]) for each in letters} == {
        ("orders", "checksum")
    }
    assert all(each.startswith("orders: ") for each in differences), differences
    at = {each["commit_ts"] for each in letters}
    changed = {
        each["commitTs"]
        for each in wire.changes()
        if each["table"].endswith("orders")
        and since < each["commitTs"] <= wire.state_ts(label)
        and each["op"] != "delete"
    }
    assert at == changed
