"""Rows that were deleted stay, marked; they are in nobody's way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordination.errors import TidelakeError
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.target.engine_port import OP_COLUMN, Applied, Target
from sinks.target.write_mode import ROW_DELETED, WriteMode
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import column
from tests.sinks.merge_on_write.ddls import ID, V, change, ddl
from tests.sinks.merge_on_write.orders import target, write

BY_V = change(ID, V, key=("v",))
Row = tuple[int, str | None, bool]  # id, v, whether it is deleted


@pytest.fixture
def soft(tmp_path: Path) -> Target:
    made = replace(target(str(tmp_path / "t")), form=WriteMode(soft_delete=True))
    create(made, properties={})
    return made


def put(engine: MergeOnWriteEngine, soft: Target, limit: int, *rows: Row) -> None:
    ids, texts, deleted = zip(*rows, strict=True)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "v": pa.array(texts, pa.string()),
        ROW_DELETED: pa.array(deleted, pa.bool_()),
        OP_COLUMN: ["U"] * len(rows),
    }
    engine.apply(replace(write(soft.uri, limit, {}), target=soft, changes=pa.table(columns)))


def shown(soft: Target) -> Iterable[Row]:
    return sorted((row["id"], row["v"], row[ROW_DELETED]) for row in read_rows(soft.uri))


def test_a_deleted_row_gives_way_to_what_has_its_new_key(
    engine: MergeOnWriteEngine, soft: Target
) -> None:
    put(engine, soft, 10, (1, "x", True), (2, "y", True), (3, None, True))
    put(engine, soft, 20, (4, "x", False), (5, "z", False))
    order = replace(ddl(soft.uri, BY_V), target=soft)
    assert isinstance(engine.alter(order), Applied)
    assert shown(soft) == [(2, "y", True), (4, "x", False), (5, "z", False)]
    by_v = replace(soft, schema=BY_V.after)
    put(engine, by_v, 200, (6, "x", False), (2, "y", False))
    assert shown(soft) == [(2, "y", False), (5, "z", False), (6, "x", False)]


@pytest.mark.parametrize("v", ["x", None])
def test_rows_that_are_there_do_not(
    engine: MergeOnWriteEngine, soft: Target, v: str | None
) -> None:
    put(engine, soft, 10, (1, v, False), (2, "x", False), (3, "x", True))
    with pytest.raises(TidelakeError, match=r"its key becomes \(v\), and (two|some) rows"):
        engine.alter(replace(ddl(soft.uri, BY_V), target=soft))
    assert len(read_rows(soft.uri)) == 3


def test_a_deleted_rows_value_needs_no_place_in_a_new_type(
    engine: MergeOnWriteEngine, soft: Target
) -> None:
    put(engine, soft, 10, (1, "x", True), (2, "7", True), (3, "8", False))
    order = replace(ddl(soft.uri, change(ID, column("v", "int"))), target=soft)
    assert isinstance(engine.alter(order), Applied)
    assert [row["v"] for row in sorted(read_rows(soft.uri), key=id_of)] == [None, 7, 8]


def test_one_that_is_there_does(engine: MergeOnWriteEngine, soft: Target) -> None:
    put(engine, soft, 10, (1, "deleted", True), (2, "there", False))
    with pytest.raises(TidelakeError, match="there"):
        engine.alter(replace(ddl(soft.uri, change(ID, column("v", "int"))), target=soft))


def id_of(row: Mapping[str, Any]) -> int:
    return int(row["id"])
