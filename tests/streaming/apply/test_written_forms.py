"""Rows of the stream in tables of each form, as the applier casts and writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conf.settings import BatchSettings, DeltaSink, FilterSettings, TableRule
from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.target.engine_port import Applied
from sinks.target.table_properties import DdlIdentity
from streaming.apply.applier import Applier, DueTable
from streaming.apply.table_task import TableTask
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import WriteModes
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.row_histories import truncate
from tests.streaming.apply.blocks import A, Row, blocks_of
from tests.streaming.apply.resolved import PLAIN, numbered, row
from tests.streaming.changefeed.test_table_registry import NEW

EXTRA = ("_tidelake_commit_ts", "_tidelake_op")


class Written:
    """Table A in the form of a rule, and an applier without Spark."""

    def __init__(self, warehouse: Path, **rule: Any) -> None:
        self.sink = DeltaSink(warehouse=str(warehouse), apply_engine="merge-on-write")
        forms = WriteModes((TableRule(matcher=("*.*",), **rule),))
        self.spans = TableRegistry(self.sink, NEW, forms)
        ddl = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE …")
        self.spans.create(A, PLAIN, ddl, Ts(5))
        source = SimpleNamespace(time_zone="UTC", protocol="canal-json")
        changefeed: Any = SimpleNamespace(
            sink=self.sink,
            source=source,
            ddl_time_zone=None,
            zero_date="null",
            on_unknown_column="dead-letter",
            integrity_check_level="none",
            filter=FilterSettings(),
        )
        nothing: Any = lambda *_: None  # noqa: E731
        permit: Any = SimpleNamespace(
            check=nothing, begin=nothing, ended=nothing, signature=lambda _: {}
        )
        letters: Any = SimpleNamespace(
            add_rows=nothing, counts={}, dead_letters=None, by=SimpleNamespace(incarnation=1)
        )
        self.applier = Applier(
            changefeed=changefeed,
            batch=BatchSettings(apply_threads=1),
            compiling=nothing,
            permit=permit,
            spans=self.spans,
            dead_letters=letters,
            letter_shapes=nothing,
            job_tag="none",
        )

    def apply(self, rows: Sequence[Row], limit: int) -> None:
        """All rows come again each time."""
        span = self.spans[A]
        assert span.target is not None
        task = TableTask(
            name=A, schema=span.target.schema, checkpoint=span.checkpoint, form=span.target.form
        )
        due = DueTable(task=task, blocks=blocks_of(rows))
        assert not self.applier.apply([due], Ts(limit)).waiting
        assert self.spans[A].checkpoint == limit

    def truncate(self, ts: int) -> None:
        target = self.spans[A].target
        assert target is not None
        engine = MergeOnWriteEngine({}, keeps_up=False)
        assert isinstance(engine.alter(truncate(target, ts)), Applied)
        engine.close()
        self.spans.put(self.spans.look_again(A))

    def read(self, *names: str) -> list[tuple[Any, ...]]:
        found = read_rows(self.spans.uri(A))
        return sorted((tuple(each[name] for name in names) for each in found), key=repr)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    written: list[Written] = []

    def make(**rule: Any) -> Written:
        written.append(Written(tmp_path, **rule))
        return written[-1]

    yield make
    for each in written:
        each.applier.close()


def cells(id: int, v: str) -> dict[str, str | None]:
    return {"id": str(id), "v": v}


ROWS = numbered(
    [
        row("INSERT", 20, cells(1, "a")),
        row("UPDATE", 30, cells(1, "b")),
        row("INSERT", 30, cells(2, "x")),
        row("DELETE", 40, cells(1, "b")),
        row("UPDATE", 50, cells(3, "x"), cells(2, "x")),
        row("INSERT", 70, cells(1, "c")),
    ]
)


@pytest.mark.parametrize("limits", [(55,), (25, 35, 45, 55)])
def test_a_history(made: Any, limits: Sequence[int]) -> None:
    written = made(write_mode="history")
    for limit in limits:
        written.apply(ROWS, limit)
    versions = [(1, "a", 20, 30), (1, "b", 30, 40), (2, "x", 30, 50), (3, "x", 50, None)]
    names = ("id", "v", "_valid_from_ts", "_valid_to_ts")
    assert written.read(*names) == versions
    written.truncate(60)
    written.apply(ROWS, 80)
    assert written.read(*names) == [(1, "a", 20, 30), (1, "b", 30, 40), (1, "c", 70, None),
                                    (2, "x", 30, 50), (3, "x", 50, 60)]  # fmt: skip
    assert written.read("id", "_is_current")[2] == (1, True)


@pytest.mark.parametrize("limits", [(55,), (25, 35, 45, 55)])
def test_soft_deletes_and_extra_columns(made: Any, limits: Sequence[int]) -> None:
    written = made(soft_delete=True, extra_columns=EXTRA)
    for limit in limits:
        written.apply(ROWS, limit)
    names = ("id", "v", *EXTRA, "_tidelake_deleted")
    assert written.read(*names) == [
        (1, "b", 40, "delete", True), (2, "x", 50, "delete", True), (3, "x", 50, "insert", False),
    ]  # fmt: skip
    written.truncate(60)
    written.apply(ROWS, 80)
    assert written.read(*names) == [
        (1, "c", 70, "insert", False), (2, "x", 50, "delete", True), (3, "x", 60, "delete", True),
    ]  # fmt: skip
