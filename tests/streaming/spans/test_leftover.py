"""What a try of a copy that failed has left, and what may be deleted of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordination.model import TableName, Ts
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.progress import DROPPED, ProgressRow
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import inspect, table_uri
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.spans.copies.leftover import delete_leftover, was_never_followed

NAME = TableName("shop", "new")
FEED = ChangefeedRow(changefeed_id="a", start_ts=1, checkpoint_ts=100, resolved_ts=100)
LOADED = ProgressRow(
    changefeed_id="a",
    incarnation=1,
    schema_name="shop",
    table_name="new",
    generation=1,
    state="replicating",
    checkpoint_ts=50,
    resolved_ts=50,
    delta_version=1,
    identity_ts=50,
    capture_id="c",
    epoch="e",
    fence=1,
)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, True),
        ({"delta_version": 2}, False),  # it has been written
        ({"checkpoint_ts": 60}, False),  # it has gone on without changes
        ({"identity_ts": 100, "checkpoint_ts": 100}, False),  # nothing has passed
        ({"state": DROPPED}, False),
    ],
)
def test_a_table_that_nobody_has_followed(change: dict[str, object], wanted: bool) -> None:
    assert was_never_followed(replace(LOADED, **change), FEED) is wanted  # type: ignore[arg-type]


def made(folder: Path, owner: str) -> str:
    uri = table_uri(str(folder), NAME)
    columns = (Column(name="id", type=MySQLType.parse("int"), nullable=False),)
    schema = TableSchema(columns=columns, key=("id",))
    target = Target(name=NAME, uri=uri, schema=schema, app_id=app_id(owner, 1, NAME))
    ddl = DdlIdentity(commit_ts=Ts(0), order=0, query="")
    create(target, properties=ownership(changefeed_id=owner, incarnation=1, ddl=ddl))
    return uri


@pytest.mark.parametrize("incarnation", [1, 2])
def test_a_table_of_another_changefeed_stays(tmp_path: Path, incarnation: int) -> None:
    for owner in ("b", "a"):
        uri = made(tmp_path / owner, owner)
        delete_leftover(uri, NAME, replace(FEED, incarnation=incarnation), Ts(70), {})
        assert (inspect(uri, {}) is None) is (owner == "a")
