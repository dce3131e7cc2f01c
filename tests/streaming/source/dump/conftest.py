"""A MariaDB or a MySQL, with an empty database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.database_server import DatabaseServer


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def schema(server: DatabaseServer) -> Iterator[str]:
    with server.database("copied", "CHARACTER SET utf8mb4") as name:
        yield name
