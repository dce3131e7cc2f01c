"""What every registry of schemas does that avro is read with, seen by our client for it."""

from __future__ import annotations

import itertools
from typing import Protocol

import pytest

from conf.sources.schema_registry import parse_registry
from streaming.source.contract import SourceAway
from streaming.source.outside.registry import PATIENCE_S, RegistryClient
from tests.services import wire


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def client(url: str, clock: Clock | None = None, **more: str) -> RegistryClient:
    told = {f"schema-registry-{name}": value for name, value in more.items()}
    settings = parse_registry({"schema-registry": url, **told})
    assert settings is not None
    return RegistryClient(settings, clock or Clock())


class Registry(Protocol):
    """``register``: as TiCDC does; the id. ``kill``, ``restart``: at the same place."""

    @property
    def url(self) -> str: ...
    def register(self, _subject: str, _schema: str, /) -> int: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...


class RegistryContract:
    """A subclass has a fixture `registry`, which may be one for all its tests."""

    _numbers = itertools.count()

    def _schema(self) -> str:
        """One that was not there."""
        name = f"t{next(self._numbers)}"
        field = '{"name":"a","type":{"type":"int","connect.parameters":{"tidb_type":"INT"}}}'
        return f'{{"type":"record","name":"{name}","namespace":"d.s","fields":[{field}]}}'

    def test_ids_of_subjects(self, registry: Registry) -> None:
        one, two = self._schema(), self._schema()
        number = registry.register("s_t-value", one)
        assert registry.register("s_other-key", one) == number
        later = registry.register("s_t-value", two)  # and no other schema has it
        assert client(registry.url).schemas([number, later]) == {number: one, later: two}

    def test_each_text_of_ticdc_comes_as_it_was(self, registry: Registry) -> None:
        told = wire.schemas("avro-watermark")
        ids = {registry.register(f"s{old}-value", text): text for old, text in told.items()}
        assert client(registry.url).schemas(ids) == ids

    def test_an_unknown_id(self, registry: Registry) -> None:
        clock = Clock()
        asking = client(registry.url, clock)
        for clock.now in (0.0, PATIENCE_S - 1):
            with pytest.raises(SourceAway, match="does not have the schema of the id 2000000001"):
                asking.schemas([2_000_000_001])
        clock.now = PATIENCE_S
        assert asking.schemas([2_000_000_001]) == {2_000_000_001: None}
        assert asking.schemas([0xFFFF_FFFF])[0xFFFF_FFFF] is None

    def test_a_registry_that_is_killed_and_comes_back(self, registry: Registry) -> None:
        text = self._schema()
        number = registry.register("s_t-value", text)
        asking = client(registry.url)
        registry.kill()
        with pytest.raises(SourceAway, match="does not answer"):
            asking.schemas([number])
        registry.restart()
        assert asking.schemas([number]) == {number: text}
        assert registry.register("s_t-value", text) == number

    def test_another_path_says_nothing_of_schemas(self, registry: Registry) -> None:
        """A path that was forgotten must not make every message a dead letter."""
        number = registry.register("s_t-value", self._schema())
        base, _, _ = registry.url.partition("/apis")
        for url in (f"{base}/elsewhere", f"{base}/apis/ccompat"):
            clock = Clock()
            asking = client(url, clock)
            for clock.now in (0.0, 2 * PATIENCE_S):
                with pytest.raises(SourceAway, match="has no such path"):
                    asking.schemas([number])
