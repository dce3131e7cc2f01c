"""What is masked, what is shown, and where a secret may stand instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf import masking
from conf.load import load_settings
from conf.masking import hide, masked, masked_uri, masked_values
from conf.problems import SettingError
from conf.secret_references import Reference, parse_reference

SOURCE = "kafka://127.0.0.1:9092/shop?protocol=canal-json&enable-tidb-extension=true"


@pytest.fixture(autouse=True)
def _nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_hidden", set())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kafka://h/t?sasl-password=s3c'r,t&ca=x", "kafka://h/t?sasl-password=***&ca=x"),
        ("kafka://u:s3cr@h:1/t", "kafka://u:***@h:1/t"),
        ("delta+abfss://box@account.dfs/x", "delta+abfss://box@account.dfs/x"),
        ('required username="u" password="s\\"3 cr";', 'required username="u" password=***;'),
        ('{"etcd-password": "s3cr", "a": 1}', '{"etcd-password": "***", "a": 1}'),
        ("{'aws_secret_access_key': 's3cr'}", "{'aws_secret_access_key': \"***\"}"),
        ("AWS_SESSION_TOKEN=s3cr x=1", "AWS_SESSION_TOKEN=*** x=1"),
        ("sasl-password=${env:SHOP}&x=1", "sasl-password=${env:SHOP}&x=1"),
        ('"sasl-password": "${file:/run/s}"', '"sasl-password": "${file:/run/s}"'),
        (
            "capture_id=1 primary_key=id tokens=5",
            "capture_id=1 primary_key=id tokens=5",
        ),
    ],
)
def test_what_has_the_name_of_a_secret_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_a_uri_is_masked_up_to_the_next_parameter() -> None:
    assert masked_uri(f"{SOURCE}&sasl-password=a b\"c'd&ca=/x") == (
        f"{SOURCE}&sasl-password=***&ca=/x"
    )
    assert masked_uri(f"{SOURCE}&sasl-password=${{env:SHOP}}") == (
        f"{SOURCE}&sasl-password=${{env:SHOP}}"
    )


def test_what_was_used_is_masked_without_its_name_too() -> None:
    hide('long/en"ough')
    hide("tiny")  # a part of any word
    assert masked('it said long/en"ough, long%2Fen%22ough, tiny') == "it said ***, ***, tiny"
    assert masked_values({"a": ['x long/en"ough', 1, None]}) == {"a": ["x ***", 1, None]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain $ {text}", None),
        ("${env:SHOP_PASSWORD}", Reference("env", "SHOP_PASSWORD")),
        ("${file:/run/secrets/shop}", Reference("file", "/run/secrets/shop")),
    ],
)
def test_a_reference_is_the_whole_value(text: str, found: Reference | None) -> None:
    assert parse_reference("sasl-password", text) == found
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3cr${env:X}", "sasl-password: a reference must be the whole value"),
        ("${vault:x}", r"sasl-password: \$\{vault:…\} is not known: write \$\{env:NAME\}"),
        ("${env:}", "names nothing"),
        ("${file:secrets/shop}", "is relative"),
    ],
)
def test_a_reference_that_cannot_be_one_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingError, match=says) as refused:
        parse_reference("sasl-password", text)
    assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "file", "says"),
    [
        ({"source-uri": f"{SOURCE}&sasl-password=a&s3cr"}, "", "is written %26"),
        ({"source-uri": f"{SOURCE}&sasl-password=a#s3cr"}, "", "is written %23"),
        ({"source-uri": "kafka://u:s3/cr@h:1/t"}, "", "not before the host"),
        ({"source-uri": SOURCE, "sink-uri": "delta+s3://key:s3cr@b/x"}, "", "credentials do not"),
        ({"source-uri": SOURCE, "etcd": "http://u:s3cr@h:1"}, "", "etcd-user and etcd-password"),
        ({"source-uri": SOURCE, "etcd-password": "a${env:s3cr"}, "", None),
        ({"source-uri": SOURCE}, "[storage-options]\naws_secret_access_key = 53", "not int value"),
        ({"source-uri": SOURCE}, 'storage-options = "s3cr"', "not str value"),
        ({"source-uri": SOURCE}, "[sink]\nkafka-config = 's3cr'", "not str value"),
        ({"source-uri": SOURCE}, "etcd-password = ['s3cr']", "not list value"),
        ({"source-uri": SOURCE}, '[storage-options]\na = "${vault:x}"', "storage-options.a: "),
    ],
)
def test_no_refusal_repeats_a_secret(
    tmp_path: Path, arguments: dict[str, object], file: str, says: str | None
) -> None:
    config = tmp_path / "changefeed.toml"
    config.write_text(file)
    given = {"sink-uri": "delta:///x", **arguments}
    if says is None:
        load_settings(config=config, environment={}, arguments=given)
        return
    with pytest.raises(SettingError) as refused:
        load_settings(config=config, environment={}, arguments=given)
    assert says in str(refused.value)
    assert not {"s3cr", "s3", "53"} & set(str(refused.value).replace("'", " ").split())
    assert "s3cr" not in str(refused.value)
