"""What is said where none of several servers can be read."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError
from streaming.source.binlog.database import of_all
from streaming.source.contract import SourceAway

AWAY = SourceAway("the database at db1:3306 does not answer")
REFUSED = ConfigError("the database at db2:3306 refuses the login")


@pytest.mark.parametrize(
    ("problems", "kind"), [([AWAY, REFUSED], SourceAway), ([REFUSED, REFUSED], ConfigError)]
)
def test_each_server_is_named(problems: list[Exception], kind: type[Exception]) -> None:
    told = of_all(problems)  # type: ignore[arg-type]
    assert type(told) is kind
    assert all(str(each) in str(told) for each in problems)
