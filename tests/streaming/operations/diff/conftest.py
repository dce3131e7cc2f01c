"""A MariaDB beside a lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.database_server import DatabaseServer
from tests.streaming.operations.diff.rig import Rig


@pytest.fixture
def rig(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[Rig]:
    with mariadb.database("diff_shop") as schema:
        found = Rig(mariadb, schema, tmp_path / "lake")
        yield found
        found.close()
