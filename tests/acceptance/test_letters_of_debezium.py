"""Dead letters of debezium are replayed: TiCDC's and those of Debezium's own connectors, with their
schemas and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.protocols.contract import with_key
from tests.acceptance.letter_commands import LetterCommands
from tests.acceptance.one_process import Lives
from tests.acceptance.test_letters_of_protocols import recording
from tests.streaming.protocols.debezium.reading import DIALECTS, text_of

pytestmark = pytest.mark.acceptance
AT_MS = 1_700_000_000_000
BIG = 77_777_777_777  # a number that only the wider column holds
CREATE = "CREATE TABLE `t` (`id` BIGINT NOT NULL PRIMARY KEY, `n` INT)"
ALTER = "ALTER TABLE `t` MODIFY COLUMN `n` BIGINT"


def ts(second: int) -> int:
    return (AT_MS + 1_000 * second) << TSO_LOGICAL_BITS


class Topic:
    """Messages of one table, each made at its second."""

    def __init__(self, dialect: str) -> None:
        self.is_ticdc = dialect.startswith("ticdc")
        self.has_schema = not dialect.endswith("noschema")
        self.sent: list[tuple[bytes, bytes]] = []

    def source(self, second: int, table: str = "t") -> dict[str, Any]:
        told = {"connector": "mysql", "ts_ms": AT_MS + 1_000 * second, "snapshot": "false"}
        told |= {"db": "shop", "table": table}
        more = {"connector": "TiCDC", "commit_ts": ts(second)} if self.is_ticdc else {}
        return told | more

    def row(self, second: int, op: str, before: Any, after: Any) -> None:
        fields = [{"type": "int64", "optional": True, "field": name} for name in ("id", "n")]
        sides = [
            {"type": "struct", "optional": True, "fields": fields, "field": side}
            for side in ("before", "after")
        ]
        changed = {"before": before, "after": after}
        head = {"source": self.source(second)}
        tail = {"op": op, "ts_ms": AT_MS + 1_000 * second}
        payload = {**head, **tail, **changed} if self.is_ticdc else {**changed, **head, **tail}
        key = {"id": (after or before)["id"]}
        schema = {"type": "struct", "fields": sides}
        self._send(key, payload, {"type": "struct", "fields": fields[:1]}, schema)

    def put(self, second: int, id: int, n: int) -> None:
        self.row(second, "c", None, {"id": id, "n": n})

    def ddl(self, second: int, query: str) -> None:
        payload = {"source": self.source(second), "ts_ms": AT_MS + 1_000 * second}
        payload |= {"databaseName": "shop", "ddl": query, "tableChanges": []}
        told = {"type": "struct", "fields": []}
        self._send({"databaseName": "shop"}, payload, told, told)

    def mark(self, second: int) -> None:
        if self.is_ticdc:
            told = {"type": "struct", "fields": []}
            source = {**self.source(second, ""), "db": ""}
            self._send({}, {"source": source, "op": "m"}, told, told)

    def _send(self, key: Any, payload: Any, key_schema: Any, schema: Any) -> None:
        if not self.has_schema:
            sides = ({"payload": key}, {"payload": payload}) if self.is_ticdc else (key, payload)
        elif self.is_ticdc:
            sides = (
                {"payload": key, "schema": key_schema},
                {"payload": payload, "schema": schema},
            )
        else:
            sides = (
                {"schema": key_schema, "payload": key},
                {"schema": schema, "payload": payload},
            )
        self.sent.append((text_of(sides[0]), text_of(sides[1])))


@pytest.mark.parametrize(
    "dialect",
    [
        pytest.param(each, marks=pytest.mark.more if each.endswith("noschema") else ())
        for each in DIALECTS
    ],
)
def test_rows_are_replayed_by_the_mend_of_a_ddl(
    dialect: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A row, an UPDATE that leads a row to another key, one that a newer change supersedes, and one
    that is deleted later."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic = Topic(dialect)
    topic.ddl(0, CREATE)
    topic.put(1, 1, 1)  # position 1
    topic.put(2, 2, BIG)
    topic.put(2, 3, BIG)
    topic.put(2, 4, BIG)
    topic.row(2, "u", {"id": 1, "n": 1}, {"id": 5, "n": BIG})  # position 5
    topic.mark(3)
    topic.ddl(4, ALTER)
    topic.row(5, "u", {"id": 3, "n": BIG}, {"id": 3, "n": 3})
    topic.mark(6)
    topic.row(7, "d", {"id": 4, "n": BIG}, None)
    topic.put(9, 9, 9)
    topic.mark(10)
    uri = recording(tmp_path / "r.jsonl", "debezium", topic.sent)
    needed = "enable-tidb-extension=true" if topic.is_ticdc else "at-least-once=true"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(f"{uri}&{needed}"))
    letters = LetterCommands(capfd, lives.warehouse)
    lives.finish(target_ts=ts(3) - 1)
    assert letters.states("shop.t") == {(at, 0): "open" for at in (2, 3, 4, 5)}
    _, (shown,) = letters("show", "--position", "2")
    assert shown["value"].encode() == with_key(*topic.sent[2])

    lives.finish(target_ts=ts(6) - 1)  # the mend, and a newer change of one row
    code, done = letters("replay", "--all")
    assert (code, {each["state"] for each in done}) == (0, {"replayed"})
    states = letters.states("shop.t")
    assert states.pop((3, 0)) == "superseded"
    assert {*states.values()} == {"replayed"}
    rows = {row["id"]: row["n"] for row in lives.rows("t")}
    assert rows == {2: BIG, 3: 3, 4: BIG, 5: BIG}
    lives.finish(target_ts=ts(8))
    assert sorted(row["id"] for row in lives.rows("t")) == [2, 3, 5]
