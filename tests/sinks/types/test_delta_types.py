from __future__ import annotations

import pytest

from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from tests.sinks.types.cast_cases import DELTA_TYPES


@pytest.mark.parametrize(("text", "expected"), DELTA_TYPES.items())
def test_delta_type_holds_the_range_of_the_mysql_type(text: str, expected: str) -> None:
    assert delta_type(MySQLType.parse(text)) == expected
