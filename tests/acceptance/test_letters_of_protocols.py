"""Dead letters of open-protocol, whose messages mix tables: each row has its own. And those of rows
in claim-check storage, in each protocol: they are replayed when their file is there."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.model import TSO_LOGICAL_BITS
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.protocols.contract import KEY_LENGTH
from tests.acceptance.letter_commands import LetterCommands
from tests.acceptance.one_process import Lives
from tests.services import wire
from tests.services.avro_writer import long
from tests.services.kafka_broker import KafkaBroker
from tests.services.schema_registry import SchemaRegistry, serving
from tests.services.topic_producer import Outgoing
from tests.streaming.protocols.avro import reading as avro
from tests.streaming.protocols.open import reading as open_protocol
from tests.streaming.protocols.simple import reading as simple

pytestmark = pytest.mark.acceptance

BIG = 77_777_777_777  # a number that only the wider column holds


def put(ts: int, table: str, id: int, n: int) -> tuple[Any, Any]:
    return open_protocol.key(ts, table), {"u": open_protocol.side({"id": id, "n": n})}


def ddl(ts: int, table: str, query: str) -> tuple[Any, Any]:
    return {"ts": ts, "scm": "shop", "tbl": table, "t": 2}, {"q": query, "t": 3}


def recording(path: Path, protocol: str, messages: Sequence[tuple[bytes, bytes]]) -> str:
    """Keys and values of a topic with one partition."""
    lines = []
    for offset, (key, value) in enumerate(messages):
        told = {"key_b64": base64.b64encode(key), "value_b64": base64.b64encode(value)}
        line = {"topic": "shop", "partition": 0, "offset": offset, "headers": []}
        lines.append(json.dumps(line | {name: text.decode() for name, text in told.items()}))
    path.write_text("\n".join(lines) + "\n")
    return f"file://{path}?protocol={protocol}&partition-num=1"


def parts(message: bytes) -> tuple[bytes, bytes]:
    (size,) = KEY_LENGTH.unpack_from(message)
    return message[KEY_LENGTH.size :][:size], message[KEY_LENGTH.size + size :]


def test_a_replay_of_one_table_leaves_the_others_rows_of_its_message_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = "CREATE TABLE `{0}` (`id` BIGINT NOT NULL PRIMARY KEY, `n` INT)"
    wider = "ALTER TABLE `{0}` MODIFY COLUMN `n` BIGINT"
    mixed = [
        *(put(20, "a", 1, 1), put(20, "b", 1, BIG), put(20, "a", 2, BIG)),
        *(put(20, "b", 2, 2), put(20, "b", 3, BIG), put(20, "a", 3, BIG)),
    ]
    messages = [
        *([ddl(10, "a", made.format("a"))], [ddl(11, "b", made.format("b"))], mixed),
        *([open_protocol.resolved(30)], [ddl(40, "a", wider.format("a"))]),
        *([put(41, "a", 3, 7)], [open_protocol.resolved(50)]),
        *([ddl(60, "b", wider.format("b"))], [open_protocol.resolved(70)]),
    ]
    sent = [parts(open_protocol.message(*each)) for each in messages]
    uri = recording(tmp_path / "r.jsonl", "open-protocol", sent)
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
    letters = LetterCommands(capfd, lives.warehouse)
    lives.finish(target_ts=29)
    _, listed = letters("list")
    found = {(each["table"], each["position"], each["index"]) for each in listed}
    assert found == {("shop.a", 2, 2), ("shop.a", 2, 5), ("shop.b", 2, 1), ("shop.b", 2, 4)}
    assert {each["reason"] for each in listed} == {"cast"}

    lives.finish(target_ts=49)  # the mend of one table, and a newer change of one row
    version = lives.versions()["b"]
    code, done = letters("replay", "--table", "shop.a")
    assert (code, {each["index"]: each["state"] for each in done}) == (0, {2: "replayed"})
    assert lives.rows("a") == [{"id": 1, "n": 1}, {"id": 2, "n": BIG}, {"id": 3, "n": 7}]
    assert lives.versions()["b"] == version
    code, _ = letters("replay", "--all")  # nothing has mended the other
    assert (code, lives.rows("b")) == (1, [{"id": 2, "n": 2}])

    lives.finish(target_ts=69)
    code, done = letters("replay", "--position", "2", "--index", "1")
    assert (code, [(each["table"], each["index"]) for each in done]) == (0, [("shop.b", 1)])
    assert lives.rows("b") == [{"id": 1, "n": BIG}, {"id": 2, "n": 2}]
    code, _ = letters("replay", "--all")
    assert code == 0
    assert lives.rows("b") == [{"id": 1, "n": BIG}, {"id": 2, "n": 2}, {"id": 3, "n": BIG}]
    _, listed = letters("list")
    states = {(each["table"], each["index"]): each["state"] for each in listed}
    assert states[("shop.a", 5)] == "superseded"
    assert {*states.values()} == {"replayed", "superseded"}


CLAIM_CHECK = "&large-message-handle-option=claim-check&claim-check-storage-uri=file://"


@pytest.mark.parametrize(
    "protocol", ["canal-json", pytest.param("open-protocol", marks=pytest.mark.more)]
)
def test_large_rows_are_replayed_when_their_files_are_there(
    protocol: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    variant, label = f"{protocol}-claim-check", "after_renames"
    files, claims = wire.claimed(variant, tmp_path / "files"), tmp_path / "claims"
    claims.mkdir()
    path = wire.DATA / variant / "messages.jsonl.gz"
    uri = f"file://{path}?protocol={protocol}&partition-num=3&enable-tidb-extension=true"
    source = parse_source_uri(f"{uri}{CLAIM_CHECK}{claims}")
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
    lives.finish(target_ts=wire.state_ts(label))
    letters = LetterCommands(capfd, lives.warehouse)
    code, refused = letters("replay", "--reason", "claim-check")
    assert code == 1
    for each in refused:
        assert f"in file://{claims}" in each["message"]
        assert f"in file://{claims}" in each["refusal"]

    names = sorted(file.name for file in files.iterdir())
    for name, other in zip(names, [*names[1:], names[0]], strict=True):  # mixed up
        (claims / name).write_bytes((files / other).read_bytes())
    version = lives.versions()["orders"]
    code, refused = letters("replay", "--reason", "claim-check")
    assert (code, {each["state"] for each in refused}) == (1, {"open"})
    assert all("another row than its message names" in each["refusal"] for each in refused)
    assert lives.versions()["orders"] == version
    claims.rename(tmp_path / "away")
    code, refused = letters("replay", "--reason", "claim-check")
    assert code == 1
    assert all("claim-check storage cannot be read" in each["refusal"] for each in refused)

    files.rename(claims)
    code, done = letters("replay", "--reason", "claim-check")
    assert (code, {each["state"] for each in done}) == (0, {"replayed"})
    assert wire.differences(lives.warehouse, label) == []


def test_a_large_row_of_simple_is_replayed_unless_a_newer_change_came(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    claims = tmp_path / "claims"
    claims.mkdir()

    def large(ts: int, id: str) -> bytes:
        place = f"{id}.json"
        return simple.row(ts=ts, data={"id": id}, claimCheckLocation=f"s3://elsewhere/{place}")

    messages = [
        *(simple.bootstrap(), large(10, "1"), large(11, "2"), large(12, "3")),
        *(simple.row("UPDATE", 13, data={"id": "2", "v": "new"}, old={"id": "2", "v": "x"}),),
        simple.watermark(20),
    ]
    uri = recording(tmp_path / "r.jsonl", "simple", [(b"", each) for each in messages])
    lives = Lives(
        ThreadsOfProcess, None, tmp_path, source=parse_source_uri(f"{uri}{CLAIM_CHECK}{claims}")
    )
    lives.finish(target_ts=19)
    letters = LetterCommands(capfd, lives.warehouse)
    found = letters.states("shop.t")
    assert found == {(1, 0): "open", (2, 0): "superseded", (3, 0): "open"}
    for id in ("1", "2"):
        body = simple.row(ts=9 + int(id), data={"id": id, "v": "large"})
        told = {"key": "", "value": base64.b64encode(body).decode()}
        (claims / f"{id}.json").write_text(json.dumps(told))
    code, _ = letters("replay", "--all")
    assert code == 1
    assert lives.rows("t") == [{"id": 1, "v": "large"}, {"id": 2, "v": "new"}]
    assert [*letters.states("shop.t").values()] == ["replayed", "superseded", "open"]


def flat(at_ms: int, kind: str, *rows: dict[str, object], sql: str = "") -> bytes:
    """A message without a commit-ts, as Alibaba Canal writes it: with several rows."""
    data = [{name: str(value) for name, value in row.items()} for row in rows]
    fields = {
        "id": 0, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": bool(sql),
        "type": kind, "es": at_ms, "ts": at_ms, "sql": sql, "sqlType": {},
        "mysqlType": {"id": "bigint", "n": "bigint"},
        "old": data if kind == "UPDATE" else None, "data": data or None,
    }  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()


def test_rows_that_their_reader_has_numbered_are_replayed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    at = 1_700_000_000_000
    several = [{"id": 1, "n": 1}, {"id": 2, "n": BIG}, {"id": 3, "n": BIG}, {"id": 4, "n": BIG}]
    messages = [
        flat(at, "CREATE", sql="CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)"),
        flat(at + 1_000, "INSERT", *several),
        flat(at + 2_000, "UPDATE", {"id": 3, "n": 3}),
        flat(at + 3_000, "ALTER", sql="ALTER TABLE t MODIFY n BIGINT"),
        flat(at + 4_000, "DELETE", {"id": 4, "n": BIG}),
        flat(at + 9_000, "INSERT", {"id": 9, "n": 9}),
    ]
    uri = recording(tmp_path / "r.jsonl", "canal-json", [(b"", each) for each in messages])
    lives = Lives(
        ThreadsOfProcess, None, tmp_path, source=parse_source_uri(f"{uri}&at-least-once=true")
    )
    letters = LetterCommands(capfd, lives.warehouse)
    lives.finish(target_ts=(at + 1_500) << TSO_LOGICAL_BITS)
    assert letters.states("shop.t") == dict.fromkeys(((1, 1), (1, 2), (1, 3)), "open")
    lives.finish(target_ts=(at + 3_500) << TSO_LOGICAL_BITS)
    code, done = letters("replay", "--position", "1")
    assert (code, {each["state"] for each in done}) == (0, {"replayed"})
    assert letters.states("shop.t")[1, 2] == "superseded"
    assert lives.rows("t") == [
        {"id": 1, "n": 1},
        {"id": 2, "n": BIG},
        {"id": 3, "n": 3},
        {"id": 4, "n": BIG},
    ]
    lives.finish(target_ts=(at + 4_500) << TSO_LOGICAL_BITS)
    assert [row["id"] for row in lives.rows("t")] == [1, 2, 3]


def test_letters_of_avro_need_no_registry(
    broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Rows, and a DELETE without a commit-ts; the registry is gone when they are replayed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic, ts = "avro-letters", avro.TS
    with serving(SchemaRegistry({})) as schemas:
        number = avro.field("id", "INT")
        of_key = schemas.register("t-key", avro.schema([number], is_key=True))
        of_value = schemas.register("t-value", avro.schema([number, avro.field("n", "BIGINT")]))

        def key(id: int) -> bytes:
            return avro.framed(of_key, long(id))

        def put(at: int, id: int, n: int, op: str = "c") -> Outgoing:
            row = long(id) + long(n) + avro.extension(op, ts + at)
            return 0, key(id), avro.framed(of_value, row)

        def told(at: int, query: str) -> Outgoing:
            return 0, None, avro.ddl(ts + at, query)[KEY_LENGTH.size :]

        def mark(at: int) -> Outgoing:
            return 0, None, b"\x02" + (ts + at).to_bytes(8)

        broker.create_topic(topic, partitions=1)
        broker.produce(
            topic,
            [
                told(10, "CREATE TABLE `t` (`id` TINYINT NOT NULL PRIMARY KEY, `n` INT)"),
                *(put(20, 1, 1), put(21, 2, BIG), put(22, 3, BIG), put(23, 1000, 4)),
                *(put(24, 1001, 5), (0, key(1000), None), mark(30)),
                told(40, "ALTER TABLE `t` MODIFY `id` INT, MODIFY `n` BIGINT"),
                *(put(41, 3, 7, "u"), mark(50)),
            ],
        )
        needed = "protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"
        uri = f"kafka://{broker.bootstrap}/{topic}?{needed}&schema-registry={schemas.url}"
        lives = Lives(ThreadsOfProcess, broker, tmp_path, source=parse_source_uri(uri))
        letters = LetterCommands(capfd, lives.warehouse)
        lives.finish(target_ts=ts + 29)
        assert letters.states("shop.t") == {(at, 0): "open" for at in (2, 3, 4, 5, 6)}
        lives.finish(target_ts=ts + 49)  # the mend, and a newer change of one row
    _, (shown,) = letters("show", "--part", f"{topic}/0", "--position", "2")
    raw = base64.b64decode(shown["value_base64"])
    assert raw.startswith(b"tidelake avro row\n%d\n" % (ts + 21))
    assert raw.endswith(put(21, 2, BIG)[2] or b"-")
    code, _ = letters("replay", "--all")
    assert code == 0
    assert sorted(lives.rows("t"), key=lambda row: row["id"]) == [
        {"id": 1, "n": 1},
        {"id": 2, "n": BIG},
        {"id": 3, "n": 7},
        {"id": 1001, "n": 5},
    ]
    states = letters.states("shop.t")
    assert states.pop((3, 0)) == "superseded"
    assert {*states.values()} <= {"replayed", "superseded"}
