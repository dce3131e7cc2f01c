"""What TiCDC's encoders wrote leads to the recorded tables, cell for cell, in each protocol.

One process plays the recordings, a life for each labelled state: a restart at each of them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from conf.sources.source_parameters import PROTOCOLS
from conf.sources.source_uri import parse_source_uri
from sinks.storage.open_storage import open_storage
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.services import wire
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
