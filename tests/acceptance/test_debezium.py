"""What TiCDC's encoder of Debezium wrote leads to the recorded tables, but for the cells that it
has lost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.errors import TidelakeError
from coordination.model import TableName
from streaming.changefeed.freshness import Freshness
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.operations.progress_report import ProgressReport, read_progress
from tests.acceptance.one_process import Lives
from tests.services import wire
from tests.services.delta_rows import read_rows

pytestmark = pytest.mark.acceptance
LABELS = (
    "after_load",
    "after_updates",
    "after_first_ddls",
    "after_renames",
    "after_partition_ddls",
    "final",
)


def lost(warehouse: Path, label: str) -> dict[str, set[tuple[Any, Any]]]:
    """By ``table.column``, the cells that differ: what they should be, and what they are."""
    found: dict[str, set[tuple[Any, Any]]] = {}
    for table in wire.expected(label).values():
        if table.key is None:
            continue
        actual = read_rows(warehouse / "shop" / table.name)
        by_key = {tuple(row[each] for each in table.key): row for row in actual}
        keys = {tuple(row[each] for each in table.key) for row in table.rows}
        for key in by_key.keys() ^ keys:
            found.setdefault(f"{table.name}.*", set()).add((key in keys, key in by_key))
        for row in table.rows:
            here = by_key.get(tuple(row[each] for each in table.key))
            for name, value in row.items():
                if here is not None and here.get(name) != value:
                    cell = found.setdefault(f"{table.name}.{name}", set())
                    cell.add((str(value), str(here.get(name))))
    return found


# Cells that the encoder has lost, whoever reads them. Doubles have 15 digits. Years below 100 are
# those of this century, a zero TIMESTAMP as the second 0. In the recorded run the encoder had the
# columns of `orders` in an order that another encoder had changed: behind ADD COLUMN … AFTER it
# wrote NULL as another column's default, and the fraction of seconds by another column's digits.
LOST = {
    "alltypes.c_dec": lambda was, now: is_rounded(was, now),
    "alltypes.c_udec": lambda was, now: is_rounded(was, now),
    "orders.amount": lambda was, now: is_rounded(was, now),
    "alltypes.c_date": lambda was, now: was[:4] == "0001" and was[4:] == now[4:],
    "alltypes.c_datetime": lambda was, now: was[:4] == "0001" and was[4:] == now[4:],
    "alltypes.c_datetime6": lambda was, now: was[:4] == "0001" and was[4:] == now[4:],
    "alltypes.c_timestamp": lambda was, now: (was, now) == ("None", "1970-01-01 00:00:00+00:00"),
    "alltypes.c_timestamp6": lambda was, now: (was, now) == ("None", "1970-01-01 00:00:00+00:00"),
    "orders.created_at": lambda was, now: was[:18] == now[:18] and "." not in now,
    "orders.order": lambda _, now: now == "-1",
    "orders.maybe": lambda _, now: now == "-1",
}


def is_rounded(was: str, now: str) -> bool:
    return Decimal(now) == Decimal(repr(float(was))) or abs(Decimal(was) - Decimal(now)) <= abs(
        Decimal(was)
    ) * Decimal("2e-16")


def report(lives: Lives) -> ProgressReport:
    sink = lives.settings.changefeed.sink
    return read_progress(sink, None, Freshness())


@pytest.mark.parametrize(
    "variant", ["debezium", pytest.param("debezium-noschema", marks=pytest.mark.more)]
)
def test_recorded_bytes_lead_to_every_recorded_state(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row whose decimal(20) is rounded beyond its digits is a dead letter."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / variant / "messages.jsonl.gz"
    uri = f"file://{path}?protocol=debezium&enable-tidb-extension=true&partition-num=3"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
    for label in LABELS if variant == "debezium-noschema" else LABELS[-1:]:
        lives.finish(target_ts=wire.state_ts(label))
        found = lost(lives.warehouse, label)
        assert found.pop("alltypes.*") == {(True, False)}, label
        for column, cells in found.items():
            for was, now in cells:
                assert LOST[column](was, now), (label, column, was, now)
        told = report(lives).lossy["shop", TableName("shop", "alltypes")]
        assert {"c_dec", "c_udec", "c_date", "c_datetime", "c_timestamp"} <= told.keys()
        assert not {"c_dec2", "c_ubigint", "c_time", "c_double", "id"} & told.keys()
        for column in found:  # but for what another encoder had changed
            table, _, name = column.partition(".")
            assert table != "alltypes" or name in told, column
        classes = {(each["table_name"], each["error_class"]) for each in lives.dead_letters()}
        assert {each for each in classes if each[0] != "audit_log"} == {("alltypes", "cast")}


def test_strict_types_refuse_a_table_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / "debezium-noschema" / "messages.jsonl.gz"
    uri = f"file://{path}?protocol=debezium&enable-tidb-extension=true&partition-num=3"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
    changefeed = replace(lives.settings.changefeed, strict_types=True)
    lives.settings = replace(lives.settings, changefeed=changefeed)
    error = lives.live(target_ts=wire.state_ts("after_load"))
    assert isinstance(error, TidelakeError)
    assert "table shop.orders: strict-types: protocol=debezium loses values of amount" in str(error)
    assert "set strict-types = false" in str(error)
    assert not (lives.warehouse / "shop" / "orders").exists()
    (row,) = report(lives).changefeeds
    assert row.state == "failed"
    assert row.error is not None
    assert "strict-types" in row.error
