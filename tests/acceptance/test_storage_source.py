"""The recorded folders of TiCDC's storage sink lead to the recorded tables, cell for cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from streaming.source.sources import open_source
from tests.acceptance.processes import ON_THREADS
from tests.acceptance.recorded_folders import SHIFTED, assert_is, lives_of
from tests.acceptance.test_wire import LABELS
from tests.services import wire, wire_storage
from tests.services.kafka_broker import REPOSITORY
from tests.services.wire_storage import CANAL_JSON, CSV, CSV_OLD_VALUE

PATIENCE_S = 200
pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize(
    ("variant", "labels"),
    [
        (CSV, LABELS),
        pytest.param(CSV_OLD_VALUE, LABELS[-1:], marks=pytest.mark.more),
        pytest.param(CANAL_JSON, LABELS[-1:], marks=pytest.mark.more),  # test_growing_storage
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
