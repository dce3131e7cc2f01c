"""The stand-in and a real registry are alike, and a real one has TLS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streaming.source.contract import SourceAway
from tests.contracts.registry_contract import RegistryContract, client
from tests.services.apicurio import Apicurio
from tests.services.certificates import Authority
from tests.services.registry_package import program
from tests.services.schema_registry import SchemaRegistry, serving


class TestStandIn(RegistryContract):
    @pytest.fixture
    def registry(self) -> Iterator[SchemaRegistry]:
        with serving(SchemaRegistry({})) as made:
            yield made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("registry"), "ca")


@pytest.fixture(scope="module")
def apicurio(authority: Authority) -> Iterator[Apicurio]:
    try:
        program()
    except FileNotFoundError as why:
        pytest.skip(str(why))
    with Apicurio(authority.issue("registry")) as made:
        yield made


@pytest.mark.kafka
class TestApicurio(RegistryContract):
    @pytest.fixture
    def registry(self, apicurio: Apicurio) -> Apicurio:
        return apicurio

    def test_tls(self, registry: Apicurio, authority: Authority) -> None:
        text = self._schema()
        number = registry.register("s_t-value", text)
        assert client(registry.tls_url, ca=str(authority.ca)).schemas([number]) == {number: text}
        with pytest.raises(SourceAway, match="certificate"):
            client(registry.tls_url).schemas([number])

    def test_where_its_interface_is_not(self, registry: Apicurio) -> None:
        with pytest.raises(SourceAway, match="has no such path"):
            client(registry.root).schemas([1])
