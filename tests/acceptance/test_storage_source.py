"""The recorded folders of TiCDC's storage sink lead to the recorded tables, cell for cell."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from sinks.storage.open_storage import open_storage
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.one_process import Lives
from tests.acceptance.processes import ON_THREADS
from tests.acceptance.test_wire import LABELS, assert_snapshot_is_current
from tests.services import wire, wire_storage
from tests.services.kafka_broker import REPOSITORY
from tests.services.s3_server import KEY_ID, REGION, SECRET, S3Server
from tests.services.wire_storage import CANAL_JSON, CSV, CSV_OLD_VALUE

PATIENCE_S = 200
FIRST_STEPS = 14  # then TiCDC's checkpoint is beyond `after_updates`
# The encoders of these recordings had the columns of `orders` in an order that another encoder had
# changed: between two DDLs its rows have values under other columns' names, or a text as if it were
# a number. In a file with quotes that can be told from other texts, without them it cannot.
SHIFTED = (CANAL_JSON, CSV_OLD_VALUE)
pytestmark = pytest.mark.acceptance


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


@pytest.mark.parametrize(
    ("variant", "labels"),
    [
        (CSV, LABELS),
        pytest.param(CSV_OLD_VALUE, LABELS[-1:], marks=pytest.mark.more),
        (CANAL_JSON, LABELS[-1:]),
        *(pytest.param(each, LABELS, marks=pytest.mark.soak) for each in SHIFTED),
    ],
)
def test_a_folder_leads_to_every_recorded_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    labels: tuple[str, ...],
) -> None:
    """A restart at each labelled moment."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = wire_storage.folder(variant, tmp_path / "cdc")
    lives = lives_of(variant, folder, tmp_path)
    for label in labels:
        lives.finish(target_ts=wire.state_ts(label))
        assert_is(lives, variant, label)


@pytest.mark.parametrize("variant", [CSV, pytest.param(CANAL_JSON, marks=pytest.mark.soak)])
def test_folders_that_are_named_by_ids_lead_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """Half of it is there at the start."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, by_id = tmp_path / "cdc", wire_storage.steps_by_id
    steps = list(by_id(variant))
    for step in steps[:50]:
        wire_storage.write(step, folder)
    uri = f"{wire_storage.uri(variant, folder)}&use-table-id-as-path=true"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri), quiet_s=0.2)
    life = lives.begin(target_ts=wire.state_ts("final"))
    life.wait_until(partial(has_come_to, lives, steps[48].ts - 1))
    for step in steps[50:]:
        wire_storage.write(step, folder)
    assert life.join() is None
    assert_is(lives, variant, "final")


@pytest.mark.parametrize(
    "variant",
    [CANAL_JSON, *(pytest.param(each, marks=pytest.mark.soak) for each in (CSV, CSV_OLD_VALUE))],
)
def test_a_folder_is_followed_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """Checkpoints of TiCDC are followed; a restart of ours where TiCDC has one, and elsewhere."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "cdc"
    folder.mkdir()
    lives, resolved_ts = lives_of(variant, folder, tmp_path), 0
    life = lives.begin()
    for number, step in enumerate(wire_storage.steps(variant)):
        wire_storage.write(step, folder)
        if step.what == "restart" or number == 16:
            assert life.stop() is None
            life = lives.begin()
        if step.what == "metadata" and step.ts > resolved_ts and number % 3 == 1:
            resolved_ts = step.ts
            life.wait_until(partial(has_come_to, lives, resolved_ts - 1))
    assert life.stop() is None
    lives.finish(target_ts=wire.state_ts("final"))
    assert_is(lives, variant, "final")


@pytest.mark.more
@pytest.mark.parametrize("variant", [CSV])
def test_a_folder_on_an_object_store(
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
) -> None:
    """It grows between two lives, and while the second one reads. Its secret is in no table."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    prefix = f"cdc-{tmp_path.name}"
    told = (
        f"&endpoint={s3.url}&region={REGION}&access-key={KEY_ID}&secret-access-key={SECRET}"
        "&force-path-style=true"
    )
    uri = wire_storage.uri(variant, f"s3://{s3.bucket}/{prefix}") + told
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri), quiet_s=0.2)
    storage = open_storage(f"s3://{s3.bucket}/{prefix}", s3.options)
    steps, life = list(wire_storage.steps(variant)), None
    for number, step in enumerate(steps):
        for path, text in step.files.items():
            storage.replace(path, text)
        if number == FIRST_STEPS:
            lives.finish(target_ts=wire.state_ts("after_updates"))
            assert_is(lives, variant, "after_updates")
            life = lives.begin(target_ts=wire.state_ts("final"))
    assert life is not None
    assert life.join() is None
    assert_is(lives, variant, "final")
    assert SECRET not in repr(lives.changefeed())


def has_come_to(lives: Lives, ts: int) -> bool:
    row = lives.changefeed()
    return row is not None and row.checkpoint_ts >= ts


def run(
    folder: Path, warehouse: Path, variant: str, *more: str
) -> subprocess.CompletedProcess[str]:
    source = wire_storage.uri(variant, folder)
    command = (sys.executable, "-m", ON_THREADS, "run", "--changefeed-id", "shop")
    return subprocess.run(
        [*command, "--source-uri", f"{source}{more[0]}", "--sink-uri", f"delta://{warehouse}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_program_reads_a_folder_to_its_end(tmp_path: Path) -> None:
    folder, warehouse = wire_storage.folder(CANAL_JSON, tmp_path / "cdc"), tmp_path / "lake"
    ended = run(folder, warehouse, CANAL_JSON, "&read-to-end=true")
    assert ended.returncode == 0, ended.stderr
    found = wire.differences(warehouse, "final")
    assert all(each.startswith("orders: ") for each in found)
    (folder / "metadata").unlink()
    uri = wire_storage.uri(CANAL_JSON, folder) + "&read-to-end=true"
    with pytest.raises(ConfigError, match="has no file `metadata`"):
        open_source(parse_source_uri(uri)).end_ts()


def test_a_row_that_cannot_be_applied_is_a_letter_that_stands_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose value is none of its column's type, and one that has other fields."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = wire_storage.folder(CSV, tmp_path / "cdc")
    (file,) = (folder / "shop" / "coupon").glob("*44144125953/*/CDC*0001.csv")
    first, second, *rest = file.read_bytes().splitlines(keepends=True)
    bad = first.replace(b'"C-001",1,', b'"C-001",one,'), second.replace(b",", b"", 1)
    assert bad[0] != first
    file.write_bytes(b"".join([*bad, *rest]))
    lives = lives_of(CSV, folder, tmp_path)
    lives.finish(target_ts=wire.state_ts("after_load"))
    letters = [each for each in lives.dead_letters() if each["table_name"] == "coupon"]
    assert {each["error_class"] for each in letters} == {"cast", "malformed"}
    for letter in letters:
        line = bad[0] if letter["error_class"] == "cast" else bad[1]
        magic, head, row = letter["value"].split(b"\n", 2)
        assert magic == b"tidelake csv row"
        assert row.startswith(line.rstrip(b"\r\n")), "it goes on behind a line's end in a value"
        assert json.loads(head)["columns"][0] == ["code", "varchar(20)"]
    assert len(wire.differences(lives.warehouse, "after_load")) == 1
