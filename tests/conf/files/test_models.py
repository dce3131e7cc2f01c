"""The models of the files: the JSON schema that an editor gets, and what both refuse alike."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from conf.files.json_schema import json_schema
from conf.files.keys import CAPTURE_KEYS, CHANGEFEED_KEYS, SERVER_KEYS
from conf.files.models import ChangefeedFile, ServerFile
from conf.files.reading import ModelName, check
from tests.conf.test_load import ROOT, WHOLE_FILE

jsonschema = pytest.importorskip("jsonschema", reason="the validator comes with moto")

SERVER = """
etcd = "http://a:2379"
addr = "10.0.0.1:8300"
gc-ttl = 86400
[security]
ca-path = "ca"
cert-allowed-cn = ["a"]
"""
EXAMPLES = [
    WHOLE_FILE,
    *((ROOT / "conf" / f"{name}.toml").read_text() for name in ("local", "local-modes")),
    (ROOT / "conf" / "production.toml").read_text(),
]


def is_valid(text: str, model: Any = ChangefeedFile) -> bool:
    schema = json_schema(model)
    jsonschema.Draft7Validator.check_schema(schema)
    return bool(jsonschema.Draft7Validator(schema).is_valid(tomllib.loads(text)))


def found(text: str, model: ModelName = "ChangefeedFile") -> list[str]:
    return [line for lines in check(tomllib.loads(text), model).values() for line in lines]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_example_files_are_valid(text: str) -> None:
    assert found(text) == []
    assert is_valid(text)


def test_a_server_file_is_valid_by_its_own_schema() -> None:
    assert found(SERVER, "ServerFile") == []
    assert is_valid(SERVER, ServerFile)
    assert not is_valid(SERVER)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("target-tz = 5", "unknown key 'target-tz'; did you mean target-ts?"),
        ("start-ts = '5'", "start-ts must be an integer, not '5'"),
        ("quiet-s = 'a'", "quiet-s must be a number, not 'a'"),
        ("quiet-s = -0.5", "quiet-s must be 0 or more, not -0.5"),
        ("stall-timeout-s = 0", "stall-timeout-s must be above 0, not 0"),
        ("apply-threads = 0", "apply-threads must be above 0, not 0"),
        ("case-sensitive = 1", "case-sensitive must be true or false, not 1"),
        ("max-dead-letters = -1", "max-dead-letters must be 0 or more, not -1"),
        ("on-drop = 'kep'", "on-drop: unknown value 'kep': one of keep, drop; did you mean keep?"),
        ("bdr-mode = true", "bdr-mode is not built yet (a lake has no changes of its own to"),
        ("filter = []", "filter must be a table: [filter], not []"),
        ("[filter]\nrules = [1]", "filter.rules must be a list of strings, not 1"),
        ("[filter]\nrules = {}", "filter.rules must be a list of strings, not {}"),
        ("[filter]\ndo-dbs = []", "filter.do-dbs is not built yet (write it as `rules`)"),
        ("[filter]\nevent-filters = [1]", "must be a table: [filter.event-filters], not 1"),
        ("[sink]\ntables = {}", "sink.tables must be a table: [[sink.tables]], not {}"),
        ("[[sink.tables]]\nkey = 'id'", "sink.tables.key: unknown value 'id': one of all-columns"),
        ("[storage-options]\nSAS_KEY = 1", "storage-options.SAS_KEY must be a string, not int val"),
        ("storage-options = 'secret'", "must be a table: [storage-options], not str value"),
    ],
)
def test_what_is_refused_is_marked_by_an_editor_too(text: str, says: str) -> None:
    assert len(lines := found(text)) == 1
    assert says in lines[0]
    assert not is_valid(text)


def test_an_editor_knows_the_parameters_of_kafka_config() -> None:
    for text in ("partition-nums = 3", "codec-config = {protocl = 1}", "sasl-gssapi-user = 'x'"):
        assert not is_valid(f"[sink.kafka-config]\n{text}")
    assert is_valid("[sink.kafka-config]\ncodec-config = {enable-tidb-extension = true}")


def test_a_setting_is_described_with_its_bounds_and_choices() -> None:
    known = json_schema(ChangefeedFile)["properties"]
    assert known["max-batch-messages"]["exclusiveMinimum"] == 0
    assert known["max-batch-messages"]["default"] == 1_000_000
    assert known["on-drop"]["enum"] == ["keep", "drop"]
    assert "default" not in known["target-ts"]
    own = {*CHANGEFEED_KEYS, *CAPTURE_KEYS} - {"schema-text"}
    assert {name for name in own if not known[name].get("description")} == set()
    assert "null" not in json.dumps({**known, "zero-date": 0, "on-add-default": 0}).split('"')


def test_every_key_has_words_for_the_page() -> None:
    every = {**CHANGEFEED_KEYS, **CAPTURE_KEYS, **SERVER_KEYS}
    assert [name for name, key in every.items() if not key.says] == []
