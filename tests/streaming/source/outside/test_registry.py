"""The registry of schemas: what is asked, what is kept, and what becomes of each trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.masking import masked
from coordination.errors import ConfigError
from streaming.source.contract import SourceAway
from streaming.source.outside.registry import MOST_LACKED, PATIENCE_S
from tests.contracts.registry_contract import Clock, client
from tests.services.certificates import Authority
from tests.services.schema_registry import SchemaRegistry, serving

SCHEMAS = {1: '{"type":"record"}', 2: '{"type":"string"}'}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving(SchemaRegistry(SCHEMAS)) as made:
        yield made


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    asking = client(registry.url)
    assert asking.schemas([1]) == {1: SCHEMAS[1]}
    assert asking.schemas([2, 1]) == SCHEMAS
    assert registry.asked == [1, 2]
    assert asking.known == SCHEMAS


def test_an_unknown_id_is_waited_for_and_then_is_none(registry: SchemaRegistry) -> None:
    clock = Clock()
    asking = client(registry.url, clock)
    for clock.now in (0.0, PATIENCE_S - 1):
        with pytest.raises(SourceAway, match="does not have the schema of the id 3"):
            asking.schemas([1, 3])
    clock.now = PATIENCE_S
    assert asking.schemas([1, 3]) == {1: SCHEMAS[1], 3: None}
    registry.schemas[3] = "{}"
    assert asking.schemas([3])[3] == "{}"


def test_garbage_does_not_ask_for_ever(registry: SchemaRegistry) -> None:
    clock, ids = Clock(), range(10, 10 + 3 * MOST_LACKED)
    asking = client(registry.url, clock)
    with pytest.raises(SourceAway):
        asking.schemas(ids)
    clock.now = PATIENCE_S
    assert asking.schemas(ids) == dict.fromkeys(ids)
    assert len(registry.asked) == 2 * MOST_LACKED


def test_as_many_ids_as_there_are_tables_are_asked_for(registry: SchemaRegistry) -> None:
    asking = client(registry.url)
    ids = range(1, MOST_LACKED + 3)
    registry.schemas.update(dict.fromkeys(ids, "{}"))
    assert asking.schemas(ids) == dict.fromkeys(ids, "{}")


def test_a_registry_that_is_away_or_in_trouble(registry: SchemaRegistry) -> None:
    with pytest.raises(SourceAway, match="does not answer"):
        client("http://127.0.0.1:9").schemas([1])
    registry.trouble = 500
    with pytest.raises(SourceAway, match="answers with 500"):
        client(registry.url).schemas([1])


def test_a_slow_registry(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.source.outside.registry.TIMEOUT_S", 0.2)
    registry.delay_s = 1.0
    with pytest.raises(SourceAway, match=r"does not answer: .*timed out"):
        client(registry.url).schemas([1])


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", b'{"schema":3}', b"[" * 100_000])
def test_another_server(registry: SchemaRegistry, answer: bytes) -> None:
    registry.answer = answer
    if answer == b'{"schema":3}':
        assert client(registry.url).schemas([1]) == {1: "{}"}
    else:
        with pytest.raises(ConfigError, match="is no schema registry"):
            client(registry.url).schemas([1])


def test_a_page_that_is_not_there_is_no_schema_that_is_not_there(registry: SchemaRegistry) -> None:
    registry.answer, registry.trouble = b"not found", 404
    with pytest.raises(SourceAway, match="has no such path"):
        client(registry.url).schemas([1])


def test_login(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(SchemaRegistry(SCHEMAS, login=("joe", "s3cret-of-joe"))) as registry:
        for known in (
            client(registry.url, user="joe", password="s3cret-of-joe"),
            client(registry.url.replace("//", "//joe:s3cret-of-joe@")),
        ):
            assert known.schemas([1]) == {1: SCHEMAS[1]}
        assert "s3cret" not in masked(f"{registry.url} s3cret-of-joe")
        monkeypatch.setenv("REGISTRY_PW", "s3cret-of-joe")
        named = client(registry.url, user="joe", password="${env:REGISTRY_PW}")
        assert named.schemas([2]) == {2: SCHEMAS[2]}
        for wrong in (client(registry.url), client(registry.url, user="joe", password="x")):
            with pytest.raises(ConfigError, match="refuses the login"):
                wrong.schemas([1])


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    with serving(SchemaRegistry(SCHEMAS), authority.issue("registry")) as registry:
        assert client(registry.url, ca=str(authority.ca)).schemas([1]) == {1: SCHEMAS[1]}
        with pytest.raises(SourceAway, match="certificate"):
            client(registry.url).schemas([1])
        with pytest.raises(ConfigError, match="schema-registry-ca"):
            client(registry.url, ca="/nowhere/ca.pem").schemas([1])
