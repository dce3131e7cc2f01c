"""A table whose columns somebody has altered by hand is held, and a new incarnation is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from coordination.errors import TidelakeError
from coordination.model import NO_TS
from streaming.changefeed.table_registry import TableRegistry
from tests.streaming.changefeed.test_table_registry import NAME, PROGRESS, ROW, Lake

FIRST = replace(ROW, incarnation=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(tmp_path)
    DeltaTable(found.uri).alter.add_columns([Field("mine", PrimitiveType("string"))])
    return found


def test_it_is_held_alone_and_goes_on_when_its_columns_are_back(lake: Lake) -> None:
    before = DeltaTable(lake.uri).version() - 1
    held = lake.resumed(FIRST)[NAME]
    assert held.is_blocked
    assert held.checkpoint == PROGRESS.checkpoint_ts
    assert "has (id bigint, mine string), and the stream gives it (id bigint). Make" in held.error
    DeltaTable(lake.uri).restore(before)
    again = TableRegistry(lake.sink, FIRST).opened(NAME, PROGRESS, NO_TS)
    assert (again.is_blocked, again.error, again.checkpoint) == (False, "", 50)


@pytest.mark.parametrize("state", ["running", "rewinding"])
def test_no_new_incarnation_takes_it_up(lake: Lake, state: str) -> None:
    version = DeltaTable(lake.uri).version()
    with pytest.raises(TidelakeError, match=r"table shop\.a: somebody has altered its columns"):
        lake.resumed(replace(ROW, state=state))  # type: ignore[arg-type]
    assert DeltaTable(lake.uri).version() == version
