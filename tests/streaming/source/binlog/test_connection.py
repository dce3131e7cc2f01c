from __future__ import annotations

from streaming.source.binlog.connection import WANTED, others


def test_what_a_server_lacks_or_has_so_is_not_set() -> None:
    assert others(WANTED) == []
    assert others({"completion_type": "CHAIN", "wait_timeout": "86400"}) == [
        "completion_type = 'NO_CHAIN'"
    ]
    assert others({"max_statement_time": "2.500000", "sql_safe_updates": "ON"}) == [
        "max_statement_time = 0.000000",
        "sql_safe_updates = OFF",
    ]
