"""What TiCDC's encoders wrote leads to the recorded tables, cell for cell, in each protocol.

One process plays the recordings, a life for each labelled state: a restart at each of them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from conf.route_rules import Extract, RouteRule
from conf.sources.source_parameters import PROTOCOLS
from conf.sources.source_uri import parse_source_uri
from sinks.storage.open_storage import open_storage
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.services import wire
from tests.services.delta_rows import read_rows
from tests.services.row_checksum import with_checksum
from tests.services.s3_server import KEY_ID, REGION, SECRET, S3Server

LABELS = (
    "after_load",
    "after_updates",
    "after_first_ddls",
    "after_renames",
    "after_partition_ddls",
    "final",
)
LAST = LABELS[-1:]
BEFORE_DDLS = LABELS[:2]
CLAIMS = "claim-check"
ON_S3 = "open-protocol"  # its claims are, those of others are in a folder
CUT = "handle-key-only"
COMPRESSIONS = ("lz4", "snappy")
# The simple encoder of these recordings had the columns of `orders` in an order that another
# encoder had changed: from the first DDLs on, some rows have values under other columns' names.
SHIFTED = (
    *("simple-json-interleaved", "simple-json-claim-check", "simple-json-handle-key-only"),
    *("simple-avro", "simple-avro-claim-check"),
)
pytestmark = pytest.mark.acceptance


def on_s3(s3: S3Server, prefix: str, folder: Path) -> str:
    """TiCDC's URI of these files on S3, as the value of a parameter."""
    storage = open_storage(f"s3://{s3.bucket}/{prefix}", s3.options)
    for each in folder.iterdir():
        storage.write(each.name, each.read_bytes())
    login = {"access-key": KEY_ID, "secret-access-key": SECRET, "region": REGION}
    uri = f"s3://{s3.bucket}/{prefix}?{urlencode({**login, 'endpoint': s3.url})}"
    return quote(uri, safe="")


def lives_of(variant: str, folder: Path, s3: S3Server) -> Lives:
    path = wire.DATA / variant / "messages.jsonl.gz"
    protocol = next(each for each in PROTOCOLS if variant.startswith(each))
    uri = f"file://{path}?protocol={protocol}&partition-num=3&enable-tidb-extension=true"
    if variant.endswith(COMPRESSIONS):
        uri += f"&large-message-handle-compression={variant.rpartition('-')[2]}"
    if variant.endswith(CLAIMS):
        claims = wire.claimed(variant, folder / "claims")
        storage = on_s3(s3, variant, claims) if protocol == ON_S3 else f"file://{claims}"
        uri += f"&large-message-handle-option={CLAIMS}&claim-check-storage-uri={storage}"
    if variant.endswith(CUT):
        uri += f"&large-message-handle-option={CUT}"
    return Lives(ThreadsOfProcess, None, folder, source=parse_source_uri(uri))


@pytest.mark.parametrize(
    ("variant", "labels"),
    [
        ("open-protocol", LABELS),
        pytest.param("open-protocol-interleaved", LAST, marks=pytest.mark.soak),
        pytest.param("open-protocol-claim-check", LAST, marks=pytest.mark.more),
        pytest.param("open-protocol-handle-key-only", LAST, marks=pytest.mark.more),
        ("open-protocol-updated-columns", ("after_first_ddls",)),
        ("simple-json", LAST),
        pytest.param("simple-json", LABELS[:-1], marks=pytest.mark.more),
        pytest.param("simple-json-interleaved", LAST, marks=pytest.mark.soak),
        pytest.param("simple-json-claim-check", LAST, marks=pytest.mark.soak),
        pytest.param("simple-json-handle-key-only", LAST, marks=pytest.mark.more),
        ("canal-json-lz4", LABELS[:2]),
        pytest.param("canal-json-snappy", LABELS[1:2], marks=pytest.mark.more),
        pytest.param("simple-avro", LABELS, marks=pytest.mark.more),
        pytest.param("simple-avro-claim-check", LAST, marks=pytest.mark.more),
        pytest.param("simple-avro-lz4", BEFORE_DDLS, marks=pytest.mark.more),
    ],
)
def test_recorded_bytes_lead_to_every_recorded_state(
    variant: str,
    labels: tuple[str, ...],
    *,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lives = lives_of(variant, tmp_path, s3)
    for label in labels:
        lives.finish(target_ts=wire.state_ts(label))
        differences = wire.differences(lives.warehouse, label)
        letters = [each for each in lives.dead_letters() if each["table_name"] != "audit_log"]
        classes = {each["error_class"] for each in letters}
        if variant in SHIFTED and label not in BEFORE_DDLS:
            assert {each["table_name"] for each in letters} == {"orders"}
            assert all(each.startswith("orders: ") for each in differences), differences
            assert classes == ({"cast", CUT} if variant.endswith(CUT) else {"cast"})
        elif variant.endswith(CUT):
            assert classes == {CUT}
            assert all(each.startswith("orders: ") for each in differences), differences
        else:
            assert (label, differences, classes) == (label, [], set())


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
