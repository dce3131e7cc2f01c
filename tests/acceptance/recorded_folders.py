"""Lives that read the recorded folders of TiCDC's storage sink."""

from __future__ import annotations

from pathlib import Path

from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.acceptance.test_wire import assert_snapshot_is_current
from tests.services import wire, wire_storage
from tests.services.wire_storage import CANAL_JSON, CSV_OLD_VALUE

# The encoders of these recordings had the columns of `orders` in an order that another encoder had
# changed: between two DDLs its rows have values under other columns' names, or a text as if it were
# a number. In a file with quotes that can be told from other texts, without them it cannot.
SHIFTED = (CANAL_JSON, CSV_OLD_VALUE)


def lives_of(variant: str, folder: Path, at: Path) -> Lives:
    source = parse_source_uri(wire_storage.uri(variant, folder))
    return Lives(ThreadsOfProcess, None, at, source=source, quiet_s=0.2)


def assert_is(lives: Lives, variant: str, label: str) -> None:
    differences = wire.differences(lives.warehouse, label)
    letters = [each for each in lives.dead_letters() if each["table_name"] != "audit_log"]
    if variant in SHIFTED:
        assert {each["table_name"] for each in letters} <= {"orders"}
        assert {each["error_class"] for each in letters} <= {"cast"}
        assert all(each.startswith("orders: ") for each in differences), differences
    else:
        assert (label, differences, letters) == (label, [], [])
        assert_snapshot_is_current(lives.warehouse, label)
