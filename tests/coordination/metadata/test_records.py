"""Records come back as they were: TiCDC's names and order, and with what we do not know."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from coordination.metadata.errors import BrokenValue
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    Record,
    RunningError,
    TaskPosition,
    dump,
    load,
    rfc3339,
)

ERROR_JSON = {
    "time": "2024-01-02T03:04:05.123456789Z",
    "addr": "a",
    "code": "CDC:E",
    "message": "m",
}
INFO_JSON = {
    "upstream-id": 18446744073709551615,
    "namespace": "default",
    "changefeed-id": "shop",
    "sink-uri": "kafka://b/t?x=1&y=<2>",
    "create-time": "2020-02-02T00:00:00.000000001+08:00",
    "start-ts": 417257993615179777,
    "target-ts": 0,
    "admin-job-type": 1,
    "sort-engine": "unified",
    "sort-dir": "sort",
    "config": {"case-sensitive": False, "filter": {"rules": ["*.*"]}, "größe": 1},
    "state": "failed",
    "error": ERROR_JSON,
    "warning": None,
    "creator-version": "v8.5.0",
    "epoch": 454176230809600001,
}
RECORDS: list[tuple[type[Record], dict]] = [
    (ChangefeedInfo, INFO_JSON),
    (ChangefeedStatus, {"checkpoint-ts": 4, "min-table-barrier-ts": 5, "admin-job-type": 3}),
    (
        TaskPosition,
        {
            "checkpoint-ts": 0,
            "resolved-ts": 0,
            "count": 0,
            "error": ERROR_JSON,
            "warning": ERROR_JSON,
        },
    ),
    (RunningError, ERROR_JSON),
]


def encoded(fields: dict) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(("kind", "fields"), RECORDS)
def test_a_record_is_written_as_ticdc_names_and_orders_it(kind: type[Record], fields: dict) -> None:
    assert dump(load(kind, encoded(fields))) == encoded(fields)


@pytest.mark.parametrize(("kind", "fields"), RECORDS)
def test_unknown_fields_survive_wherever_they_stand(kind: type[Record], fields: dict) -> None:
    newer = {"zz-new": {"deep": [1, None]}, **fields, "aa-new": 1.5}
    assert json.loads(dump(load(kind, encoded(newer)))) == newer


@pytest.mark.parametrize(("kind", "fields"), RECORDS)
def test_missing_and_null_fields_have_their_defaults(kind: type[Record], fields: dict) -> None:
    needed = {"changefeed-id": "shop"} if kind is ChangefeedInfo else {}
    assert load(kind, encoded(needed)) == load(kind, encoded(dict.fromkeys(fields) | needed))


def test_an_unknown_field_within_an_error_survives_a_change_of_the_state() -> None:
    newer = {**INFO_JSON, "error": {**ERROR_JSON, "retries": 3}, "sync-point": True}
    changed = replace(load(ChangefeedInfo, encoded(newer)), state=FeedState.STOPPED)
    assert json.loads(dump(changed)) == {**newer, "state": "stopped"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b"{}",
        encoded({**INFO_JSON, "state": "dancing"}),
        encoded({**INFO_JSON, "admin-job-type": 9}),
        encoded({**INFO_JSON, "start-ts": "12"}),
        encoded({**INFO_JSON, "error": "text"}),
        b"\xff",
    ],
)
def test_what_is_no_info_is_refused(value: bytes) -> None:
    with pytest.raises(BrokenValue):
        load(ChangefeedInfo, value)


def test_states_are_ticdcs() -> None:
    assert {each for each in FeedState if each.is_running} == {FeedState.NORMAL, FeedState.WARNING}


def test_times_are_written_as_go_does() -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert rfc3339(at) == "2024-01-02T03:04:05.000006Z"
