"""Rows in claim-check storage are those that TiCDC would have sent without it."""

from __future__ import annotations

import base64
import json
import logging
import pickle
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

from conf.masking import masked, masked_uri
from conf.problems import SettingError
from conf.sources.large_messages import parse_large_messages
from coordination.etcd.embedded import free_ports
from coordination.model import TableName, Ts
from sinks.storage.open_storage import open_storage
from streaming.protocols.contract import (
    Decoder,
    Kind,
    Messages,
    Wanted,
    WantedTable,
    reads_keys,
    with_key,
)
from streaming.protocols.decoders import decoder_of
from streaming.source.outside import claimed_rows
from streaming.source.outside.claimed_rows import ClaimedRows, tell_of_cut_rows, with_claimed_rows
from tests.own_lines import own_records
from tests.services import wire
from tests.services.s3_server import KEY_ID, REGION, SECRET, S3Server
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk, message

VARIANTS = {
    "canal-json-claim-check": "canal-json",
    "open-protocol-claim-check": "open-protocol",
    "simple-json-claim-check": "simple",
    "simple-avro-claim-check": "simple",
}
OPTION = {"large-message-handle-option": "claim-check"}


def recorded(variant: str) -> list[Messages]:
    protocol = VARIANTS[variant]
    found = []
    for partition, sent in wire.partitions(variant).items():
        values = [
            with_key(each.key, each.value) if protocol == "open-protocol" else each.value
            for each in sent
        ]
        found.append(
            Messages(
                part=f"wire/{partition}",
                positions=pa.array([each.offset for each in sent], pa.int64()),
                values=pa.array(values, pa.binary()),
            )
        )
    return found


def rows_of(decode: Decoder, chunks: list[Messages], wanted: Wanted) -> list[dict[str, object]]:
    found = []
    for each in chunks:
        for block in decode(each, wanted):
            assert block.kind is not Kind.BAD
            if block.kind is Kind.ROW and block.body is not None:
                found += [{"table": block.name.table, **r} for r in block.table().to_pylist()]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_row_is_whole(variant: str, tmp_path: Path) -> None:
    folder = wire.claimed(variant, tmp_path / "claims")
    large = parse_large_messages(OPTION | {"claim-check-storage-uri": f"file://{folder}"})
    decode = with_claimed_rows(decoder_of(VARIANTS[variant]), large, ())
    assert isinstance(decode, ClaimedRows)
    assert pickle.loads(pickle.dumps(decode)) == decode
    assert reads_keys(decode) == (variant == "open-protocol-claim-check")
    chunks = recorded(variant)
    rows = rows_of(decode, chunks, EveryTable(None))
    assert [row for row in rows if row.get("error_class")] == []
    counts = wire.config(variant)["counts"]
    assert len(rows) == counts["row"]
    (gone, *_) = folder.iterdir()
    gone.unlink()
    errors = [row for row in rows_of(decode, chunks, EveryTable(None)) if row.get("error_class")]
    assert [row["error_class"] for row in errors] == ["claim-check"]
    assert gone.name in str(errors[0]["error_message"])
    assert f"in file://{folder})" in str(errors[0]["error_message"])


def test_files_of_other_tables_are_not_read(tmp_path: Path) -> None:
    """A folder that is none raises where it is read."""
    (tmp_path / "file").touch()
    decode = ClaimedRows(decoder_of("simple"), f"file://{tmp_path}/file", is_raw=False)
    chunks = recorded("simple-json-claim-check")
    other = {TableName("shop", "stock"): WantedTable(above_ts=Ts(0), key=None)}
    assert rows_of(decode, chunks, other)
    with pytest.raises(NotADirectoryError):
        rows_of(decode, chunks, EveryTable(None))


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"value": 3}', '{"value": "?"}'])
def test_what_is_no_body_is_not_taken(body: str, tmp_path: Path) -> None:
    folder = wire.claimed("canal-json-claim-check", tmp_path / "claims")
    for each in folder.iterdir():
        each.write_text(body)
    decode = ClaimedRows(decoder_of("canal-json"), f"file://{folder}", is_raw=False)
    rows = rows_of(decode, recorded("canal-json-claim-check"), EveryTable(None))
    classes = {row["error_class"] for row in rows if row.get("error_class")}
    assert classes == {"claim-check"}


def test_a_raw_body_is_the_value(tmp_path: Path) -> None:
    folder = wire.claimed("open-protocol-claim-check", tmp_path / "claims")
    for each in folder.iterdir():
        value = json.loads(each.read_text())["value"]
        each.write_bytes(base64.b64decode(value))
    decode = ClaimedRows(decoder_of("open-protocol"), f"file://{folder}", is_raw=True)
    rows = rows_of(decode, recorded("open-protocol-claim-check"), EveryTable(None))
    assert not [row for row in rows if row.get("error_class")]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"large-message-handle-option": "handle-key-only"}, "sends its key alone"),
        (OPTION, "are read from a claim-check-storage-uri that begins with file://"),
        (OPTION | {"claim-check-storage-uri": "hdfs://b/c?secret-access-key=x"}, "dead letter"),
    ],
)
def test_a_loss_is_told_in_one_line(
    parameters: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = parse_large_messages(parameters)
    assert large.storage is None
    with caplog.at_level(logging.WARNING):
        tell_of_cut_rows(large)
    (record,) = own_records(caplog)
    assert says in record.message
    assert "secret" not in record.message
    decode = decoder_of("simple")
    assert with_claimed_rows(decode, large, ()) is decode


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SettingError, match="large-message-handle-option"):
        parse_large_messages({"large-message-handle-option": "claim"})
    for uri, says in {
        "file://host/path": "must look like file:///path",
        "s3:///path": "must look like s3://bucket/path",
        "s3://a:secret@b/path": "must look like s3://bucket/path",
        "s3://[b/path": "claim-check-storage-uri is no URI",
        "s3://b/path?force-path-style=perhaps": "force-path-style=perhaps must be true or false",
    }.items():
        with pytest.raises(SettingError, match=says) as raised:
            parse_large_messages(OPTION | {"claim-check-storage-uri": uri})
        assert "secret" not in str(raised.value)


def test_the_storage_s_parameters_are_ticdc_s() -> None:
    """They win over those of the warehouse."""
    uri = (
        "s3://b/p/?access-key=AKID&secret-access-key=hidden1&endpoint=http%3A%2F%2Fh%3A9000"
        "&force_path_style=true&provider=minio"
    )
    large = parse_large_messages(OPTION | {"claim-check-storage-uri": uri})
    assert large.storage == "s3://b/p"
    assert "hidden1" not in repr(large)
    decode = with_claimed_rows(decoder_of("simple"), large, (("AWS_ACCESS_KEY_ID", "other"),))
    assert isinstance(decode, ClaimedRows)
    assert decode.options == {
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SECRET_ACCESS_KEY": "hidden1",
        "AWS_ENDPOINT_URL": "http://h:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    assert "hidden1" not in repr(decode)
    nested = f"kafka://h:1/t?claim-check-storage-uri={quote(uri, safe='')}&protocol=simple"
    for shown in (masked_uri(nested), masked(nested)):
        assert "hidden1" not in shown
        assert shown.endswith("provider%3Dminio&protocol=simple")
    for other, storage in {
        "gcs://b/p": "gs://b/p",
        "azblob://c/p?sas-token=t": "azure://c/p",
        "abfss://c@a.dfs.core.windows.net/p": "abfss://c@a.dfs.core.windows.net/p",
    }.items():
        assert parse_large_messages(OPTION | {"claim-check-storage-uri": other}).storage == storage


def s3_uri(s3: S3Server, prefix: str, bucket: str = S3Server.bucket) -> str:
    return f"s3://{bucket}/{prefix}?{urlencode({'endpoint': s3.url, 'region': REGION})}"


KEYS = (("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET))
FEW_TRIES = (*KEYS, ("max_retries", "1"), ("retry_timeout", "1s"))


def on_s3(s3: S3Server, prefix: str, protocol: str, **of: str) -> Decoder:
    uri = s3_uri(s3, prefix, **of)
    large = parse_large_messages(OPTION | {"claim-check-storage-uri": uri})
    return with_claimed_rows(decoder_of(protocol), large, FEW_TRIES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_on_s3(variant: str, s3: S3Server, tmp_path: Path) -> None:
    prefix = f"rows-{variant}"
    storage = open_storage(f"s3://{s3.bucket}/{prefix}", s3.options)
    folder = wire.claimed(variant, tmp_path / "claims")
    names = sorted(each.name for each in folder.iterdir())
    for name in names:
        storage.write(name, (folder / name).read_bytes())
    decode = on_s3(s3, prefix, VARIANTS[variant])
    assert isinstance(decode, ClaimedRows)
    chunks = recorded(variant)
    rows = rows_of(pickle.loads(pickle.dumps(decode)), chunks, EveryTable(None))
    assert len(rows) == wire.config(variant)["counts"]["row"]
    assert [row for row in rows if row.get("error_class")] == []
    storage.delete(names[:2])
    errors = [row for row in rows_of(decode, chunks, EveryTable(None)) if row.get("error_class")]
    assert [row["error_class"] for row in errors] == ["claim-check"] * 2
    for row in errors:
        assert f"(it is looked for by its name in s3://lake/{prefix})" in str(row["error_message"])


def test_a_storage_that_is_away_is_no_letter(s3: S3Server, tmp_path: Path) -> None:
    """No bucket, no server, no folder: the read is tried again."""
    chunks = recorded("simple-json-claim-check")
    with pytest.raises(OSError, match="s3://other/claims is not there"):
        rows_of(on_s3(s3, "claims", "simple", bucket="other"), chunks, EveryTable(None))
    (port,) = free_ports(1)
    uri = f"s3://lake/claims?endpoint={quote(f'http://127.0.0.1:{port}', safe='')}&region=x"
    large = parse_large_messages(OPTION | {"claim-check-storage-uri": uri})
    with pytest.raises(OSError, match="s3://lake/claims/"):
        rows_of(with_claimed_rows(decoder_of("simple"), large, FEW_TRIES), chunks, EveryTable(None))
    gone = ClaimedRows(decoder_of("simple"), f"file://{tmp_path}/gone", is_raw=False)
    with pytest.raises(OSError, match="gone is not there"):
        rows_of(gone, chunks, EveryTable(None))


@pytest.mark.parametrize("name", ["..", "a b", "a" * 300, "a/", "\u0000", "-/./"])
def test_a_name_that_ticdc_does_not_give_is_not_looked_for(name: str, s3: S3Server) -> None:
    sent = {
        **json.loads(message()),
        "_tidb": {"commitTs": 5, "claimCheckLocation": name},
    }
    one = chunk([json.dumps(sent).encode()])
    rows = rows_of(on_s3(s3, "claims", "canal-json", bucket="other"), [one], EveryTable(None))
    assert [row["error_class"] for row in rows] == ["claim-check"]


def test_compressed_bodies_and_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TiCDC compresses the value within a file. Pieces hold few rows."""
    monkeypatch.setattr(claimed_rows, "PIECE_BYTES", 30_000)
    for variant, protocol in VARIANTS.items():
        folder = wire.claimed(variant, tmp_path / variant)
        for each in folder.iterdir():
            told = json.loads(each.read_text())
            value = base64.b64decode(told["value"])
            head = value[:8] if protocol == "open-protocol" else b""
            small = bytes(pa.Codec("lz4").compress(value[len(head) :], asbytes=True))
            framed = (len(small).to_bytes(8, "big") if head else b"") + small
            each.write_text(json.dumps({**told, "value": base64.b64encode(framed).decode()}))
        decode = ClaimedRows(decoder_of(protocol), f"file://{folder}", is_raw=False)
        rows = rows_of(decode, recorded(variant), EveryTable(None))
        assert [row for row in rows if row.get("error_class")] == []
        assert len(rows) == wire.config(variant)["counts"]["row"]
        monkeypatch.setattr(claimed_rows, "MAX_BODY_BYTES", 10)
        rows = rows_of(decode, recorded(variant), EveryTable(None))
        assert [r["error_class"] for r in rows if r.get("error_class")] == ["claim-check"] * 3
        monkeypatch.setattr(claimed_rows, "MAX_BODY_BYTES", 1 << 20)
