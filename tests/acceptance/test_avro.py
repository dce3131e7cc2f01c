"""What TiCDC's encoder wrote in avro leads to the recorded tables, with a registry that has its
schemas."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.schema import PrimitiveType

from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.one_process import Lives
from tests.acceptance.test_protocols import LABELS
from tests.services import avro_checksums, wire
from tests.services.delta_rows import read_rows
from tests.services.schema_registry import SchemaRegistry, serving

pytestmark = pytest.mark.acceptance
OP = "_tidb_op"  # of values, not of keys
NEEDED = "protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"


def test_recorded_bytes_lead_to_every_recorded_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = wire.DATA / "avro-watermark" / "messages.jsonl.gz"
    with serving(SchemaRegistry(wire.schemas("avro-watermark"))) as registry:
        uri = f"file://{path}?{NEEDED}&schema-registry={registry.url}"
        lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
        for label in LABELS[1::2]:  # the next test stops in between
            lives.finish(target_ts=wire.state_ts(label))
            letters = {each["error_class"] for each in lives.dead_letters()}
            assert (label, wire.differences(lives.warehouse, label)) == (label, [])
            assert letters <= {"delete-without-key", "no-key"}


@pytest.mark.parametrize(
    ("variant", "has_file"),
    [("avro", False), ("avro-string-modes", False), ("avro-string-modes", True)],
)
def test_without_watermarks_tables_come_to_the_same_in_the_end(
    variant: str,
    has_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was sent before the first DDL that no message tells, sent twice in part. A schema file
    tells the names, the digits of decimals and whether a number is a TINYINT."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path, last = tmp_path / "part.jsonl", wire.state_ts("after_updates")
    with gzip.open(wire.DATA / variant / "messages.jsonl.gz", "rt") as lines:
        kept = [each for each in lines if sent_at(each) <= last]
    path.write_text("".join(kept))
    with serving(SchemaRegistry(wire.schemas(variant))) as registry:
        needed = "protocol=avro&at-least-once=true&enable-tidb-extension=true"
        uri = f"file://{path}?{needed}&schema-registry={registry.url}"
        source = parse_source_uri(uri)
        lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
        text = created() if has_file else ""
        lives.finish(target_ts=open_source(source).end_ts(), schema_text=text)
    differences = []
    for table in wire.expected("after_updates").values():
        if table.key is not None:
            rows = read_rows(Path(lives.warehouse, "shop", table.name))
            if not has_file:
                rows = [{("列名" if n == "__" else n): v for n, v in row.items()} for row in rows]
                rows = [decimals_of(table, row) for row in rows]
            differences.append(table.difference(rows))
    assert [each for each in differences if each] == []
    (number,) = (
        field
        for field in DeltaTable(str(Path(lives.warehouse, "shop", "alltypes"))).schema().fields
        if field.name == "c_tinyint"
    )
    assert number.type == PrimitiveType("byte" if has_file else "integer")


def test_tables_whose_names_are_not_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every DDL of the recording, with other names for all tables and their database: rows have the
    safe ones, and DDLs the real ones."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "odd.jsonl"
    with (
        gzip.open(wire.DATA / "avro-watermark" / "messages.jsonl.gz", "rt") as lines,
        path.open("w") as made,
    ):
        for line in lines:
            record = json.loads(line)
            value = base64.b64decode(record["value_b64"] or "")
            if value[:1] == b"\x01":
                told = json.loads(value[1:])
                told["query"] = re.sub(r"`shop`(?:\.`(\w+)`)?", oddly, told["query"])
                told["schema"], told["table"] = "sh-op", told["table"] and f"{told['table']}-é"
                value = b"\x01" + json.dumps(told, ensure_ascii=False).encode()
                record["value_b64"] = base64.b64encode(value).decode()
            made.write(json.dumps(record) + "\n")
    texts = wire.schemas("avro-watermark").items()
    odd = {n: re.sub(r'"name":"(\w+)","namespace":"(\w+)\.shop"', named, t) for n, t in texts}
    with serving(SchemaRegistry(odd)) as registry:
        uri = f"file://{path}?{NEEDED}&schema-registry={registry.url}"
        lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri))
        for label in ("after_first_ddls", "final"):
            lives.finish(target_ts=wire.state_ts(label))
            for table in wire.expected(label).values():
                if table.key is not None:
                    rows = read_rows(Path(lives.warehouse, "sh_op", f"{table.name}__"))
                    assert (label, table.difference(rows)) == (label, None)
    letters = {each["error_class"] for each in lives.dead_letters()}
    assert letters <= {"delete-without-key", "no-key"}


def oddly(found: re.Match[str]) -> str:
    return f"`sh-op`.`{found[1]}-é`" if found[1] else "`sh-op`"


def named(found: re.Match[str]) -> str:
    return f'"name":"{found[1]}__","namespace":"{found[2]}.sh_op"'


def test_rows_are_compared_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All types, in an order of the columns' IDs that is not that of the table."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path, last = tmp_path / "part.jsonl", wire.state_ts("after_load")
    texts = wire.schemas("avro-string-modes")
    by_id = {n: avro_checksums.by_id(text, order_of) for n, text in texts.items() if OP in text}
    wrong, sent = set(), 0
    with (
        gzip.open(wire.DATA / "avro-string-modes" / "messages.jsonl.gz", "rt") as lines,
        path.open("w") as made,
    ):
        for line in lines:
            record = json.loads(line)
            value = base64.b64decode(record["value_b64"] or "")
            if sent_at(line) > last or not value:
                continue
            is_wrong = sent % 7 == 0
            if is_wrong and record["topic"] != "shop_audit_log":  # which has no key
                wrong.add(sent)
            sent += 1
            text = texts[int.from_bytes(value[1:5])]
            value = avro_checksums.checked(value, text, order_of, wrong=is_wrong)
            made.write(json.dumps(record | {"value_b64": base64.b64encode(value).decode()}) + "\n")
    with serving(SchemaRegistry({**texts, **by_id})) as registry:
        needed = "protocol=avro&at-least-once=true&enable-tidb-extension=true"
        source = parse_source_uri(f"file://{path}?{needed}&schema-registry={registry.url}")
        lives = Lives(ThreadsOfProcess, None, tmp_path, source=source)
        changefeed = replace(lives.settings.changefeed, integrity_check_level="correctness")
        lives.settings = replace(lives.settings, changefeed=changefeed)
        lives.finish(target_ts=open_source(source).end_ts())
    found = [each for each in lives.dead_letters() if each["error_class"] != "no-key"]
    assert {each["error_class"] for each in found} == {"checksum"}
    assert {each["position"] for each in found} == wrong


def order_of(name: str) -> str:
    return name[::-1]


def created() -> str:
    """The schema file, by what the recording of canal-json has."""
    told = [json.loads(each.value or b"") for each in wire.messages("canal-json")]
    made: dict[str, str] = {}
    for each in told:
        if each["isDdl"] and each["type"] == "CREATE":
            made.setdefault(each["table"], each["sql"])
    return "USE shop;\n" + ";\n".join(made.values())


def decimals_of(table: wire.ExpectedTable, row: dict[str, Any]) -> dict[str, Any]:
    """A decimal whose digits no message tells is a text."""
    are_decimals = {name for name, read in table.readers.items() if read is Decimal}
    return {n: Decimal(v) if n in are_decimals and v is not None else v for n, v in row.items()}


def sent_at(line: str) -> int:
    found = re.search(r"commitTs=(\d+)", json.loads(line)["note"])
    assert found is not None
    return int(found[1])
