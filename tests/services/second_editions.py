"""Which servers a test has in ``make test``, and which in ``make test-more`` alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

from tests.services.database_editions import EDITIONS, MARIADB_10_11, MYSQL_9_7, Edition


def second(*editions: Edition) -> list[ParameterSet]:
    """What MariaDB 10.11 has shown is not another claim on these."""
    return [pytest.param(each, marks=pytest.mark.more) for each in editions]


def first_of(editions: Sequence[Edition], first: Sequence[Edition]) -> list[Edition | ParameterSet]:
    """``editions`` in their order; those that are not among the first are second ones."""
    return [each if each in first else second(each)[0] for each in editions]


MARIADB_FIRST = first_of(EDITIONS, [MARIADB_10_11])
BOTH_FIRST = first_of(EDITIONS, [MARIADB_10_11, MYSQL_9_7])
