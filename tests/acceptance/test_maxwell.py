"""maxwell: TiCDC's recorded messages lead to the recorded tables, but for what its encoder could
not write."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.letter_commands import LetterCommands
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
FIRST_SECOND = 1_795_275_665  # of the recorded changes, which were made in three
APART = 10  # seconds between the changes of two labels
Key = tuple[str, ...]


def stage(ts: int) -> int:
    return next(n for n, label in enumerate(LABELS) if ts <= wire.state_ts(label))


def target_ts(label: str) -> int:
    second = FIRST_SECOND + 3 + APART * LABELS.index(label)
    return second * 1_000 << TSO_LOGICAL_BITS


def later(value: bytes, note: str) -> bytes:
    """The message, as if the changes of its label had been made some seconds later. TiCDC writes
    whole seconds, and the labels of the recording lie in three."""
    by = APART * stage(int(re.findall(r"commitTs=(\d+)", note)[0]))

    def moved(found: re.Match[bytes]) -> bytes:
        ts = int(found[1])
        return b'"ts":%d' % (ts + (by * 1_000 << TSO_LOGICAL_BITS if ts >= 1 << 52 else by))

    return re.sub(rb'"ts":(\d+)', moved, value, count=1)


def recording(path: Path) -> str:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for each in wire.messages("maxwell"):
            if each.note.startswith("replay2"):
                continue
            value = base64.b64encode(later(each.value or b"", each.note)).decode()
            told = {"topic": each.topic, "partition": each.partition, "offset": each.offset}
            file.write(json.dumps({**told, "key_b64": None, "value_b64": value}) + "\n")
    return f"file://{path}?protocol=maxwell&at-least-once=true&partition-num=3"


def not_written() -> Iterator[tuple[str, int]]:
    """Tables and commit-ts of the rows at which TiCDC's encoder failed."""
    for each in wire.config("maxwell")["encoderErrors"]:
        if found := re.match(r"row \w+ (\w+) (\d+): PANIC", each):
            yield found[1], int(found[2])


def holes(label: str) -> dict[str, set[Key]]:
    """The keys of these rows by then, as canal-json has them, which wrote the same changes."""
    failed, found = set(not_written()), defaultdict[str, set[Key]](set)
    for each in wire.messages("canal-json"):
        told: dict[str, Any] = json.loads(each.value or b"{}")
        ts = told.get("_tidb", {}).get("commitTs", 0)
        if (told["table"], ts) in failed and ts <= wire.state_ts(label):
            key = wire.expected("after_load")[told["table"]].key
            found[told["table"]] |= {
                tuple(row[name] for name in key or ()) for row in told["data"] or ()
            }
    return found


def lost(warehouse: Path, label: str) -> dict[str, set[Any]]:
    """By ``table.column``, the cells that differ: what they should be, and what they are. By
    ``table.*`` the keys of rows that are on one side alone."""
    missing, found = holes(label), dict[str, set[Any]]()
    for table in wire.expected(label).values():
        if table.key is None:
            continue
        sides = (table.rows, read_rows(warehouse / "shop" / table.name))
        wanted, here = (
            {key: row for row in rows if (key := tuple(row[n] for n in table.key or ()))}
            for rows in sides
        )
        for key in wanted.keys() | here.keys():
            if tuple(map(str, key)) in missing[table.name]:
                continue
            if key not in wanted or key not in here:
                found.setdefault(f"{table.name}.*", set()).add(key)
                continue
            for name, value in wanted[key].items():
                if here[key].get(name) != value:
                    cell = (str(value), str(here[key].get(name)))
                    found.setdefault(f"{table.name}.{name}", set()).add(cell)
    return found


def mixed_up() -> set[tuple[int]]:
    """Keys of rows in which TiCDC's encoder wrote the default of one column as another's NULL."""
    rows = (json.loads(each.value or b"{}") for each in wire.messages("maxwell"))
    told = (row.get("data", {}) for row in rows if row["table"] == "orders")
    return {(row["id"],) for row in told if isinstance(row.get("maybe"), str)}


def test_recorded_bytes_lead_to_every_recorded_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not there: rows at which the encoder failed, and those that it mixed up, which are dead
    letters. A TiCDC that begins anew sends DDLs again; but for the exchange of two names, which
    nothing tells from another one."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = parse_source_uri(recording(tmp_path / "maxwell.jsonl.gz"))
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    for label in LABELS:
        is_last = label == LABELS[-1]
        lives.finish(target_ts=open_source(source).end_ts() if is_last else target_ts(label))
        found = lost(lives.warehouse, label)
        assert (label, found.pop("orders.*", set()) <= mixed_up(), found) == (label, True, {})
    letters = {(each["table_name"], each["error_class"]) for each in lives.dead_letters()}
    # Rows of the last window are sent again behind the DDL that drops a column of theirs.
    sent_again = ("stock", "unknown-column")
    assert {each for each in letters if each[0] != "audit_log"} == {("orders", "cast"), sent_again}


def ticdcs(kind: str, at_s: int, **sides: Any) -> bytes:
    told = {"database": "shop", "table": "t", "type": kind, "ts": at_s, **sides}
    return json.dumps(told, separators=(",", ":")).encode()


def ddl(at_s: int, query: str) -> bytes:
    """As TiCDC sends it, to each partition."""
    told = {"type": "table-alter", "database": "shop", "table": "t", "old": {}, "def": {}}
    more = {"ts": at_s * 1_000 + 500 << TSO_LOGICAL_BITS, "sql": query}
    return json.dumps({**told, **more}, separators=(",", ":")).encode()


def test_a_row_of_a_message_of_several_is_a_letter_of_its_own_and_is_replayed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each partition has rows of one second on both sides of a DDL, which counts once."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    at, big = FIRST_SECOND, 77_777_777_777
    create = ddl(at - 1, "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
    wider = ddl(at + 5, "ALTER TABLE t MODIFY n BIGINT")
    rows = [ticdcs("insert", at, data={"id": n, "n": n if n % 2 else big}) for n in range(1, 5)]
    parts = [
        [
            create,
            b"".join([*rows, ticdcs("update", at, data={"id": 1, "n": 7}, old={"n": 1})]),
            wider,
            ticdcs("insert", at + 5, data={"id": 10, "n": big}),
        ],
        [
            create,
            ticdcs("insert", at + 5, data={"id": 11, "n": 1}),
            wider,
            ticdcs("update", at + 5, data={"id": 11, "n": big}, old={"n": 1}),
            ticdcs("insert", at + 60, data={"id": 99, "n": 1}),
        ],
    ]
    lines = (
        {"topic": "m", "partition": part, "offset": offset, "key_b64": None,
         "value_b64": base64.b64encode(value).decode()}
        for part, messages in enumerate(parts)
        for offset, value in enumerate(messages)
    )  # fmt: skip
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    source = parse_source_uri(f"file://{path}?protocol=maxwell&at-least-once=true")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    letters = LetterCommands(capfd, lives.warehouse)
    lives.finish(target_ts=(at + 2) * 1_000 << TSO_LOGICAL_BITS)
    assert letters.states("shop.t") == {(1, 1): "open", (1, 3): "open"}
    lives.finish(target_ts=(at + 30) * 1_000 << TSO_LOGICAL_BITS)
    later = [{"id": 10, "n": big}, {"id": 11, "n": big}]
    assert lives.rows("t") == [{"id": 1, "n": 7}, *later, {"id": 3, "n": 3}]
    code, done = letters("replay", "--all")
    assert (code, {each["state"] for each in done}) == (0, {"replayed"})
    found = {each["id"]: each["n"] for each in lives.rows("t")}
    assert found == {1: 7, 2: big, 3: 3, 4: big, 10: big, 11: big}


def test_a_table_without_a_create_table_needs_the_schema_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Maxwell's daemon without output_ddl. Without the file its rows are dead letters."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    at = FIRST_SECOND
    told = {"database": "shop", "table": "t", "ts": at, "xid": 7, "commit": True}
    rows = [
        {**told, "type": "insert", "data": {"id": n, "e": "b", "b": "/w==", "t": "1", "d": 1e1}}
        for n in (1, 2)
    ]
    gone = {**told, "type": "delete", "data": {**rows[1]["data"]}}
    path = tmp_path / "m.jsonl"
    lines = (
        {"topic": "m", "partition": 0, "offset": n, "key_b64": None,
         "value_b64": base64.b64encode(json.dumps(each).encode()).decode()}
        for n, each in enumerate([*rows, gone, {**rows[0], "table": "other", "ts": at + 60}])
    )  # fmt: skip
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    source = parse_source_uri(f"file://{path}?protocol=maxwell&at-least-once=true")
    columns = "id INT PRIMARY KEY, e ENUM('a','b'), b BLOB, t VARCHAR(9), d DECIMAL(20,2)"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    file = f"USE shop; CREATE TABLE t ({columns});"
    lives.finish(target_ts=(at + 9) * 1_000 << TSO_LOGICAL_BITS, schema_text=file)
    (row,) = lives.rows("t")
    assert row == {"id": 1, "e": "b", "b": b"\xff", "t": "1", "d": Decimal("10.00")}
    assert lives.dead_letters() == []
    lives.finish(target_ts=open_source(source).end_ts(), schema_text=file)
    (letter,) = lives.dead_letters()
    assert (letter["table_name"], letter["error_class"]) == ("other", "no-table")
