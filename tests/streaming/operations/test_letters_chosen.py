"""Which dead letters an operator has named."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from coordination.errors import ConfigError
from sinks.control.dead_letters import SCHEMA
from streaming.operations.letters import Chosen


def letter(schema: str | None, table: str | None) -> dict[str, object]:
    empty = {field.name: None for field in SCHEMA}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return {**empty, "schema_name": schema, "table_name": table, "created_at": at}


def test_a_dot_may_be_in_a_name() -> None:
    letters = pa.Table.from_pylist(
        [letter("shop", "t"), letter("shop.eu", "t"), letter("shop", "eu.t"), letter(None, None)],
        schema=SCHEMA,
    )
    assert Chosen(table="shop.t").among(letters).num_rows == 1
    assert Chosen(table="shop.eu.t").among(letters).num_rows == 2, "both are shown so"
    with pytest.raises(ConfigError, match=r"must be schema\.table"):
        Chosen(table="t").among(letters)
