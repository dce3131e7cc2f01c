"""A folder of TiCDC's storage sink, in TiCDC's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_settings
from conf.masking import masked_uri
from conf.problems import SettingError
from conf.sources.csv_format import CsvFormat
from conf.sources.source_uri import parse_source_uri
from conf.sources.storage_uri import KNOWN, StorageSettings

JSON = "protocol=canal-json&enable-tidb-extension=true"
CSV = "protocol=csv&include-commit-ts=true"


def parsed(uri: str) -> StorageSettings:
    found = parse_source_uri(uri)
    assert isinstance(found, StorageSettings)
    return found


def test_the_usual_uris():
    assert parsed(f"file:///data/c%20dc/?{JSON}") == StorageSettings(
        folder="/data/c dc", protocol="canal-json"
    )
    found = parsed(
        f"s3://bucket/a/b?{CSV}&delimiter=%7C&quote=&binary-encoding-method=hex"
        "&output-old-value=true&output-handle-key=true&date-separator=none&worker-count=8"
        "&time-zone=Asia/Shanghai&file-index-digit=6&read-to-end=true"
    )
    assert found == StorageSettings(
        folder="s3://bucket/a/b",
        protocol="csv",
        csv=CsvFormat(delimiter="|", quote="", binary="hex", has_old=True, has_handle_key=True),
        date_separator="none",
        time_zone="Asia/Shanghai",
        has_end=True,
    )
    assert found.uri == "s3://bucket/a/b?protocol=csv"
    assert found.agreed["delimiter"] == "|"
    assert parsed(f"gcs://b/p?{CSV}").folder == "gs://b/p"
    assert parsed(f"azblob://c/p?{CSV}").folder == "az://c/p"


def test_the_store_is_told_in_ticdcs_words_and_secrets_are_not_shown():
    uri = (
        f"s3://bucket/p?{CSV}&access-key=AKI1234567&secret-access-key=geheimnis"
        "&endpoint=http://127.0.0.1:9000&region=eu-1&force-path-style=true"
    )
    found = parsed(uri)
    assert dict(found.options) == {
        "AWS_ACCESS_KEY_ID": "AKI1234567",
        "AWS_SECRET_ACCESS_KEY": "geheimnis",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_REGION": "eu-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    assert "geheimnis" not in f"{found!r}{found.uri}{masked_uri(uri)}"
    reference = parsed(f"s3://b/p?{CSV}&secret-access-key=${{env:KEY}}")
    assert dict(reference.options)["AWS_SECRET_ACCESS_KEY"] == "${env:KEY}"


def test_the_endpoint_is_that_of_the_store():
    told = f"{CSV}&endpoint=http://127.0.0.1:9"
    for scheme, names in (
        ("gs", ("GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP")),
        ("azure", ("AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP")),
        ("abfs", ("AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP")),
    ):
        found = dict(parsed(f"{scheme}://b/p?{told}").options)
        assert found == dict(zip(names, ("http://127.0.0.1:9", "true"), strict=True))
    assert parsed(f"file:///p?{told}").options == ()


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://b/p?protocol=csv", "set include-commit-ts = true under"),
        ("s3://b/p?protocol=canal-json", "enable-tidb-extension=true is needed"),
        ("s3://b/p", "protocol is missing"),
        ("s3://b/p?protocol=open-protocol", "TiCDC writes canal-json or csv into a storage"),
        (f"s3://b/p?{CSV}&delimiter=abcd", "1 to 3 characters"),
        (f"s3://b/p?{CSV}&delimiter=%0A", "none of a line's end"),
        (f"s3://b/p?{CSV}&quote=ab", "must be one character"),
        (f"s3://b/p?{CSV}&null=a,b", "neither the delimiter nor the quote"),
        (f"s3://b/p?{CSV}&binary-encoding-method=oct", "one of base64, hex"),
        (f"s3://b/p?{CSV}&terminator=%3B", "CRLF"),
        (f"s3://b/p?{CSV}&date-separator=week", "one of none, year, month, day"),
        (f"s3://b/p?{CSV}&use-table-id-as-path=yes", "use-table-id-as-path"),
        (f"s3://b/p?{CSV}&role-arn=x", "role-arn is not built here"),
        (f"s3://b/p?{CSV}&profile=x", "profile is not built here"),
        (f"azure://b/p?{CSV}&encryption-key=x", "encryption-key is not built"),
        (f"s3://b/p?{CSV}&delimeter=x", "did you mean delimiter?"),
        (f"s3://b/p?{CSV}&time-zone=Mars", "time-zone=Mars"),
        (f"s3:///p?{CSV}", "needs a bucket"),
        (f"s3://key:secret@b/p?{CSV}", "use access-key and secret-access-key"),
        (f"file://cdc?{CSV}", "write file:/// and an absolute path"),
        (f"file:///?{CSV}", "no path"),
        (f"file:///a/../b?{CSV}", "cannot be a folder"),
        ("kafka://h:9092/t?protocol=csv", "csv is in files alone"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(uri: str, says: str):
    with pytest.raises(SettingError) as raised:
        parse_source_uri(uri)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "secret@" not in str(raised.value)


def test_the_changefeed_file_of_ticdc_tells_how_rows_are_written(tmp_path: Path):
    file = tmp_path / "changefeed.toml"
    file.write_text(
        '[sink]\nprotocol = "csv"\ndate-separator = "none"\n'
        '[sink.csv]\ndelimiter = "|"\nquote = ""\ninclude-commit-ts = true\n'
        "output-old-value = true\n"
    )
    given = {"source-uri": "s3://b/shop?delimiter=%3B", "sink-uri": "delta:///lake"}
    source = load_settings(config=file, environment={}, arguments=given).changefeed.source
    assert source == StorageSettings(
        folder="s3://b/shop",
        protocol="csv",
        csv=CsvFormat(delimiter=";", quote="", has_old=True),
        date_separator="none",
    )


def test_a_changefeed_is_named_after_the_folder():
    given = {"source-uri": f"file:///data/shop?{CSV}", "sink-uri": "delta:///lake"}
    assert load_settings(config=None, environment={}, arguments=given).changefeed.id == "shop"


# All that TiCDC's storage sink knows, of both architectures: its URI, `[sink.cloud-storage-config]`
# and `[sink.csv]`, what its encoders of csv and canal-json take, and its stores.
TICDC = (
    *("protocol", "worker-count", "flush-interval", "file-size", "use-table-id-as-path"),
    *("spool-disk-quota", "spool-base-dir", "output-column-id", "file-expiration-days"),
    *("file-cleanup-cron-spec", "flush-concurrency", "output-raw-change-event"),
    *("date-separator", "enable-partition-separator", "file-index-digit", "terminator"),
    *("transaction-atomicity", "enable-tidb-extension", "content-compatible", "output-row-key"),
    *("only-output-updated-columns", "delete-only-output-handle-key-columns", "max-batch-size"),
    *("max-message-bytes", "encoder-concurrency", "safe-mode", "enable-table-across-nodes"),
    *("delimiter", "quote", "null", "include-commit-ts", "binary-encoding-method"),
    *("output-old-value", "output-handle-key", "output-field-header"),
    *("endpoint", "region", "storage-class", "sse", "sse-kms-key-id", "acl", "access-key"),
    *("secret-access-key", "session-token", "provider", "force-path-style"),
    *("use-accelerate-endpoint", "role-arn", "external-id", "object-lock-enabled", "profile"),
    *("predefined-acl", "credentials-file", "account-name", "account-key", "sas-token"),
    *("access-tier", "encryption-scope", "encryption-key"),
)
REFUSED = ("role-arn", "profile", "encryption-key")
OURS = ("read-to-end", "time-zone", "partition-num")


def test_each_option_of_ticdc_is_read_or_changes_nothing_or_is_refused():
    assert set(TICDC) | set(OURS) == set(KNOWN)
    for name in REFUSED:
        with pytest.raises(SettingError, match=f"{name} is not built"):
            parse_source_uri(f"s3://b/p?{CSV}&{name}=x")


def test_the_changefeed_file_tells_how_folders_are_named(tmp_path: Path):
    file = tmp_path / "changefeed.toml"
    file.write_text(
        '[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\n'
        "[sink.cloud-storage-config]\nuse-table-id-as-path = true\nfile-size = 1048576\n"
    )
    given = {"source-uri": "s3://b/shop", "sink-uri": "delta:///lake"}
    source = load_settings(config=file, environment={}, arguments=given).changefeed.source
    assert isinstance(source, StorageSettings)
    assert source.by_id
