from __future__ import annotations

import pytest

from streaming.source.binlog.connection import WANTED, others, why_away


def test_what_a_server_lacks_or_has_so_is_not_set() -> None:
    assert others(WANTED) == []
    assert others({"completion_type": "CHAIN", "wait_timeout": "86400"}) == [
        "completion_type = 'NO_CHAIN'"
    ]
    assert others({"max_statement_time": "2.500000", "sql_safe_updates": "ON"}) == [
        "max_statement_time = 0.000000",
        "sql_safe_updates = OFF",
    ]


def exceeded(limit: str) -> str:
    return f"User 'a' has exceeded the '{limit}' resource (current value: 1)"


@pytest.mark.parametrize(
    ("code", "said", "way"),
    [
        (1040, "Too many connections", "SET GLOBAL max_connections = n;"),
        (1203, "User a already has more than", "SET GLOBAL max_user_connections = n, the limit"),
        (1226, exceeded("max_user_connections"), "'a'@'its host' WITH MAX_USER_CONNECTIONS n"),
        (1226, exceeded("max_connections_per_hour"), " WITH MAX_CONNECTIONS_PER_HOUR n"),
        (1226, exceeded("max_questions"), " WITH MAX_QUERIES_PER_HOUR n"),
        (1226, "a text of another release", "does not answer: a text of another release"),
        (2013, "Lost connection", "does not answer: Lost connection"),
    ],
)
def test_the_limit_that_leaves_no_connection_is_named(code: int, said: str, way: str) -> None:
    told = why_away(code, said)
    assert said in told
    assert way in told
