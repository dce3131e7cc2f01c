"""Messages without a commit-ts and watermarks: recorded ones lead to the recorded tables."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.services import wire
from tests.services.delta_rows import read_rows

pytestmark = pytest.mark.acceptance


def test_canal_json_without_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / "canal-json-noext" / "messages.jsonl.gz"
    source = parse_source_uri(
        f"file://{path}?protocol=canal-json&at-least-once=true&partition-num=3"
    )
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    for label in ("after_load", "after_updates", "after_first_ddls"):
        lives.finish(target_ts=wire.state_ts(label))
        assert (label, wire.differences(lives.warehouse, label)) == (label, [])
    letters = {(each["table_name"], each["error_class"]) for each in lives.dead_letters()}
    assert {name for name, _ in letters} == {"audit_log"}


SECOND = 1_795_275_665_000


def canals(kind: str, row: dict[str, str] | None, table: str = "t", **more: Any) -> dict[str, Any]:
    types = {"id": "int", "v": "varchar(9)", "c": "int"}
    told = {
        "data": row and [row], "database": "shop", "es": SECOND, "id": 1, "isDdl": row is None,
        "mysqlType": row and {name: types[name] for name in row}, "old": None,
        "pkNames": row and ["id"], "sql": "", "sqlType": None, "table": table, "ts": SECOND,
        "type": kind,
    }  # fmt: skip
    return {**told, **more}


def recording_of(folder: Path, *parts: list[dict[str, Any]]) -> Path:
    found = [
        {
            "topic": "canal",
            "partition": part,
            "offset": offset,
            "key_b64": None,
            "value_b64": base64.b64encode(value.encode()).decode(),
            "headers": [],
        }
        for part, messages in enumerate(parts)
        for offset, told in enumerate(messages)
        for value in (json.dumps(told, separators=(",", ":")),)
    ]
    path = folder / "canal.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in found))
    return path


def test_a_table_and_its_rows_of_one_second_and_a_ddl_that_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a table are in another partition than its DDLs, behind other rows."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    others = [canals("INSERT", {"id": str(n)}, "other") for n in range(5)]
    t, u = "(`id` INT PRIMARY KEY, `v` VARCHAR(9))", "(`id` INT PRIMARY KEY)"
    alter = canals("ALTER", None, sql="ALTER TABLE `t` ADD COLUMN `c` INT", es=SECOND + 2_000)
    later = canals("INSERT", {"id": "9"}, "other", es=SECOND + 60_000)
    path = recording_of(
        tmp_path,
        [
            canals("CREATE", None, "other", sql=f"CREATE TABLE `other` {u}", es=SECOND - 1_000),
            *others,
            canals("CREATE", None, sql=f"CREATE TABLE `t` {t}"),
            canals("TRUNCATE", None, sql="TRUNCATE TABLE `t`"),
            alter,
            {**later, "es": SECOND + 3_000},
            alter,
            later,
        ],
        [
            canals("INSERT", {"id": "1", "v": "a"}),
            canals("INSERT", {"id": "2", "v": "b"}),
            canals("INSERT", {"id": "3", "v": "c", "c": "7"}, es=SECOND + 4_000),
            canals("INSERT", {"id": "4", "v": "d", "c": "8"}, es=SECOND + 60_000),
        ],
    )
    source = parse_source_uri(f"file://{path}?protocol=canal-json&at-least-once=true")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    lives.finish(target_ts=(SECOND + 10_000) << TSO_LOGICAL_BITS)
    assert lives.dead_letters() == []
    found = read_rows(lives.warehouse / "shop" / "t")
    rows = sorted((each["id"], each["v"], each["c"]) for each in found)
    assert rows == [(1, "a", None), (2, "b", None), (3, "c", 7)]
