"""Of a test that runs on MariaDB 10.11 and on 11.8 the second case is one more of the same claim:
`make test-more` has it. What is asked of 11.8 alone stays in `make test`."""

from __future__ import annotations

import pytest

from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8


def mark_second_editions(items: list[pytest.Item]) -> None:
    there = {each.nodeid for each in items}
    for each in items:
        first = each.nodeid.replace(MARIADB_11_8.name, MARIADB_10_11.name)
        if first != each.nodeid and first in there:
            each.add_marker(pytest.mark.more)
