"""One server of each edition for the tests of a module, with an empty database ``d``."""

from __future__ import annotations

import pytest

from tests.services.database_server import DatabaseServer


@pytest.fixture
def server(request: pytest.FixtureRequest, running: dict[str, DatabaseServer]):
    edition = request.param
    if edition.name not in running:
        running[edition.name] = DatabaseServer(edition).start()
    with running[edition.name].database("d"):
        yield running[edition.name]


@pytest.fixture(scope="module")
def running():
    found: dict[str, DatabaseServer] = {}
    yield found
    for each in found.values():
        each.stop()
